"""Submissions, cancels and retries against the whole product."""

import asyncio
import hashlib
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from uuid import uuid4

import httpx
import pytest

from schema.settings import load, need
from schema.topics import Topic
from schema.wires.log import LogReader, Place
from tests.api.system import REHEARSAL, SLOW_PER_MINUTE, Caller, System

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]


def _key() -> str:
    return uuid4().hex


def test_the_same_key_is_the_same_task_before_and_after_it_is_shown(ann: Caller) -> None:
    key = _key()
    first = ann.post(REHEARSAL, key)
    assert first.status_code == 202, first.text
    told = first.json()
    assert (told["status"], told["seq"], told["task_id"]) == ("CREATED", 1, ann.task_id(key))
    assert first.headers["location"] == f"/v1/tasks/{told['task_id']}"
    assert int(first.headers["ratelimit-remaining"]) == told["remaining"]["minute"]
    again = ann.post(REHEARSAL, key)
    assert (again.status_code, again.json()["task_id"]) == (202, told["task_id"])
    ended = ann.until(told["task_id"], "SUCCEEDED")
    later = ann.post(REHEARSAL, key)
    assert later.status_code == 202
    assert later.json()["task_id"] == told["task_id"]
    assert later.json()["reserved_micros"] == told["reserved_micros"]
    assert ann.get(told["task_id"])["seq"] == ended["seq"], "nothing happened by asking again"


def test_the_same_key_with_another_body_is_a_conflict_before_and_after_it_is_shown(
    ann: Caller,
) -> None:
    key = _key()
    task_id = ann.submit(key, no_op=True)
    other = ann.post({**REHEARSAL, "title": "other"}, key)
    assert (other.status_code, other.json()["code"]) == (409, "idempotency_conflict")
    ann.until(task_id, "SUCCEEDED")
    other = ann.post({**REHEARSAL, "title": "other"}, key)
    assert (other.status_code, other.json()["code"]) == (409, "idempotency_conflict")


def test_the_same_body_spaced_and_ordered_otherwise_is_the_same(ann: Caller) -> None:
    headers = {"Idempotency-Key": _key(), "Content-Type": "application/json"}
    one = b'{"scene":"rehearsal","parameters":{"no_op":true,"steps":2}}'
    two = b' {"parameters": {"steps": 2, "no_op": true},\n "scene": "rehearsal"}'
    first = ann.http.post("/v1/tasks", content=one, headers=headers)
    second = ann.http.post("/v1/tasks", content=two, headers=headers)
    assert (first.status_code, second.status_code) == (202, 202)
    assert first.json()["task_id"] == second.json()["task_id"]


def test_the_key_of_another_user_is_another_task(ann: Caller, bob: Caller) -> None:
    key = _key()
    assert ann.submit(key, no_op=True) != bob.submit(key, no_op=True)


def test_many_requests_at_once_with_one_key_make_one_task(ann: Caller, system: System) -> None:
    key = _key()
    bodies = [REHEARSAL, {**REHEARSAL, "title": "another body"}] * 8
    with ThreadPoolExecutor(16) as pool:
        answers = list(pool.map(ann.post, bodies, [key] * len(bodies)))
    won = {answer.request.content for answer in answers if answer.status_code == 202}
    assert len(won) == 1, "only one of the bodies can be the task"
    for answer in answers:
        assert answer.status_code == (202 if answer.request.content in won else 409)
    ann.until(ann.task_id(key), "SUCCEEDED")
    created = _records(system, Topic.TASK_EVENTS, b"task.created.v1")
    assert sum(ann.task_id(key).encode() in record for record in created) == 1


def test_over_a_limit_one_is_told_what_is_left_and_when_it_resets(system: System) -> None:
    caller = system.caller(tier="free")  # 5 rehearsals a day
    answers = [caller.post(REHEARSAL) for _ in range(6)]
    assert [answer.status_code for answer in answers] == [202] * 5 + [429]
    problem = answers[-1].json()
    assert problem["code"] == "day_exhausted"
    assert problem["remaining"]["day"] == 0
    assert problem["resets_at"] == problem["remaining"]["day_resets_at"]
    assert int(answers[-1].headers["retry-after"]) > 0
    assert answers[-1].headers["ratelimit-remaining"] == "0"
    quotas = caller.http.get("/v1/quotas").json()
    assert {scene["scene"] for scene in quotas["scenes"]} == {"autocut", "rehearsal"}


