"""Why a command was refused: a closed set, in order of precedence, never renumbered or reused."""

from enum import StrEnum


class Refusal(StrEnum):
    """The first reason that applies, read from top to bottom, is the one recorded."""

    INTERNAL = "internal"
    """The command could not be worked on and was set aside whole; operators see it."""
    POLICY_MISSING = "policy_missing"
    POLICY_INVALID = "policy_invalid"
    """A document whose names lead nowhere or whose zone does not exist; the detail says which."""
    POLICY_OUTDATED = "policy_outdated"
    IDEMPOTENCY_CONFLICT = "idempotency_conflict"
    NOT_YOURS = "not_yours"
    """The state belongs to another tenant or user; callers see the same answer as for unknown."""
    TASK_UNKNOWN = "task_unknown"
    TASK_ENDED = "task_ended"
    TASK_NOT_CREATED = "task_not_created"
    """It waits for no material any more."""
    TASK_NOT_FAILED = "task_not_failed"
    TASK_NOT_QUEUED = "task_not_queued"
    TASK_NOT_RUNNING = "task_not_running"
    TOKEN_STALE = "token_stale"  # noqa: S105 - a reason
    TOKEN_NOT_NEXT = "token_not_next"  # noqa: S105
    TASK_NOT_MOVABLE = "task_not_movable"
    """It waits elsewhere than at first already, or cannot be made with less."""
    SCENE_NOT_OFFERED = "scene_not_offered"
    TIER_UNKNOWN = "tier_unknown"
    MATERIAL_UNKNOWN = "material_unknown"
    MATERIAL_REFUSED = "material_refused"
    MATERIAL_MISMATCH = "material_mismatch"
    """What was uploaded is not what was declared (size or digest)."""
    RATE_EXCEEDED = "rate_exceeded"
    """More submissions in this minute than the tier allows."""
    DAY_EXHAUSTED = "day_exhausted"
    QUOTA_EXHAUSTED = "quota_exhausted"
    """The user's credits of this month in this scene do not suffice."""
    CONTRACT_UNKNOWN = "contract_unknown"
    """No tenant stands behind the account, so it has no contract that could be topped up."""
    CONTRACT_EXHAUSTED = "contract_exhausted"
    """The tenant's credits of this month in this scene do not suffice."""
    RESERVATION_UNKNOWN = "reservation_unknown"
    RESERVATION_RESOLVED = "reservation_resolved"
    CHARGE_UNKNOWN = "charge_unknown"
    CHARGE_REFUNDED = "charge_refunded"
    POOL_UNKNOWN = "pool_unknown"
    RUNNER_UNKNOWN = "runner_unknown"
    INCARNATION_STALE = "incarnation_stale"
    ATTEMPT_UNKNOWN = "attempt_unknown"

    @property
    def transient(self) -> bool:
        """Whether the same request may succeed later without being changed."""
        return self in _TRANSIENT


_TRANSIENT = frozenset(
    {
        Refusal.INTERNAL,
        Refusal.POLICY_MISSING,
        Refusal.TASK_UNKNOWN,
        Refusal.TASK_NOT_QUEUED,
        Refusal.TASK_NOT_RUNNING,
        Refusal.MATERIAL_UNKNOWN,
        Refusal.RATE_EXCEEDED,
        Refusal.DAY_EXHAUSTED,
        Refusal.QUOTA_EXHAUSTED,
        Refusal.CONTRACT_EXHAUSTED,
    }
)
