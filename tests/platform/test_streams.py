"""Streams of events: whoever comes back misses nothing and hears nothing twice."""

import pytest

from tests.platform.installed import Platform
from tests.platform.people import Event, Person, Watcher, told

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]


def path_of(task_id: str) -> str:
    return f"/v1/tasks/{task_id}/events"


def ids(events: list[Event]) -> list[str]:
    return [event.id for event in events if event.id]


def life(person: Person, seconds: float = 0.4) -> tuple[str, list[Event]]:
    """A task that has ended, and what its stream tells from the beginning."""
    task_id = person.submitted({"seconds": seconds, "steps": 20, "reports": 20})["task_id"]
    person.await_end(task_id)
    return task_id, person.heard(path_of(task_id))


def test_a_stream_tells_a_task_from_its_beginning_to_its_end_and_closes(platform: Platform) -> None:
    with platform.person() as ann:
        task_id = ann.submitted({"seconds": 1.5, "steps": 20, "reports": 20})["task_id"]
        with ann.stream(path_of(task_id)) as stream:
            assert stream.status == 200
            assert stream.answer.headers["content-type"].startswith("text/event-stream")
            events = list(stream.events())
        stored = [event for event in events if event.id]
        assert [event.data["seq"] for event in stored] == list(range(1, len(stored) + 1))
        assert [event.name for event in stored][:3] == [
            "task.created.v1",
            "task.queued.v1",
            "task.started.v1",
        ]
        assert stored[-1].name == "task.succeeded.v1"
        assert events[-1] is stored[-1] or events[-1] == stored[-1]
        assert len(set(ids(events))) == len(stored)
        between = [event.data["percent"] for event in events if event.name == "progress"]
        assert between == sorted(between)
        assert all(event.data["task_id"] == task_id for event in events)


def test_whoever_comes_back_after_any_event_hears_the_rest_once(platform: Platform) -> None:
    with platform.person() as ann:
        task_id, events = life(ann)
        whole = ids(events)
        assert len(whole) >= 6
        for number, last in enumerate(whole[:-1]):
            again = ann.heard(path_of(task_id), last)
            assert ids(again) == whole[number + 1 :]
            assert [event.name for event in again if event.name == "snapshot"] == []
        with ann.stream(path_of(task_id), whole[-1]) as stream:
            assert stream.status == 204


def test_whoever_comes_in_after_any_event_of_a_running_task_hears_the_rest_once(
    platform: Platform,
) -> None:
    with platform.person() as ann:
        task_id = ann.submitted({"seconds": 5, "steps": 20, "reports": 20})["task_id"]
        watchers: list[tuple[str, Watcher]] = []
        whole: list[str] = []
        with ann.stream(path_of(task_id)) as stream:
            for event in stream.events():
                if event.id:
                    whole.append(event.id)
                    watchers.append((event.id, Watcher(ann, path_of(task_id), event.id)))
        assert len(whole) >= 8
        for number, (last, watcher) in enumerate(watchers):
            assert ids(watcher.result()) == whole[number + 1 :], f"after {last}"
            assert watcher.snapshots == []


def test_a_stream_that_is_left_in_the_middle_goes_on_where_it_was(platform: Platform) -> None:
    with platform.person() as ann:
        task_id = ann.submitted({"seconds": 3, "steps": 20, "reports": 20})["task_id"]
        told_ids: list[str] = []
        while True:
            with ann.stream(path_of(task_id), told_ids[-1] if told_ids else None) as stream:
                if stream.status == 204:
                    break
                event = next(stream.stored())  # one event a connection
                told_ids.append(event.id)
        assert told_ids == ids(ann.heard(path_of(task_id)))


@pytest.mark.parametrize(
    "last",
    ["00000000:0:0", "ffffffff:1:12", "nonsense", "1:2:3", "epoch:0:999999999"],
)
def test_a_cursor_that_leads_nowhere_is_answered_with_one_snapshot(
    platform: Platform, last: str
) -> None:
    with platform.person() as ann:
        task_id, events = life(ann, 0.1)
        epoch = events[0].id.split(":")[0]
        again = ann.heard(path_of(task_id), last.replace("epoch", epoch))
        assert [(event.id, event.name) for event in again] == [("", "snapshot")]
        (shown,) = again[0].data["tasks"]
        assert (shown["task_id"], shown["status"]) == (task_id, "SUCCEEDED")


