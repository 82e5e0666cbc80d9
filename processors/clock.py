"""The time of a step in the words of the deciders."""

from datetime import UTC, datetime
from functools import lru_cache

from commands.decider import Now
from processors.engine import Step
from schema.message import Instant
from schema.topics import Topic

_MILLISECONDS = 1_000


@lru_cache(maxsize=4_096)
def instant(ms: int) -> Instant:
    """An instant from milliseconds; the commands of a batch often share one."""
    seconds, rest = divmod(ms, _MILLISECONDS)
    return datetime.fromtimestamp(seconds, UTC).replace(microsecond=rest * _MILLISECONDS)


def now_of(step: Step, ticked: Topic) -> Now:
    """Log time, and the served clock of the topic whose ticks the rows' deadlines wait for."""
    return Now(instant(step.now), step.served(ticked))
