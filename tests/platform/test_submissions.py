"""Submitting, reading and listing, as a stranger does it over HTTP."""

import signal
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from functools import partial
from uuid import uuid4

import pytest

from tests.platform.installed import PRICE_MICROS, Platform
from tests.platform.people import Json, eventually, refused, told

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]


def test_a_submission_is_answered_with_where_to_find_it(platform: Platform) -> None:
    with platform.person(tier="pro") as ann:
        answer = ann.submit({"seconds": 0.2}, title="My holiday")
        body = told(answer, 202)
        assert answer.headers["location"] == f"/v1/tasks/{body['task_id']}"
        assert (body["status"], body["seq"]) == ("CREATED", 1)
        assert (body["scene"], body["lane"]) == ("rehearsal", "p1")
        assert body["reserved_micros"] == PRICE_MICROS
        assert body["remaining"]["minute"] == 599
        assert int(answer.headers["ratelimit-limit"]) == 600
        assert int(answer.headers["ratelimit-remaining"]) == 599
        assert 0 <= int(answer.headers["ratelimit-reset"]) <= 60
        task = ann.await_end(body["task_id"])
        assert (task["status"], task["title"], task["percent"]) == ("SUCCEEDED", "My holiday", 100)


def test_a_read_with_the_token_of_an_answer_is_never_older_than_it(platform: Platform) -> None:
    with platform.person() as ann:
        for _ in range(5):
            body = ann.submitted()
            answer = ann.http.get(
                f"/v1/tasks/{body['task_id']}",
                headers={"Cutlog-Consistency": body["consistency_token"]},
            )
            assert answer.status_code in {200, 202}, answer.text
            if answer.status_code == 200:
                assert answer.json()["seq"] >= body["seq"]
            else:
                assert answer.json() == {"task_id": body["task_id"], "status": "pending"}
                assert answer.headers["retry-after"] == "1"


def test_a_token_of_another_task_or_a_made_up_one_is_refused(platform: Platform) -> None:
    with platform.person() as ann:
        one, other = ann.submitted(), ann.submitted()
        wrong = [other["consistency_token"], one["consistency_token"][:-1] + "!"]
        for token in wrong:
            answer = ann.http.get(
                f"/v1/tasks/{one['task_id']}", headers={"Cutlog-Consistency": token}
            )
            refused(answer, 400, "consistency_token_invalid")


def test_the_same_key_is_the_same_task(platform: Platform) -> None:
    with platform.person() as ann:
        key = uuid4().hex
        first = ann.submitted({"seconds": 0.1}, key=key)
        assert ann.submitted({"seconds": 0.1}, key=key)["task_id"] == first["task_id"]
        ann.await_end(first["task_id"])
        again = ann.submitted({"seconds": 0.1}, key=key)
        assert (again["task_id"], again["status"]) == (first["task_id"], "SUCCEEDED")
        assert ann.quota()["day"]["used"] == 1


def test_the_same_key_asked_at_once_from_everywhere_is_one_task(platform: Platform) -> None:
    with platform.person() as ann, ThreadPoolExecutor(10) as pool:
        key = uuid4().hex
        asked = [pool.submit(ann.submitted, key=key) for _ in range(20)]
        answers = [one.result() for one in asked]
        assert len({answer["task_id"] for answer in answers}) == 1
        ann.await_end(answers[0]["task_id"])
        events = [event["event"] for event in ann.events(answers[0]["task_id"])]
        assert events.count("task.created.v1") == 1
        assert ann.await_resolved()["day"]["used"] == 1


def test_the_same_key_with_another_body_is_a_conflict(platform: Platform) -> None:
    with platform.person() as ann:
        key = uuid4().hex
        first = ann.submitted({"seconds": 0.1}, key=key)
        refused(ann.submit({"seconds": 0.2}, key=key), 409, "idempotency_conflict")
        ann.await_end(first["task_id"])
        refused(ann.submit({"seconds": 0.2}, key=key), 409, "idempotency_conflict")
        assert len(told(ann.http.get("/v1/tasks"), 200)["tasks"]) == 1


def test_the_same_key_of_somebody_else_is_another_task(platform: Platform) -> None:
    key, sub = uuid4().hex, uuid4().hex
    with (
        platform.person_of(sub) as ann,
        platform.person_of(sub, tenant="acme") as namesake,
        platform.person() as bob,
    ):
        found = {person.submitted(key=key)["task_id"] for person in (ann, namesake, bob)}
        assert len(found) == 3