def test_a_refused_submission_is_told_by_its_task_and_may_be_asked_again(system: System) -> None:
    caller = system.caller(tier="free")
    for _ in range(5):
        assert caller.post(REHEARSAL).status_code == 202
    key = _key()
    assert caller.post(REHEARSAL, key).status_code == 429
    end = time.monotonic() + 60
    found = caller.get(caller.task_id(key), seq=0)
    while found["status"] == "pending" and time.monotonic() < end:
        found = caller.get(caller.task_id(key), seq=0)  # waits a second itself
    assert found["status"] == "refused"
    assert found["refusal"]["code"] == "day_exhausted"
    assert found["refusal"]["remaining"]["day"] == 0


def test_the_rate_of_a_minute_is_refused_without_asking_the_decider(system: System) -> None:
    keys = [_key() for _ in range(SLOW_PER_MINUTE)]
    while True:
        minute = time.time() // 60
        caller = system.caller(tier="slow")
        accepted = [caller.post(REHEARSAL, key) for key in keys]
        before = _outcomes(system)
        refused = [caller.post(REHEARSAL) for _ in range(20)]
        after = _outcomes(system)
        if time.time() // 60 == minute:  # the limit is of one minute: again if another began
            break
    assert {answer.status_code for answer in accepted} == {202}
    assert {answer.json()["code"] for answer in refused} == {"rate_exceeded"}
    assert all(1 <= int(answer.headers["retry-after"]) <= 60 for answer in refused)
    assert after == before, "no command was appended for them"
    assert caller.post(REHEARSAL, keys[0]).status_code == 202, "asking again is not submitting"


def test_a_tier_or_scene_that_is_not_offered_is_refused_at_the_door(system: System) -> None:
    unknown = system.caller(tier="gold").post(REHEARSAL)
    assert (unknown.status_code, unknown.json()["code"]) == (403, "tier_unknown")
    free = system.caller(tier="free").post({"scene": "genai", "prompt": "a fox"})
    assert (free.status_code, free.json()["code"]) == (403, "scene_not_offered")


def test_tenants_and_users_see_nothing_of_each_other(
    ann: Caller, bob: Caller, system: System
) -> None:
    task_id = ann.submit(no_op=True)
    ann.until(task_id, "SUCCEEDED")
    namesake = system.known_caller(ann.sub, tier="load", tenant="acme")
    for stranger in (bob, namesake):
        for method, path in (
            ("GET", ""),
            ("GET", "/result"),
            ("GET", "/events"),
            ("GET", "/wait"),
            ("POST", "/cancel"),
            ("POST", "/retry"),
        ):
            answer = stranger.http.request(method, f"/v1/tasks/{task_id}{path}")
            assert (answer.status_code, answer.json()["code"]) == (404, "task_unknown"), path
        assert stranger.http.get("/v1/tasks").json()["tasks"] == []


def test_a_neighbour_on_the_same_shard_sees_nothing_either(ann: Caller, system: System) -> None:
    """The shard is no secret and no proof: only the row says whose a task is."""
    task_id = ann.submit(no_op=True)
    ann.until(task_id, "SUCCEEDED")
    neighbour = system.caller()
    theirs = task_id[:-6] + neighbour.user_id[-6:]
    for method, path in (("GET", ""), ("GET", "/wait"), ("POST", "/cancel"), ("POST", "/retry")):
        answer = neighbour.http.request(method, f"/v1/tasks/{theirs}{path}")
        assert (answer.status_code, answer.json()["code"]) == (404, "task_unknown"), path


# --- cancel and retry ---------------------------------------------------------------------------


