"""Why an attempt failed: a closed set, and what each class means for the task."""

from enum import StrEnum


class FailureClass(StrEnum):
    """What a runner says of an attempt that it could not finish."""

    OUT_OF_MEMORY = "out_of_memory"
    NETWORK = "network"
    STORE = "store"
    """The object store failed; after an hour of storing it is final."""
    POOL_FULL = "pool_full"
    TIME_LIMIT = "time_limit"
    HUNG = "hung"
    CRASHED = "crashed"
    """The worker process died while it had the attempt."""
    INTERNAL = "internal"
    INPUT = "input"
    TOO_LONG = "too_long"
    MODERATION = "moderation"
    RETRIES_SPENT = "retries_spent"
    """Never said by a runner: the task's own verdict when nothing is left to try."""

    @property
    def retryable(self) -> bool:
        """Whether the same work may succeed in another attempt."""
        return self in _RETRYABLE


CARD_FAILURES = frozenset(
    {
        FailureClass.OUT_OF_MEMORY,
        FailureClass.CRASHED,
        FailureClass.HUNG,
        FailureClass.INTERNAL,
        FailureClass.TIME_LIMIT,
        FailureClass.NETWORK,
        FailureClass.STORE,
    }
)
"""What may be the fault of a card or of where it stands; anything else is the input's."""

_RETRYABLE = frozenset(
    {
        FailureClass.OUT_OF_MEMORY,
        FailureClass.NETWORK,
        FailureClass.STORE,
        FailureClass.POOL_FULL,
        FailureClass.TIME_LIMIT,
        FailureClass.HUNG,
        FailureClass.CRASHED,
        FailureClass.INTERNAL,
    }
)
