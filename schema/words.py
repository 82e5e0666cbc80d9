"""The closed words of the domain: statuses, lanes, scenes, phases, ends of an attempt."""

from enum import StrEnum


class Status(StrEnum):
    """Where a task stands. SUCCEEDED, CANCELED, EXPIRED are final; FAILED can be retried."""

    CREATED = "CREATED"
    QUEUED = "QUEUED"
    RUNNING = "RUNNING"
    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"
    CANCELED = "CANCELED"
    EXPIRED = "EXPIRED"

    @property
    def ended(self) -> bool:
        """Whether nothing happens any more by itself."""
        return self in _ENDED


_ENDED = frozenset({Status.SUCCEEDED, Status.FAILED, Status.CANCELED, Status.EXPIRED})


class Lane(StrEnum):
    """Order of service: p0 members, p1 everyone, p2 batch and free."""

    P0 = "p0"
    P1 = "p1"
    P2 = "p2"


class Scene(StrEnum):
    """What kind of work a task is. `rehearsal` does no media work: for tests, load and drills."""

    AUTOCUT = "autocut"
    SMART = "smart"
    GENAI = "genai"
    MATTING = "matting"
    REHEARSAL = "rehearsal"


class LossCause(StrEnum):
    """Why an attempt was lost without a word of its runner. Only BACKSTOP burns a retry."""

    LEASE_EXPIRED = "lease_expired"
    RUNNER_REPLACED = "runner_replaced"
    NOT_ACCEPTED = "not_accepted"
    PREEMPTED = "preempted"
    DRAINED = "drained"
    SPOT = "spot"
    """The card was taken away by whoever lent it."""
    BACKSTOP = "backstop"
    """The task's own end of RUNNING (run limit + 10 min), counted like a time limit; of what was
    being stored (70 min) it is the end of the task."""


class MoveReason(StrEnum):
    """Why a pool asks a waiting task to wait elsewhere."""

    MODEL_FULL = "model_full"
    POOL_FULL = "pool_full"
    BREAKER_OPEN = "breaker_open"


class ScaleReason(StrEnum):
    """Why a pool wants another number of cards."""

    DEMAND = "demand"
    """Waits and depth are both over their marks."""
    SLACK = "slack"
    """Either has been under its mark long enough."""
    BOUNDS = "bounds"
    """The policy's floor, ceiling or budget changed."""


class MediaKind(StrEnum):
    """What a material is."""

    VIDEO = "video"
    PICTURE = "picture"
    AUDIO = "audio"


class CancelCause(StrEnum):
    """Who ended a task before its end."""

    USER = "user"
    OPERATOR = "operator"
    MATERIAL_REFUSED = "material_refused"


class ResultEnd(StrEnum):
    """Why a result was deleted."""

    AGED = "aged"
    """It was kept as long as results are kept."""
    ERASED = "erased"
    """Its owner's data was erased."""


MILESTONES = (10, 30, 60, 90, 100)
"""Percent that are kept as events; what lies between is short-lived progress."""