def _created(ann: Caller) -> str:
    missing = {"sha256": hashlib.sha256(_key().encode()).hexdigest(), "size": 5}
    made = ann.http.post(
        "/v1/materials", json={**missing, "content_type": "video/mp4", "name": "a.mp4"}
    ).json()
    answer = ann.post({"scene": "autocut", "materials": [made["material_id"]]})
    assert answer.status_code == 202, answer.text
    task_id: str = answer.json()["task_id"]
    assert ann.get(task_id, seq=1)["status"] == "CREATED"
    return task_id


def _queued(ann: Caller) -> str:
    answer = ann.post({"scene": "genai", "prompt": "nobody serves this pool"})
    task_id: str = answer.json()["task_id"]
    ann.until(task_id, "QUEUED")
    return task_id


def _running(ann: Caller) -> str:
    task_id = ann.submit(seconds=60)
    ann.until(task_id, "RUNNING")
    return task_id


@pytest.mark.parametrize(
    "make", [_created, _queued, _running], ids=["created", "queued", "running"]
)
def test_a_task_is_canceled_where_it_stands_and_only_once(ann: Caller, make: Any) -> None:  # noqa: ANN401
    task_id = make(ann)
    answer = ann.http.post(f"/v1/tasks/{task_id}/cancel")
    assert (answer.status_code, answer.json()["status"]) == (200, "CANCELED"), answer.text
    again = ann.http.post(f"/v1/tasks/{task_id}/cancel")
    assert (again.status_code, again.json()["seq"]) == (200, answer.json()["seq"])
    headers = {"Cutlog-Consistency": answer.json()["consistency_token"]}
    task = ann.http.get(f"/v1/tasks/{task_id}", headers=headers).json()
    assert (task["status"], task["cause"]) == ("CANCELED", "user")


def test_what_has_ended_cannot_be_canceled(ann: Caller) -> None:
    task_id = ann.submit(no_op=True)
    ann.until(task_id, "SUCCEEDED")
    answer = ann.http.post(f"/v1/tasks/{task_id}/cancel")
    assert (answer.status_code, answer.json()["code"]) == (409, "task_ended")


def test_a_failed_task_is_retried_by_hand_once_a_failure(ann: Caller) -> None:
    task_id = ann.submit(fail="input", fail_on_attempts=[1])
    failed = ann.until(task_id, "FAILED")
    assert failed["failure"] == "input"
    token = ann.system.token(task_id, failed["seq"])

    def retry(_number: int) -> httpx.Response:
        return ann.http.post(f"/v1/tasks/{task_id}/retry", headers={"Cutlog-Consistency": token})

    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(retry, range(4)))
    taken = [answer.json()["seq"] for answer in answers if answer.status_code == 200]
    assert taken, answers[0].text
    assert {answer.status_code for answer in answers} <= {200, 409}
    ended = ann.until(task_id, "SUCCEEDED", seq=max(taken))
    assert ended["token"] == 2
    events = ann.http.get(f"/v1/tasks/{task_id}/wait").json()["events"]
    names = [event["event"] for event in events]
    assert names.count("task.retried.v1") == 1


def test_only_a_failed_task_can_be_retried(ann: Caller) -> None:
    task_id = _queued(ann)
    answer = ann.http.post(f"/v1/tasks/{task_id}/retry")
    assert (answer.status_code, answer.json()["code"]) == (409, "task_not_failed")


# --- reading ------------------------------------------------------------------------------------


def test_a_list_gives_each_task_once_newest_first_page_by_page(ann: Caller) -> None:
    made = [ann.submit(no_op=True) for _ in range(7)]
    for task_id in made:
        ann.until(task_id, "SUCCEEDED")
    seen: list[str] = []
    cursor: str | None = None
    while True:
        query = {"limit": 3} | ({"cursor": cursor} if cursor else {})
        page = ann.http.get("/v1/tasks", params=query).json()
        seen += [task["task_id"] for task in page["tasks"]]
        cursor = page["next_cursor"]
        if cursor is None:
            break
    assert sorted(seen) == sorted(made)
    assert len(seen) == len(set(seen))
    times = [ann.get(task_id)["created_at"] for task_id in seen]
    assert times == sorted(times, reverse=True)


