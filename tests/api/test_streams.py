"""Streams and long polls against the whole product: each stored event once, in order."""

import itertools
import signal
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager
from datetime import datetime
from uuid import uuid4

import httpx
import pytest

from api.progress import WAIT_SECONDS
from tests.api.system import Caller, Seen, System, parse, stored

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]


def _ids(seen: list[Seen]) -> list[str]:
    return [event.id for event in stored(seen)]


def _life_of_a_success(ann: Caller) -> str:
    task_id = ann.submit(seconds=0.5, steps=20)
    ann.until(task_id, "SUCCEEDED")
    return task_id


def _life_of_a_retry(ann: Caller) -> str:
    task_id = ann.submit(fail="input", fail_on_attempts=[1])
    seq = ann.until(task_id, "FAILED")["seq"]
    headers = {"Cutlog-Consistency": ann.system.token(task_id, seq)}
    answer = ann.http.post(f"/v1/tasks/{task_id}/retry", headers=headers)
    assert answer.status_code == 200, answer.text
    ann.until(task_id, "SUCCEEDED", seq=answer.json()["seq"])
    return task_id


def _life_of_a_cancel(ann: Caller) -> str:
    task_id = ann.submit(seconds=60)
    ann.until(task_id, "RUNNING")
    answer = ann.http.post(f"/v1/tasks/{task_id}/cancel")
    ann.get(task_id, answer.json()["seq"])
    return task_id


def _life_of_losses(ann: Caller) -> str:
    task_id = ann.submit(crash=True, fail_on_attempts=[1, 2])
    ann.until(task_id, "SUCCEEDED")
    return task_id


LIVES = {
    "success": _life_of_a_success,
    "retry": _life_of_a_retry,
    "cancel": _life_of_a_cancel,
    "losses": _life_of_losses,
}


@pytest.mark.parametrize("life", LIVES)
def test_from_every_position_of_a_life_each_stored_event_comes_once_in_order(
    ann: Caller, life: str
) -> None:
    task_id = LIVES[life](ann)
    path = f"/v1/tasks/{task_id}/events"
    whole = stored(ann.stream(path))
    assert [event.data["seq"] for event in whole] == list(range(1, len(whole) + 1))
    assert whole[0].name == "task.created.v1"
    assert ann.get(task_id)["status"] == whole[-1].data["status"]
    for position, event in enumerate(whole[:-1]):
        rest = ann.stream(path, event.id)
        assert stored(rest) == whole[position + 1 :]
        assert rest == stored(rest), "of what is over there is no progress and no snapshot"
    assert ann.status_of_stream(path, whole[-1].id) == 204


def test_a_stream_opened_right_after_a_retry_does_not_end_with_the_failure(ann: Caller) -> None:
    task_id = ann.submit(fail="input", fail_on_attempts=[1])
    seq = ann.until(task_id, "FAILED")["seq"]
    path = f"/v1/tasks/{task_id}/events"
    failed = stored(ann.stream(path))[-1]
    assert failed.name == "task.failed.v1"
    headers = {"Cutlog-Consistency": ann.system.token(task_id, seq)}
    answer = ann.http.post(f"/v1/tasks/{task_id}/retry", headers=headers).json()
    token = answer["consistency_token"]
    after = stored(ann.stream(f"{path}?consistency={token}", failed.id))
    assert [event.data["seq"] for event in after] == list(
        range(failed.data["seq"] + 1, failed.data["seq"] + 1 + len(after))
    )
    assert after[-1].name == "task.succeeded.v1"


def test_coming_back_at_every_event_while_it_runs_gives_each_once(ann: Caller) -> None:
    task_id = ann.submit(seconds=4, steps=40, reports=40)
    path = f"/v1/tasks/{task_id}/events"
    pieces: list[Seen] = []
    while True:
        last = pieces[-1].id if pieces else None
        piece = stored(ann.stream(path, last, stored_max=1))
        if not piece:
            break
        pieces += piece
    assert pieces == stored(ann.stream(path))
    assert pieces[-1].name == "task.succeeded.v1"


