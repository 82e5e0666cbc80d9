"""Why a command or a material was refused: closed sets, never renumbered or reused."""

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
    MATERIAL_ABORTED = "material_aborted"
    """Its upload was left lying; it may be declared and uploaded again."""
    MATERIAL_MISMATCH = "material_mismatch"
    """What was uploaded is not what was declared (size or digest)."""
    MATERIAL_NOT_ASSEMBLING = "material_not_assembling"
    """It is not being checked, or the verdict is on what was uploaded before."""
    RATE_EXCEEDED = "rate_exceeded"
    """More submissions in this minute than the tier allows."""
    DAY_EXHAUSTED = "day_exhausted"
    QUOTA_EXHAUSTED = "quota_exhausted"
    """The user's credits of this month in this scene do not suffice."""
    CONTRACT_UNKNOWN = "contract_unknown"
    """No tenant stands behind the account, so it has no contract that could be topped up."""
    CONTRACT_EXHAUSTED = "contract_exhausted"
    """The tenant's credits of this month in this scene do not suffice."""
    RESULT_DELETED = "result_deleted"
    RESULT_WITHHELD = "result_withheld"
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


class MaterialRefusal(StrEnum):
    """Why a material cannot be used: what the probe says of it, and what became of its upload.

    A task that waits for it is canceled with the same word. The name of the command's refusal is
    used where there is one.
    """

    SIZE_MISMATCH = "size_mismatch"
    """Not as many bytes as were declared."""
    DIGEST_MISMATCH = "digest_mismatch"
    """Other bytes than were declared."""
    EMPTY = "empty"
    NOT_MEDIA = "not_media"
    """Text, an archive, a program: nothing that can be shown or heard."""
    CONTAINER_UNSUPPORTED = "container_unsupported"
    CODEC_UNSUPPORTED = "codec_unsupported"
    NAMES_OTHERS = "names_others"
    """A playlist or the like, that names other files or hosts instead of being the film."""
    TWO_IDENTITIES = "two_identities"
    """A picture or a film to one reader, and an archive, a page or another film to another."""
    OTHER_KIND = "other_kind"
    """Declared as a video, a picture or sound, and another of these."""
    ENCRYPTED = "encrypted"
    NO_STREAMS = "no_streams"
    """A container with neither pictures nor sound."""
    TRUNCATED = "truncated"
    """The end is missing: fewer pictures can be decoded than it claims."""
    DAMAGED = "damaged"
    MATERIAL_TOO_LONG = "material_too_long"
    """Longer than was declared, or than the tier or the scene takes."""
    TOO_SHORT = "too_short"
    MATERIAL_TOO_LARGE = "material_too_large"
    """More bytes than the tier takes."""
    PIXELS_TOO_MANY = "pixels_too_many"
    FRAMES_TOO_MANY = "frames_too_many"
    """Of pictures in a second, or in all."""
    BIT_RATE_TOO_HIGH = "bit_rate_too_high"
    STREAMS_TOO_MANY = "streams_too_many"
    NOT_CHECKED = "not_checked"
    """It could not be looked at for a day, by no fault of the file: upload it again."""
    PROBE_LIMIT = "probe_limit"
    """To look at it took more memory or time than any file of use does."""
    MATERIAL_ABORTED = "material_aborted"
    """Its upload was left lying for a day."""
