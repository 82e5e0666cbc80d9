"""The table of verdicts, held against what is decided: every failure and loss in every standing."""

from collections.abc import Callable
from itertools import product
from typing import Any

import pytest

from commands.tasks.verdicts import FAILURES, LOSSES, Budget, Remedy, Verdict, Wait
from schema import commands as c
from schema import events as e
from schema.failures import FailureClass
from schema.policy import LanePolicy, Policy, PoolPolicy
from schema.replies import DeadLetter
from schema.words import Lane, LossCause
from tests.support import task_words as w
from tests.support.spec import Outcome, Story

WITH_SPARE = Policy(
    version=1,
    scenes={},
    tiers={},
    pools={
        w.POOL: PoolPolicy(lanes={Lane.P0: LanePolicy()}, spare_pool=w.SPARE),
        w.SPARE: PoolPolicy(lanes={Lane.P0: LanePolicy()}),
    },
    retries=w.RETRIES,
)


def running(story: Story, *, lower: bool = False) -> Story:
    return story.given(w.create(lower=lower), w.start())


def again(story: Story, token: int, seconds: float) -> Story:
    """What waits has waited; the next attempt runs."""
    story.after(seconds).tick()
    return story.given(w.start(token))


def tired(story: Story) -> Story:
    """Its retries are spent with the next failure, its losses are not."""
    running(story)
    for token, seconds in ((1, 10), (2, 30)):
        again(story.given(w.fail(token, FailureClass.NETWORK)), token + 1, seconds)
    return story


def unlucky(story: Story) -> Story:
    """Its losses are spent with the next one, its retries are not."""
    running(story)
    for token in range(1, 6):
        again(story.given(w.lose(token)), token + 1, 120)
    return story


def bounced(story: Story) -> Story:
    """It made room for others again and again."""
    running(story)
    for token in range(1, 9):
        story.given(w.give_back(token), w.start(token + 1))
    return story


STANDINGS: dict[str, Callable[[Story], Story]] = {
    "running": running,
    "storing": lambda story: running(story).given(w.store()),
    "can be made with less": lambda story: running(story, lower=True),
    "was moved": lambda story: story.given(w.create(lower=True), w.move(), w.start()),
    "retries spent": tired,
    "losses spent": unlucky,
    "preempted often": bounced,
}
ENDS: tuple[FailureClass | LossCause, ...] = (*FailureClass, *LossCause)


def verdict_of(how: FailureClass | LossCause) -> Verdict:
    return FAILURES[how] if isinstance(how, FailureClass) else LOSSES[how]


def ended(story: Story, how: FailureClass | LossCause) -> Outcome:
    """The current attempt ends so."""
    token = story.row_of(w.TASK).token
    command: Any = w.fail(token, how) if isinstance(how, FailureClass) else w.lose(token, how)
    return story.when(command)


def test_the_table_is_closed() -> None:
    assert set(FAILURES) == set(FailureClass)
    assert set(LOSSES) == set(LossCause)


@pytest.mark.parametrize("policy", [w.POLICY, WITH_SPARE], ids=["alone", "with a spare pool"])
@pytest.mark.parametrize(("standing", "how"), [*product(STANDINGS, ENDS)])
def test_what_the_table_says_is_what_is_decided(
    standing: str, how: FailureClass | LossCause, policy: Policy
) -> None:
    story = STANDINGS[standing](w.world(policy))
    row, verdict = story.row_of(w.TASK), verdict_of(how)
    outcome = ended(story, how)
    letters = [one for one in outcome.decision.orders if isinstance(one, DeadLetter)]
    releases = [one for one in outcome.decision.orders if isinstance(one, c.ReleaseReservation)]
    first = outcome.events[0]
    is_final = verdict.budget is None or (verdict.final_while_storing and standing == "storing")
    spent = {
        Budget.RETRIES: standing == "retries spent",
        Budget.LOSSES: standing == "losses spent",
        Budget.PREEMPTIONS: False,
        None: False,
    }[verdict.budget]
    if is_final or spent:
        assert isinstance(first, e.TaskFailed)
        final = FailureClass.STORE if how is LossCause.BACKSTOP else how
        assert first.failure == (final if is_final else FailureClass.RETRIES_SPENT)
        assert len(releases) == 1
        assert len(letters) == (not is_final)
        return
    assert isinstance(first, e.TaskRequeued)
    assert (letters, releases) == ([], [])
    assert first.counted == (verdict.budget is Budget.RETRIES)
    spec = row.spec
    untouched = not (spec.moved or spec.lowered)
    to_spare = verdict.remedy is Remedy.SPARE_POOL and policy is WITH_SPARE and untouched
    lower = verdict.remedy is not Remedy.NONE and not to_spare
    assert first.lower_spec == (lower and spec.can_lower and not spec.lowered)
    delays = {
        Wait.NONE: 0,
        Wait.STEPS: w.RETRIES.delays_ms[min(row.course.retries, 1)],
        Wait.REPAIR: w.RETRIES.loss_delay_ms,
    }
    assert first.delay_ms == (0 if to_spare else delays[verdict.wait])
    kinds = [type(event) for event in outcome.events[1:]]
    assert kinds == [e.TaskQueued] * (first.delay_ms == 0) + [e.TaskMoved] * to_spare
    after = story.row_of(w.TASK).course
    assert after.retries == row.course.retries + (verdict.budget is Budget.RETRIES)
    assert after.losses == row.course.losses + (verdict.budget is Budget.LOSSES)
    assert after.preemptions == row.course.preemptions + (verdict.budget is Budget.PREEMPTIONS)
