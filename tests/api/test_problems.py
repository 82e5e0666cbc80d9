"""Problems: every refusal has a status, words, and tells nothing of what is another's."""

from datetime import UTC, datetime, timedelta

import pytest

from api.consistency import BadConsistencyTokenError, ConsistencyTokens
from api.problems import Door, at_the_door, refusal, status_of, words_of
from schema.ids import TaskId
from schema.refusals import Refusal


@pytest.mark.parametrize("reason", list(Refusal))
def test_every_refusal_has_a_status_and_says_what_to_do(reason: Refusal) -> None:
    assert 400 <= status_of(reason) < 600
    title, help_ = words_of(reason)
    assert title
    assert help_.endswith(".")


@pytest.mark.parametrize("reason", list(Refusal))
def test_what_may_succeed_later_says_when_to_come_back(reason: Refusal) -> None:
    problem = refusal(reason)
    assert (problem.status in {429, 503}) == (problem.retry_after is not None)
    if problem.status in {429, 503}:
        assert reason.transient


@pytest.mark.parametrize("door", list(Door))
def test_every_code_of_the_door_has_a_status_and_says_what_to_do(door: Door) -> None:
    problem = at_the_door(door)
    assert problem.document()["code"] == door
    assert problem.help.endswith(".")
    assert (door.status == 503) <= (problem.retry_after is not None)


def test_codes_of_the_door_are_not_those_of_the_deciders() -> None:
    assert {door.value for door in Door} & {reason.value for reason in Refusal} == {"internal"}


def test_anothers_task_looks_like_none() -> None:
    assert (
        refusal(Refusal.NOT_YOURS, detail="of bob").document()
        == refusal(Refusal.TASK_UNKNOWN).document()
    )


def test_retry_after_is_the_time_until_the_limit_resets() -> None:
    now = datetime.now(UTC)
    problem = refusal(Refusal.RATE_EXCEEDED, now=now, resets_at=now + timedelta(seconds=12.2))
    assert problem.all_headers()["retry-after"] == "13"


def test_a_consistency_token_is_bound_to_its_task_and_number() -> None:
    tokens = ConsistencyTokens("a secret")
    task = TaskId("0" * 32)
    token = tokens.sign(task, 7)
    assert tokens.read(token) == (task, 7)
    forged = [
        token.replace(".7.", ".8."),
        token.replace("0" * 32, "1" * 32),
        token[:-1],
        token + "x",
        "",
        "..",
        "a.b.c",
        token.replace(".7.", ".\u0667."),
        ConsistencyTokens("another").sign(task, 7),
    ]
    for wrong in forged:
        with pytest.raises(BadConsistencyTokenError):
            tokens.read(wrong)