def test_a_stream_held_from_the_beginning_hears_everything_live(ann: Caller) -> None:
    key = uuid4().hex
    task_id = ann.submit(key, seconds=4, steps=160, reports=160)
    seen = ann.stream(f"/v1/tasks/{task_id}/events")
    assert [event.data["seq"] for event in stored(seen)] == list(range(1, len(stored(seen)) + 1))
    assert seen[-1].name == "task.succeeded.v1", "the stream closes with the task"
    between = [event for event in seen if event.name == "progress"]
    assert between
    assert all(event.id == "" for event in between)
    told_at = sorted({datetime.fromisoformat(event.data["at"]) for event in between})
    apart = [(later - at).total_seconds() for at, later in itertools.pairwise(told_at)]
    assert all(seconds >= 0.5 for seconds in apart), f"about one a second and user: {apart}"
    assert {event.name for event in seen if not event.id} == {"progress"}


@pytest.mark.parametrize(
    "cursor",
    ["00000000:0:0", "nonsense", "ffffffff:1:999999999999", "deadbeef:77:1", "::", "0:0:0:0"],
)
def test_a_cursor_that_leads_nowhere_gets_one_snapshot(ann: Caller, cursor: str) -> None:
    task_id = ann.submit(no_op=True)
    ann.until(task_id, "SUCCEEDED")
    seen = ann.stream(f"/v1/tasks/{task_id}/events", cursor)
    assert [event.name for event in seen] == ["snapshot"]
    assert seen[0].id == ""
    assert seen[0].data["tasks"] == [ann.get(task_id)]


def test_a_cursor_of_this_log_that_is_no_event_of_mine_gets_a_snapshot(
    ann: Caller, bob: Caller
) -> None:
    mine, theirs = ann.submit(no_op=True), bob.submit(no_op=True)
    ann.until(mine, "SUCCEEDED")
    bob.until(theirs, "SUCCEEDED")
    foreign = _ids(bob.stream(f"/v1/tasks/{theirs}/events"))[0]
    seen = ann.stream(f"/v1/tasks/{mine}/events", foreign)
    assert [event.name for event in seen] == ["snapshot"]
    epoch, partition, _ = foreign.split(":")
    seen = ann.stream(f"/v1/tasks/{mine}/events", f"{epoch}:{partition}:999999999")
    assert [event.name for event in seen] == ["snapshot"]


def test_after_a_snapshot_of_a_running_task_comes_what_follows_and_nothing_twice(
    ann: Caller,
) -> None:
    task_id = ann.submit(seconds=3, steps=30)
    ann.until(task_id, "RUNNING")
    path = f"/v1/tasks/{task_id}/events"
    seen = [event for event in ann.stream(path, "nonsense") if event.name != "progress"]
    assert seen[0].name == "snapshot"
    assert seen[0].data["tasks"][0]["status"] == "RUNNING"
    whole = stored(ann.stream(path))
    followed = seen[1:]
    assert followed
    assert followed == whole[-len(followed) :]
    first_seq = followed[0].data["seq"]
    assert first_seq > seen[0].data["tasks"][0]["seq"]


def test_the_stream_of_a_user_tells_of_all_tasks_from_any_position(ann: Caller) -> None:
    first = ann.submit(no_op=True)
    ann.until(first, "SUCCEEDED")
    begin = _ids(ann.stream(f"/v1/tasks/{first}/events"))[0]
    others = [ann.submit(no_op=True) for _ in range(3)]
    for task_id in others:
        ann.until(task_id, "SUCCEEDED")
    streams = [stored(ann.stream(f"/v1/tasks/{task_id}/events")) for task_id in [first, *others]]
    expected = sorted(itertools.chain(*streams), key=_offset)[1:]
    whole = ann.stream("/v1/events", begin, stored_max=len(expected))
    assert stored(whole) == expected
    for position in range(0, len(expected) - 1, 3):
        left = len(expected) - position - 1
        rest = ann.stream("/v1/events", expected[position].id, stored_max=left)
        assert stored(rest) == expected[position + 1 :]


def test_the_stream_of_a_user_begins_now_and_hears_what_comes(ann: Caller) -> None:
    old = ann.submit(no_op=True)
    ann.until(old, "SUCCEEDED")
    seen: list[Seen] = []
    opened = threading.Event()

    def listen() -> None:
        with ann.http.stream("GET", "/v1/events") as answer:
            lines = answer.iter_lines()
            next(lines)
            opened.set()
            for event in parse(lines):
                seen.append(event)
                if event.name == "task.succeeded.v1":
                    return

    listener = threading.Thread(target=listen)
    listener.start()
    assert opened.wait(60)
    new = ann.submit(seconds=1, steps=10)
    listener.join(60)
    assert not listener.is_alive()
    assert {event.data["task_id"] for event in seen} == {new}
    numbers = [event.data["seq"] for event in stored(seen)]
    assert numbers == list(range(1, len(numbers) + 1))


