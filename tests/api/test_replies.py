"""Answers: who waits for which, one append for the same command, and back-pressure that lets go."""

from datetime import UTC, datetime

import pytest

from api.problems import Problem
from api.replies import Answers
from schema.ids import CommandId
from schema.replies import Accepted
from schema.wires.log import LogUnavailableError, Place

PLACE = Place("submissions.p1", 0)
ELSEWHERE = Place("submissions.p0", 0)


class Clock:
    """Moved by hand."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    """A clock that stands."""
    return Clock()


@pytest.fixture
def answers(clock: Clock) -> Answers:
    """At most 3 unanswered, none older than 5 s."""
    return Answers(unanswered_max=3, unanswered_seconds_max=5, join_seconds=2, clock=clock)


def _reply(name: str) -> Accepted:
    return Accepted(command_id=CommandId(name), key="", at=datetime.now(UTC), seq=1)


def _ask(answers: Answers, name: str, place: Place = PLACE) -> None:
    answers.leave(answers.expect(CommandId(name), place))


async def test_everyone_who_asked_for_the_same_is_answered(answers: Answers) -> None:
    first = answers.expect(CommandId("a"), PLACE, "body")
    second = answers.expect(CommandId("a"), PLACE, "body")
    assert (first.first, second.first) == (True, False)
    answers.answer(_reply("a"))
    assert await first.future is await second.future


async def test_after_the_time_of_an_answer_the_same_command_is_appended_again(
    answers: Answers, clock: Clock
) -> None:
    _ask(answers, "a")
    clock.now += 3
    assert answers.expect(CommandId("a"), PLACE).first


async def test_the_same_command_with_another_body_waits_for_the_first(answers: Answers) -> None:
    first = answers.expect(CommandId("a"), PLACE, "one body")
    assert answers.rival(CommandId("a"), "one body") is None
    rival = answers.rival(CommandId("a"), "another")
    assert rival is not None
    answers.answer(_reply("a"))
    assert (await rival.future).command_id == (await first.future).command_id
    assert answers.rival(CommandId("a"), "another") is None


async def test_who_joined_hears_that_the_append_failed(answers: Answers) -> None:
    first = answers.expect(CommandId("a"), PLACE)
    second = answers.expect(CommandId("a"), PLACE)
    answers.forget(first, LogUnavailableError("away", in_doubt=True))
    with pytest.raises(LogUnavailableError):
        await second.future
    assert answers.unanswered()[PLACE][0] == 0
    assert answers.expect(CommandId("a"), PLACE).first


async def test_too_many_unanswered_close_the_door_of_their_partition_only(
    answers: Answers,
) -> None:
    for n in range(4):
        answers.check(PLACE)
        _ask(answers, f"a{n}")
    answers.check(PLACE)  # one in five seconds goes through, to find out
    with pytest.raises(Problem) as refused:
        answers.check(PLACE)
    assert (refused.value.status, refused.value.code) == (503, "backlog")
    assert refused.value.retry_after is not None
    answers.check(ELSEWHERE)


async def test_an_answer_that_is_too_late_closes_the_door_until_answers_flow_again(
    answers: Answers, clock: Clock
) -> None:
    _ask(answers, "lost")
    clock.now += 6
    answers.check(PLACE)
    _ask(answers, "probe")
    with pytest.raises(Problem):
        answers.check(PLACE)
    clock.now += 0.1
    answers.answer(_reply("probe"))
    answers.check(PLACE)
    answers.check(PLACE)
    assert answers.unanswered()[PLACE][0] == 0, "a partition answers in order: the old one is lost"


async def test_a_late_answer_is_taken_too(answers: Answers, clock: Clock) -> None:
    _ask(answers, "late")
    clock.now += 4
    assert answers.answer(_reply("late")) == pytest.approx(4)
    assert answers.answer(_reply("late")) is None


async def test_an_answer_to_nobody_is_nothing(answers: Answers) -> None:
    assert answers.answer(_reply("of another instance")) is None


async def test_nothing_is_kept_of_what_was_answered(answers: Answers, clock: Clock) -> None:
    for n in range(100):
        claim = answers.expect(CommandId(f"c{n}"), PLACE)
        answers.answer(_reply(f"c{n}"))
        assert claim.future.done()
        answers.leave(claim)
        clock.now += 1
    assert answers.unanswered()[PLACE] == (0, 0.0)


async def test_what_was_asked_is_under_way_until_it_is_answered(answers: Answers) -> None:
    """Also after its request gave up: only its answer ends it."""
    command = CommandId("a")
    assert not answers.is_under_way(command)
    _ask(answers, "a")
    assert answers.is_under_way(command)
    answers.answer(_reply("a"))
    assert not answers.is_under_way(command)
