"""Canceling in every state, failing, and trying again by hand."""

import hashlib

import httpx
import pytest

from tests.platform.installed import PRICE_MICROS, Platform
from tests.platform.people import Person, eventually, refused, told

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]

BASE_MICROS = 100_000
CARD_SECOND_MICROS = 10_000


def used_slots(person: Person, pool_id: str) -> int:
    """How many slots of a pool are taken."""
    pools = told(person.http.get("/v1/pools"), 200)["pools"]
    used: int = next(pool["used"] for pool in pools if pool["pool_id"] == pool_id)
    return used


def test_a_task_that_waits_for_its_material_is_canceled_for_nothing(platform: Platform) -> None:
    with platform.person() as ann:
        material = ann.register(b"never uploaded", "never.mp4")
        task_id = ann.submitted(materials=[material["material_id"]])["task_id"]
        assert ann.quota()["month"]["reserved_micros"] in {0, PRICE_MICROS}
        answer = told(ann.cancel(task_id), 200)
        assert (answer["task_id"], answer["status"]) == (task_id, "CANCELED")
        task = ann.await_end(task_id)
        assert (task["status"], task["charge_micros"], task["cause"]) == ("CANCELED", 0, "user")
        assert ann.await_resolved()["month"]["spent_micros"] == 0


def test_a_task_that_waits_for_a_card_is_canceled_for_nothing(platform: Platform) -> None:
    with platform.person(tier="pro") as ann:
        task_id = ann.submitted({"prompt": "a fox"}, scene="genai")["task_id"]
        ann.await_event(task_id, "task.queued.v1")
        assert ann.task(task_id)["status"] == "QUEUED"
        assert told(ann.cancel(task_id), 200)["status"] == "CANCELED"
        assert ann.await_end(task_id)["charge_micros"] == 0
        assert ann.await_resolved("genai")["month"]["spent_micros"] == 0


def test_a_running_task_is_stopped_and_pays_for_what_ran(platform: Platform) -> None:
    with platform.person() as ann:
        task_id = ann.submitted({"seconds": 60, "steps": 600})["task_id"]
        ann.await_event(task_id, "task.started.v1")
        answer = told(ann.cancel(task_id), 200)
        assert answer["status"] == "CANCELED"
        task = ann.await_end(task_id)
        assert (task["status"], task["cause"]) == ("CANCELED", "user")
        # Half of the base, and the card time that it had.
        ran = task["charge_micros"] - BASE_MICROS // 2
        assert 0 <= ran <= 30 * CARD_SECOND_MICROS
        assert ann.await_resolved()["month"]["spent_micros"] == task["charge_micros"]
        eventually(lambda: used_slots(ann, "R"), lambda used: used == 0)


def test_canceling_twice_is_canceling_once(platform: Platform) -> None:
    with platform.person(tier="pro") as ann:
        task_id = ann.submitted({"prompt": "a fox"}, scene="genai")["task_id"]
        first = told(ann.cancel(task_id), 200)
        again = told(ann.cancel(task_id), 200)
        assert (again["status"], again["seq"]) == (first["status"], first["seq"])
        ann.await_end(task_id)
        again = told(ann.cancel(task_id), 200)
        assert (again["status"], again["seq"]) == (first["status"], first["seq"])
        events = [event["event"] for event in ann.events(task_id)]
        assert events.count("task.canceled.v1") == 1


def test_what_has_ended_is_not_canceled(platform: Platform) -> None:
    with platform.person() as ann:
        for parameters, end in (({"no_op": True}, "SUCCEEDED"), ({"fail": "input"}, "FAILED")):
            task_id = ann.submitted(parameters)["task_id"]
            assert ann.await_end(task_id)["status"] == end
            refused(ann.cancel(task_id), 409, "task_ended")
            assert ann.task(task_id)["status"] == end


def test_what_is_not_there_is_not_canceled_or_retried(platform: Platform) -> None:
    with platform.person() as ann:
        task_id = ann.submitted()["task_id"]
        other = ("0" if task_id[0] != "0" else "1") + task_id[1:]
        refused(ann.cancel(other), 404, "task_unknown")
        refused(ann.retry(other), 404, "task_unknown")