def _offset(event: Seen) -> int:
    return int(event.id.rsplit(":", 1)[1])


# --- the long poll ------------------------------------------------------------------------------


def test_the_long_poll_tells_what_the_stream_tells(ann: Caller) -> None:
    task_id = ann.submit(seconds=2, steps=20)
    told: list[Seen] = []
    while True:
        after = told[-1].data["seq"] if told else 0
        found = ann.http.get(f"/v1/tasks/{task_id}/wait", params={"after": after}).json()
        assert found["complete"]
        told += [Seen(event.pop("id"), event["event"], event) for event in found["events"]]
        if found["ended"]:
            break
    assert told == stored(ann.stream(f"/v1/tasks/{task_id}/events"))
    assert found["task"]["status"] == "SUCCEEDED"


def test_the_long_poll_answers_as_soon_as_something_happens(ann: Caller) -> None:
    answer = ann.post({"scene": "genai", "prompt": "nobody serves this pool"})
    task_id = answer.json()["task_id"]
    seq = ann.until(task_id, "QUEUED")["seq"]
    timer = threading.Timer(1.5, ann.http.post, (f"/v1/tasks/{task_id}/cancel",))
    with before_the_poll_ends():
        timer.start()
        found = ann.http.get(f"/v1/tasks/{task_id}/wait", params={"after": seq}).json()
    timer.join()
    assert [event["event"] for event in found["events"]] == ["task.canceled.v1"]
    assert found["ended"]


@contextmanager
def before_the_poll_ends() -> Generator[None]:
    """What is awaited inside has come before a poll that nothing happens to would have ended."""
    began = time.monotonic()
    yield
    assert time.monotonic() - began < WAIT_SECONDS


def test_a_long_poll_of_what_is_over_answers_at_once(ann: Caller) -> None:
    task_id = ann.submit(no_op=True)
    seq = ann.until(task_id, "SUCCEEDED")["seq"]
    with before_the_poll_ends():
        found = ann.http.get(f"/v1/tasks/{task_id}/wait", params={"after": seq}).json()
    assert (found["events"], found["ended"]) == ([], True)


# --- when parts fail ----------------------------------------------------------------------------


def test_a_stream_goes_on_without_redis_and_when_it_is_back(ann: Caller, system: System) -> None:
    task_id = ann.submit(seconds=6, steps=60)
    ann.until(task_id, "RUNNING")
    stack = system.installation.stack
    seen: list[Seen] = []
    for event in ann.follow(f"/v1/tasks/{task_id}/events"):
        seen.append(event)
        if event.name == "task.progressed.v1" and event.data["percent"] == 10:
            stack.kill("valkey")
        if event.name == "task.progressed.v1" and event.data["percent"] == 60:
            stack.restart("valkey")
    assert [event.data["seq"] for event in stored(seen)] == list(range(1, len(stored(seen)) + 1))
    assert seen[-1].name == "task.succeeded.v1"
    live = ann.submit(seconds=1, steps=10)
    assert ann.stream(f"/v1/tasks/{live}/events")[-1].name == "task.succeeded.v1"


def test_a_stream_cut_by_a_killed_api_is_taken_up_where_it_stopped(
    ann: Caller, system: System
) -> None:
    task_id = ann.submit(seconds=8, steps=80)
    path = f"/v1/tasks/{task_id}/events"
    seen: list[Seen] = []
    kills = {10: signal.SIGKILL, 60: signal.SIGTERM}
    while not seen or seen[-1].name != "task.succeeded.v1":
        try:
            for event in ann.follow(path, seen[-1].id if seen else None):
                if event.id:
                    seen.append(event)
                percent = event.data.get("percent")
                if event.name == "task.progressed.v1" and percent in kills:
                    system.up.send("api", kills.pop(percent))
        except httpx.TransportError:
            system.up.await_ready(60)
        else:
            system.up.await_ready(60)
    assert not kills
    assert [event.data["seq"] for event in seen] == list(range(1, len(seen) + 1))
    assert stored(ann.stream(path)) == seen
