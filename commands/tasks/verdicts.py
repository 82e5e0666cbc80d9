"""What becomes of a task whose attempt ended otherwise than well: a closed table, as data.

`losing` reads it and knows no class and no cause by name; a test holds it against what is decided
for every pair of a verdict and a state of the task. Durations and numbers are the policy's
(`RetryPolicy`): again after 10 s and 30 s, then spent; 120 s after a loss, five of them at most.

Three budgets, each with its reason:

- *retries*: the work itself went wrong, so doing it again often is waste. Spent: FAILED, a refund,
  a dead letter, an alert.
- *losses*: nothing is wrong with the task, but what it ran on went away. Five, since something
  that takes every runner with it looks the same from here.
- *preemptions*: the platform took the card for a better task. That is nobody's failure, so it never
  fails a task: it is counted apart, told to the pool with each wait, and the pool asks nobody to
  make room more often than `preemptions_max`. A drain and a lent card that is taken back are losses
  all the same: no budget of the pool bounds how often they happen, and every task must end.
"""

from enum import StrEnum
from typing import Final, NamedTuple

from schema.failures import FailureClass
from schema.words import LossCause


class Budget(StrEnum):
    """What another try is taken from."""

    RETRIES = "retries"
    LOSSES = "losses"
    PREEMPTIONS = "preemptions"


class Wait(StrEnum):
    """How long it waits before it goes to its pool again."""

    NONE = "none"
    """Nothing broke, so there is nothing to wait for."""
    STEPS = "steps"
    """`delays_ms`: longer each time."""
    REPAIR = "repair"
    """`loss_delay_ms`: what broke has to come back."""


class Remedy(StrEnum):
    """What is changed before the next try, once in the life of a task."""

    NONE = "none"
    LOWER_SPEC = "lower_spec"
    """Made with less, where the scene can be."""
    SPARE_POOL = "spare_pool"
    """To the pool's spare pool, at once; without one, made with less."""


class Verdict(NamedTuple):
    """One line of the table."""

    budget: Budget | None
    """None: there is no other try. FAILED, and the quota goes back."""
    wait: Wait = Wait.NONE
    remedy: Remedy = Remedy.NONE
    final_while_storing: bool = False
    """The runner has tried for its whole time already: there is no other try then. The work is made
    and the store did not take it, so making it again would spend a card on the same end."""


_AGAIN: Final = Verdict(Budget.RETRIES, Wait.STEPS)
_FINAL: Final = Verdict(None)
_REPAIR: Final = Verdict(Budget.LOSSES, Wait.REPAIR)
_GIVEN_BACK: Final = Verdict(Budget.LOSSES)

FAILURES: Final[dict[FailureClass, Verdict]] = {
    FailureClass.OUT_OF_MEMORY: Verdict(Budget.RETRIES, Wait.STEPS, Remedy.LOWER_SPEC),
    FailureClass.POOL_FULL: Verdict(Budget.RETRIES, Wait.STEPS, Remedy.SPARE_POOL),
    FailureClass.STORE: Verdict(Budget.RETRIES, Wait.STEPS, final_while_storing=True),
    FailureClass.NETWORK: _AGAIN,
    FailureClass.TIME_LIMIT: _AGAIN,
    FailureClass.HUNG: _AGAIN,
    FailureClass.CRASHED: _AGAIN,
    FailureClass.INTERNAL: _AGAIN,
    FailureClass.INPUT: _FINAL,
    FailureClass.TOO_LONG: _FINAL,
    FailureClass.MODERATION: _FINAL,
    FailureClass.RETRIES_SPENT: _FINAL,  # no runner says it; if one does, it is believed
}
"""What a runner says of an attempt that it could not finish."""

LOSSES: Final[dict[LossCause, Verdict]] = {
    LossCause.LEASE_EXPIRED: _REPAIR,
    LossCause.RUNNER_REPLACED: _REPAIR,
    LossCause.NOT_ACCEPTED: _REPAIR,
    LossCause.DRAINED: _GIVEN_BACK,
    LossCause.SPOT: _GIVEN_BACK,
    LossCause.PREEMPTED: Verdict(Budget.PREEMPTIONS),
    # An attempt that never ended is one over its time limit, and one that never stored is one of
    # the store's.
    LossCause.BACKSTOP: Verdict(Budget.RETRIES, Wait.STEPS, final_while_storing=True),
}
"""How an attempt is lost without a word of its runner."""