def test_a_failed_task_costs_nothing_and_succeeds_when_it_is_retried(platform: Platform) -> None:
    with platform.person() as ann:
        task_id = ann.submitted({"fail": "input", "fail_on_attempts": [1]})["task_id"]
        task = ann.await_end(task_id)
        assert (task["status"], task["failure"], task["token"]) == ("FAILED", "input", 1)
        assert task["message"]
        assert ann.await_resolved()["month"]["spent_micros"] == 0
        refused(ann.http.get(f"/v1/tasks/{task_id}/result"), 409, "result_not_ready")
        answer = told(ann.retry(task_id), 200)
        assert (answer["status"], answer["reserved_micros"]) == ("QUEUED", PRICE_MICROS)
        ann.await_event(task_id, "task.succeeded.v1")
        task = ann.await_end(task_id)
        assert (task["status"], task["token"], task["retries"]) == ("SUCCEEDED", 2, 0)
        quota = ann.await_resolved()
        assert quota["month"]["spent_micros"] == task["charge_micros"] > 0
        refused(ann.retry(task_id), 409, "task_not_failed")


def test_asking_twice_to_retry_one_failure_is_one_retry(platform: Platform) -> None:
    with platform.person() as ann:
        task_id = ann.submitted({"fail": "input", "seconds": 0.5, "fail_on_attempts": [1]})[
            "task_id"
        ]
        ann.await_end(task_id)
        answers = [ann.retry(task_id) for _ in range(2)]
        assert answers[0].status_code == 200
        assert answers[1].status_code in {200, 409}, answers[1].text
        ann.await_event(task_id, "task.succeeded.v1")
        events = [event["event"] for event in ann.events(task_id)]
        assert events.count("task.retried.v1") == 1
        assert ann.await_resolved()["month"]["spent_micros"] < PRICE_MICROS


def test_a_passing_failure_is_tried_again_by_itself(platform: Platform) -> None:
    with platform.person() as ann:
        task_id = ann.submitted({"fail": "network", "fail_on_attempts": [1]})["task_id"]
        task = ann.await_end(task_id)
        assert (task["status"], task["token"], task["retries"]) == ("SUCCEEDED", 2, 1)
        again = [event for event in ann.events(task_id) if event["event"] == "task.requeued.v1"]
        assert [(event["failure"], event["counted"]) for event in again] == [("network", True)]


def test_what_fails_each_time_fails_in_the_end_and_is_refunded(platform: Platform) -> None:
    with platform.person() as ann:
        task_id = ann.submitted({"fail": "out_of_memory"})["task_id"]
        task = ann.await_end(task_id)
        assert (task["status"], task["failure"]) == ("FAILED", "retries_spent")
        assert (task["last_failure"], task["token"], task["retries"]) == ("out_of_memory", 3, 2)
        assert ann.await_resolved()["month"]["spent_micros"] == 0


def test_a_worker_that_dies_is_a_failure_like_another(platform: Platform) -> None:
    with platform.person() as ann:
        parameters = {"seconds": 0.2, "crash": True, "fail_on_attempts": [1]}
        task = ann.await_end(ann.submitted(parameters)["task_id"])
        assert (task["status"], task["token"]) == ("SUCCEEDED", 2)


def test_a_result_is_fetched_as_it_was_made(platform: Platform) -> None:
    with platform.person() as ann:
        task_id = ann.submitted({"seconds": 0.1})["task_id"]
        task = ann.await_end(task_id)
        result = told(ann.http.get(f"/v1/tasks/{task_id}/result"), 200)
        assert [file["name"] for file in result["files"]] == ["rehearsal.json"]
        file = result["files"][0]
        fetched = httpx.get(file["url"])
        assert fetched.status_code == 200
        assert hashlib.sha256(fetched.content).hexdigest() == file["sha256"]
        assert len(fetched.content) == file["size"]
        assert fetched.json()["task_id"] == task_id
        assert [one["sha256"] for one in task["files"]] == [file["sha256"]]