def test_nobody_sees_or_touches_the_tasks_of_another(platform: Platform) -> None:
    sub = uuid4().hex
    with (
        platform.person_of(sub, tenant="acme") as ann,
        platform.person_of(sub, tenant="other") as namesake,
        platform.person_of(sub) as without_tenant,
        platform.person(tenant="acme") as colleague,
    ):
        task_id = ann.submitted({"seconds": 30})["task_id"]
        ann.await_event(task_id, "task.started.v1")
        for stranger in (namesake, without_tenant, colleague):
            http, path = stranger.http, f"/v1/tasks/{task_id}"
            for answer in (
                http.get(path),
                http.get(f"{path}/events"),
                http.get(f"{path}/wait"),
                http.get(f"{path}/result"),
                http.post(f"{path}/cancel"),
                http.post(f"{path}/retry"),
            ):
                refused(answer, 404, "task_unknown")
            assert told(http.get("/v1/tasks"), 200) == {"tasks": [], "next_cursor": None}
            assert stranger.quota()["month"]["reserved_micros"] == 0
        assert ann.task(task_id)["status"] == "RUNNING"
        told(ann.cancel(task_id), 200)


def test_a_list_goes_on_where_it_stopped_though_new_tasks_come(platform: Platform) -> None:
    with platform.person() as ann:
        made = [ann.submitted()["task_id"] for _ in range(5)]
        for task_id in made:
            ann.await_end(task_id)
        seen: list[str] = []
        page: Json = {"next_cursor": ""}
        while page["next_cursor"] is not None:
            params = {"limit": 2} | ({"cursor": page["next_cursor"]} if seen else {})
            page = told(ann.http.get("/v1/tasks", params=params), 200)
            assert len(page["tasks"]) <= 2
            seen += [task["task_id"] for task in page["tasks"]]
            ann.await_end(ann.submitted()["task_id"])  # a newer one must not move the pages
        assert seen == made[::-1]


def test_a_list_is_filtered_by_status_and_scene(platform: Platform) -> None:
    with platform.person(tier="pro") as ann:
        well = ann.submitted()["task_id"]
        badly = ann.submitted({"no_op": True, "fail": "input"})["task_id"]
        waiting = ann.submitted({"prompt": "a fox"}, scene="genai")["task_id"]
        assert ann.await_end(well)["status"] == "SUCCEEDED"
        assert ann.await_end(badly)["status"] == "FAILED"
        ann.await_event(waiting, "task.queued.v1")

        def listed(**params: str | list[str]) -> set[str]:
            tasks = told(ann.http.get("/v1/tasks", params=params), 200)["tasks"]
            return {task["task_id"] for task in tasks}

        assert listed(status="FAILED") == {badly}
        assert listed(status=["FAILED", "SUCCEEDED"]) == {well, badly}
        assert listed(scene="genai") == {waiting}
        assert listed(scene="genai", status="FAILED") == set()
        assert listed() == {well, badly, waiting}
        told(ann.cancel(waiting), 200)


def test_a_decision_that_is_late_is_pending_and_told_later(platform: Platform) -> None:
    with platform.person(tier="few") as ann:
        ann.submitted()
        names = [name for name in platform.up.names if name.startswith("processor")]
        for name in names:
            platform.up.send(name, signal.SIGSTOP)
        try:
            with ThreadPoolExecutor(2) as pool:
                taken = pool.submit(ann.submit)
                spent = pool.submit(ann.submit)
                # The client waits for many times what the api may wait for those that stand still.
                answers = [told(one.result(), 202) for one in (taken, spent)]
            assert {answer["status"] for answer in answers} == {"pending"}
            for answer in answers:
                got = ann.http.get(
                    f"/v1/tasks/{answer['task_id']}",
                    headers={"Cutlog-Consistency": answer["consistency_token"]},
                )
                assert told(got, 202)["status"] == "pending"
        finally:
            for name in names:
                platform.up.send(name, signal.SIGCONT)
            platform.restore()
        # Two submissions a day: one of the two was taken, the other refused, and both are told.
        ends: list[Json] = []
        for answer in answers:
            path = f"/v1/tasks/{answer['task_id']}"
            found = eventually(
                partial(ann.http.get, path),
                lambda found: found.json().get("status") in {"SUCCEEDED", "refused"},
            )
            ends.append(found.json())
        assert sorted(end["status"] for end in ends) == ["SUCCEEDED", "refused"]
        refusal = next(end["refusal"] for end in ends if end["status"] == "refused")
        assert (refusal["code"], refusal["status"]) == ("day_exhausted", 429)


def test_times_are_instants_in_utc(platform: Platform) -> None:
    with platform.person() as ann:
        before = datetime.now(UTC).replace(microsecond=0)
        task = ann.await_end(ann.submitted()["task_id"])
        times = [task[name] for name in ("created_at", "queued_at", "started_at", "ended_at")]
        instants = [datetime.fromisoformat(time) for time in times]
        assert instants == sorted(instants)
        assert all(instant.utcoffset() is not None for instant in instants)
        assert before <= instants[0]
        assert instants[-1] <= datetime.now(UTC)
