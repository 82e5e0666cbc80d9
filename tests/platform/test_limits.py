"""Quotas at the door: what is refused, with what is left and when it is worth asking again."""

from datetime import datetime
from email.utils import parsedate_to_datetime
from uuid import uuid4

import httpx
import pytest

from tests.platform.installed import PRICE_MICROS, Platform
from tests.platform.people import Json, Person, eventually, refused, told

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]


def over(answer: httpx.Response, code: str) -> Json:
    """A 429 of that code, with everything that it must tell."""
    problem = refused(answer, 429, code)
    resets_at = datetime.fromisoformat(problem["resets_at"])
    left = (resets_at - parsedate_to_datetime(answer.headers["date"])).total_seconds()
    assert int(answer.headers["retry-after"]) == problem["retry_after_seconds"]
    assert abs(problem["retry_after_seconds"] - max(1, left)) < 5
    return problem


def with_remaining(answer: httpx.Response, code: str) -> Json:
    """The same for a refusal of the decider, which also says what is left."""
    problem = over(answer, code)
    remaining = problem["remaining"]
    assert int(answer.headers["ratelimit-remaining"]) == min(remaining["minute"], remaining["day"])
    assert int(answer.headers["ratelimit-reset"]) >= 0
    return problem


def accounts(person: Person) -> str:
    """The account that a person's tasks are paid by."""
    found: str = told(person.http.get("/v1/quotas"), 200)["account_id"]
    return found


def test_too_many_in_a_minute_are_refused_until_it_is_over(platform: Platform) -> None:
    with platform.person(tier="brisk") as ann:
        # Two a minute: of five, at least one is refused, even when a minute ends in between.
        answers = [ann.submit() for _ in range(5)]
        assert [answer.status_code for answer in answers[:2]] == [202, 202]
        refusals = [answer for answer in answers if answer.status_code != 202]
        assert refusals
        for answer in refusals:
            problem = over(answer, "rate_exceeded")
            assert problem["retry_after_seconds"] <= 60


def test_the_submissions_of_a_day_end(platform: Platform) -> None:
    with platform.person(tier="few") as ann:
        keys = [uuid4().hex for _ in range(3)]
        remaining = [ann.submitted(key=key)["remaining"]["day"] for key in keys[:2]]
        assert remaining == [1, 0]
        problem = with_remaining(ann.submit(key=keys[2]), "day_exhausted")
        assert problem["remaining"]["day"] == 0
        midnight = datetime.fromisoformat(problem["resets_at"])
        assert (midnight.hour, midnight.minute, midnight.second) == (0, 0, 0)
        # What was granted is answered all the same, and refused is not remembered as granted.
        ann.submitted(key=keys[0])
        with_remaining(ann.submit(key=keys[2]), "day_exhausted")
        quota = eventually(ann.quota, lambda quota: quota["day"]["used"] == 2)
        assert quota["day"] == {
            "limit": 2,
            "used": 2,
            "remaining": 0,
            "resets_at": quota["day"]["resets_at"],
        }


def test_credits_end_and_a_top_up_lets_the_same_key_in(platform: Platform) -> None:
    with platform.person(tier="scarce") as ann, platform.operator() as operator:
        held = [ann.submitted({"seconds": 60})["task_id"] for _ in range(2)]
        key = uuid4().hex
        problem = with_remaining(ann.submit(key=key), "quota_exhausted")
        assert problem["remaining"]["credits_micros"] == PRICE_MICROS // 2
        first = datetime.fromisoformat(problem["resets_at"])
        assert (first.day, first.hour) == (1, 0)
        quota = eventually(
            ann.quota, lambda quota: quota["month"]["reserved_micros"] == 2 * PRICE_MICROS
        )
        assert quota["month"]["remaining_micros"] == PRICE_MICROS // 2
        account_id = accounts(ann)
        top_up = {
            "account_id": account_id,
            "user_id": account_id.removeprefix("u-"),
            "scene": "rehearsal",
            "amount_micros": PRICE_MICROS,
            "why": "a test",
        }
        done = operator.http.post(
            "/v1/operator/top-up", json=top_up, headers={"Idempotency-Key": key}
        )
        assert told(done, 200) == {"status": "done"}
        again = operator.http.post(
            "/v1/operator/top-up", json=top_up, headers={"Idempotency-Key": key}
        )
        assert told(again, 200) == {"status": "done"}
        ann.await_end(ann.submitted(key=key)["task_id"])
        for task_id in held:
            ann.await_event(task_id, "task.started.v1")
            told(ann.cancel(task_id), 200)
        month = ann.await_resolved()["month"]
        assert month["topped_up_micros"] == PRICE_MICROS
        assert month["limit_micros"] == 3_500_000
        charges = [task["charge_micros"] for task in told(ann.http.get("/v1/tasks"), 200)["tasks"]]
        assert month["spent_micros"] == sum(charges)


def test_a_contract_is_shared_by_everyone_of_a_tenant(platform: Platform) -> None:
    with (
        platform.person("ann", tenant="small") as ann,
        platform.person("bob", tenant="small") as bob,
        platform.person("eve", tenant="acme") as eve,
        platform.operator() as operator,
    ):
        held = [person.submitted({"seconds": 60})["task_id"] for person in (ann, bob)]
        problem = with_remaining(bob.submit(), "contract_exhausted")
        assert problem["remaining"]["contract_micros"] == 0
        eve.submitted()
        quota = eventually(
            bob.quota, lambda quota: quota["contract"]["reserved_micros"] == 2 * PRICE_MICROS
        )
        assert quota["month"]["reserved_micros"] == PRICE_MICROS
        assert quota["contract"]["remaining_micros"] == 0
        body = {
            "account_id": "t-small",
            "scene": "rehearsal",
            "amount_micros": PRICE_MICROS,
            "why": "a test",
        }
        told(operator.http.post("/v1/operator/top-up", json=body), 200)
        bob.submitted()
        for person, task_id in zip((ann, bob), held, strict=True):
            told(person.cancel(task_id), 200)


def test_a_retry_needs_quota_like_a_submission(platform: Platform) -> None:
    with platform.person(tier="few") as ann:
        failed = [ann.submitted({"no_op": True, "fail": "input"})["task_id"] for _ in range(2)]
        for task_id in failed:
            ann.await_end(task_id)
        ann.await_resolved()
        problem = with_remaining(ann.retry(failed[0]), "day_exhausted")
        assert problem["remaining"]["day"] == 0
        assert ann.task(failed[0])["status"] == "FAILED"


def test_a_scene_or_a_tier_that_is_not_offered_is_refused(platform: Platform) -> None:
    with platform.person(tier="few") as ann, platform.person(tier="gold") as bob:
        refused(ann.submit({"prompt": "a fox"}, scene="genai"), 403, "scene_not_offered")
        refused(bob.submit(), 403, "tier_unknown")


def test_quota_is_charged_once_and_not_beyond_what_was_reserved(platform: Platform) -> None:
    with platform.person() as ann:
        before = ann.quota()
        task = ann.await_end(ann.submitted({"seconds": 1})["task_id"])
        after = ann.await_resolved()
        assert 0 < task["charge_micros"] <= task["reserved_micros"]
        spent = after["month"]["spent_micros"] - before["month"]["spent_micros"]
        assert spent == task["charge_micros"]
        assert after["day"]["used"] - before["day"]["used"] == 1
