"""The card time of an attempt: told once, by the event that ends its token.

It is the runner's word where it gave one: with the result, with a failure, when it gave the attempt
back, or when it began to store. Of an attempt that was lost, canceled or never ended nobody knows
it: then it is an estimate, and the event says that it was not measured. It is the log time since
the start, and no more than the served time and one lease: while nobody serves, a runner works on
until its lease ends, and then stops by itself. What is charged for a cancel has no lease in it.
"""

from typing import NamedTuple

from commands.tasks import evolving
from commands.tasks.follow_ups import Asked
from commands.tasks.states import AttemptState, Storing


class CardTime(NamedTuple):
    """How long an attempt had its card."""

    ms: int
    measured: bool = True
    """Whether it is the runner's word; if not, it is an estimate."""


NONE = CardTime(0)
"""No attempt ran, or the one that ran has told its time already."""


def told(state: AttemptState, card_ms: int) -> CardTime:
    """The runner's word at a failure or a yield; never less than what it said before."""
    return CardTime(max(card_ms, state.card_ms) if isinstance(state, Storing) else card_ms)


def untold(state: AttemptState, asked: Asked) -> CardTime:
    """Of an attempt whose end its runner did not tell."""
    if isinstance(state, Storing):
        return CardTime(state.card_ms)
    by_log = max(0, evolving.log_ms(asked.now.at) - state.started_ms)
    if state.started_served_ms is None:
        return CardTime(by_log, measured=False)
    served = max(0, asked.now.served_ms - state.started_served_ms)
    return CardTime(min(by_log, served + state.lease_seconds * 1000), measured=False)


def ran_ms(state: AttemptState, asked: Asked) -> int:
    """What is charged of the current attempt's work."""
    if isinstance(state, Storing):
        return state.ran_ms
    return evolving.ran_ms(state, asked.now.at, asked.now.served_ms)