def test_a_list_is_filtered_by_status_and_scene(ann: Caller) -> None:
    done, queued = ann.submit(no_op=True), _queued(ann)
    ann.until(done, "SUCCEEDED")

    def listed(**query: Any) -> list[str]:  # noqa: ANN401
        tasks = ann.http.get("/v1/tasks", params=query).json()["tasks"]
        return [task["task_id"] for task in tasks]

    assert listed(status="SUCCEEDED") == [done]
    assert listed(scene="genai") == [queued]
    assert sorted(listed(status=["SUCCEEDED", "QUEUED"])) == sorted([done, queued])
    assert listed(status="EXPIRED") == []


def test_a_result_is_fetched_by_its_addresses(ann: Caller) -> None:
    task_id = ann.submit(steps=2)
    early = ann.http.get(
        f"/v1/tasks/{task_id}/result", params={"consistency": ann.system.token(task_id, 1)}
    )
    assert early.status_code in {200, 409}
    ann.until(task_id, "SUCCEEDED")
    files = ann.http.get(f"/v1/tasks/{task_id}/result").json()["files"]
    assert len(files) == 1
    fetched = httpx.get(files[0]["url"])
    assert hashlib.sha256(fetched.content).hexdigest() == files[0]["sha256"]
    assert len(fetched.content) == files[0]["size"]


def test_a_consistency_token_of_another_task_is_refused(ann: Caller) -> None:
    one, other = ann.submit(no_op=True), ann.submit(no_op=True)
    headers = {"Cutlog-Consistency": ann.system.token(other, 1)}
    answer = ann.http.get(f"/v1/tasks/{one}", headers=headers)
    assert (answer.status_code, answer.json()["code"]) == (400, "consistency_token_invalid")


def test_a_read_right_after_its_submission_finds_the_task(ann: Caller) -> None:
    for _ in range(5):
        answer = ann.post(REHEARSAL).json()
        headers = {"Cutlog-Consistency": answer["consistency_token"]}
        found = ann.http.get(f"/v1/tasks/{answer['task_id']}", headers=headers)
        assert found.status_code in {200, 202}
        if found.status_code == 200:
            assert found.json()["seq"] >= answer["seq"]
        else:
            assert found.json()["status"] == "pending"


def test_what_names_a_person_is_sealed_in_the_log_and_open_to_its_owner(
    ann: Caller, system: System
) -> None:
    title = f"Holidays of {uuid4().hex}"
    answer = ann.post({**REHEARSAL, "title": title}).json()
    task = ann.until(answer["task_id"], "SUCCEEDED")
    assert task["title"] == title
    for topic in (Topic.SUBMISSIONS_P1, Topic.TASK_COMMANDS, Topic.TASK_EVENTS):
        records = _records(system, topic, answer["task_id"].encode())
        assert records
        for record in records:
            assert title.encode() not in record
            assert ann.sub.encode() not in record


def _records(system: System, topic: Topic, mark: bytes) -> list[bytes]:
    """Every value of a topic that holds this."""

    async def read() -> list[bytes]:
        kafka = need(load(system.installation.environ()), "kafka")
        places = [Place(topic.value, number) for number in range(kafka.partitions)]
        found: list[bytes] = []
        async with LogReader(kafka, places) as reader:
            await reader.seek_to_beginning()
            ends = await reader.ends()
            while any(reader.positions[place] < ends[place] for place in places):
                for batch in await reader.read(1):
                    found += [record.value for record in batch.records if record.value]
        return [value for value in found if mark in value]

    return asyncio.run(read())


def _outcomes(system: System) -> float:
    """How many submissions the deciders were asked, by the api's own count."""
    text = httpx.get(f"{system.up.api_url}/metrics").text
    return sum(
        float(line.rsplit(" ", 1)[1])
        for line in text.splitlines()
        if line.startswith("cutlog_api_reply_seconds_count")
    )