def test_a_snapshot_of_a_running_task_is_followed_by_what_comes(platform: Platform) -> None:
    with platform.person() as ann:
        task_id = ann.submitted({"seconds": 2.5})["task_id"]
        ann.await_event(task_id, "task.started.v1")
        again = list(ann.heard(path_of(task_id), "nonsense"))
        assert again[0].name == "snapshot"
        assert again[0].data["tasks"][0]["status"] == "RUNNING"
        later = ids(again)
        assert later == ids(ann.heard(path_of(task_id)))[-len(later) :]
        assert [event.name for event in again].count("snapshot") == 1


def test_the_cursor_of_another_user_tells_nothing_of_him(platform: Platform) -> None:
    with platform.person() as ann, platform.person() as bob:
        _, of_ann = life(ann, 0.1)
        task_of_bob, _ = life(bob, 0.1)
        again = bob.heard(path_of(task_of_bob), of_ann[0].id)
        assert [event.name for event in again] == ["snapshot"]
        assert {task["task_id"] for task in again[0].data["tasks"]} == {task_of_bob}


def until_id(person: Person, last: str | None, end: str) -> list[Event]:
    """What the user's stream tells after a cursor, up to the event with that id."""
    found: list[Event] = []
    with person.stream("/v1/events", last) as stream:
        assert stream.status == 200
        for event in stream.events():
            if event.id or event.name == "snapshot":
                found.append(event)
            if event.id == end:
                return found
    raise AssertionError("a user's stream never ends by itself")


def test_the_stream_of_a_user_tells_all_of_his_tasks_after_any_event(platform: Platform) -> None:
    with platform.person() as ann, platform.person() as bob:
        whole: list[str] = []
        with ann.stream("/v1/events") as stream:
            tasks = [ann.submitted({"seconds": seconds})["task_id"] for seconds in (0.6, 0.3)]
            life(bob, 0.1)
            ends = 0
            for event in stream.stored():
                assert event.data["task_id"] in tasks
                whole.append(event.id)
                ends += event.name == "task.succeeded.v1"
                if ends == len(tasks):
                    break
        assert len(set(whole)) == len(whole)
        for task_id in tasks:
            assert set(ids(ann.heard(path_of(task_id)))) <= set(whole)
        # One more, so that there is something to wait for after the last one too.
        last_task = ann.submitted()["task_id"]
        ann.await_end(last_task)
        whole += ids(ann.heard(path_of(last_task)))
        for number, last in enumerate(whole[:-1]):
            assert ids(until_id(ann, last, whole[-1])) == whole[number + 1 :]


def test_the_stream_of_a_user_begins_with_a_snapshot_after_a_cursor_of_nowhere(
    platform: Platform,
) -> None:
    with platform.person() as ann:
        task_id, _ = life(ann, 0.1)
        with ann.stream("/v1/events", "00000000:0:0") as stream:
            events = stream.events()
            snapshot = next(events)
            assert (snapshot.id, snapshot.name) == ("", "snapshot")
            assert [task["task_id"] for task in snapshot.data["tasks"]] == [task_id]
            new = ann.submitted()["task_id"]
            first = next(event for event in events if event.id)
            assert (first.data["task_id"], first.data["seq"]) == (new, 1)


def test_the_long_poll_tells_what_the_stream_tells(platform: Platform) -> None:
    with platform.person() as ann:
        task_id = ann.submitted({"seconds": 1.0})["task_id"]
        polled: list[str] = []
        after = 0
        while True:
            answer = ann.wait(task_id, after)
            assert answer["complete"]
            polled += [event["id"] for event in answer["events"]]
            after = answer["events"][-1]["seq"] if answer["events"] else after
            if answer["ended"]:
                break
        assert answer["task"]["status"] == "SUCCEEDED"
        assert polled == ids(ann.heard(path_of(task_id)))
        assert told(ann.http.get(f"/v1/tasks/{task_id}/wait?after={after}"), 200)["events"] == []


def test_a_stream_with_the_token_of_a_retry_does_not_end_before_it(platform: Platform) -> None:
    with platform.person() as ann:
        for _ in range(3):
            parameters = {"no_op": True, "fail": "input", "fail_on_attempts": [1]}
            task_id = ann.submitted(parameters)["task_id"]
            assert ann.await_end(task_id)["status"] == "FAILED"
            token = told(ann.retry(task_id), 200)["consistency_token"]
            events = ann.heard(f"{path_of(task_id)}?consistency={token}")
            names = [event.name for event in events if event.id]
            assert names[-1] == "task.succeeded.v1"
            assert names.count("task.failed.v1") == names.count("task.retried.v1") == 1
