"""Commands: what is asked, in the imperative. A command may be refused.

Grouped by the topic that carries them. `reply_to` is the partition of `replies` of the api instance
that waits, or None when nobody does. Durations travel in messages, deadlines never do.
"""

from typing import Annotated, Final

import msgspec

from schema.failures import FailureClass
from schema.ids import (
    AccountId,
    ChargeId,
    CommandId,
    IncarnationId,
    MaterialId,
    PoolId,
    ReservationId,
    RunnerId,
    TaskId,
    TenantId,
    TraceId,
    UserId,
)
from schema.message import Instant, Message, Micros, Milliseconds, Parameters, Part, Seq, Token
from schema.policy import Policy, Price
from schema.refusals import MaterialRefusal
from schema.words import CancelCause, Lane, LossCause, MediaKind, MoveReason, ResultEnd, Scene

Bytes = Annotated[int, msgspec.Meta(ge=0, le=10**13)]
NOTICE_SECONDS_MAX: Final = 600
"""No notice that a card is taken away counts as longer, whatever its runner says."""


class Command(Message):
    """What every command carries."""

    command_id: CommandId


class Origin(Part):
    """Whose task this is and what was asked: fixed at the door, carried unchanged to the runner."""

    user_id: UserId
    tenant_id: TenantId
    account_id: AccountId
    scene: Scene
    tier: str
    fingerprint: str
    """Digest of the client's body, so that a retry can be told from a conflicting reuse."""
    parameters: Parameters = {}
    material_ids: tuple[MaterialId, ...] = ()
    trace_id: TraceId = TraceId("")
    private: bytes | None = None
    """Sealed for `user_id`: title, prompt. No rule reads it."""
    publishes: TaskId | None = None
    """The task whose result this one makes again in full size."""


# --- submissions.<lane> and quota-commands ------------------------------------------------------


class SubmitTask(Command, tag="task.submit.v1"):
    task_id: TaskId
    origin: Origin
    card_seconds_claimed: float | None = None
    """What the input takes, as we measured it (never a caller's word); None: the maximum."""
    deadline_seconds: int | None = None
    """The caller wants it in so long; the door has said that it can be."""
    reply_to: int | None = None


class RetryTask(Command, tag="task.retry.v1"):
    """A manual retry of a FAILED task: reserve anew, then ask the task (`RequeueTask`)."""

    task_id: TaskId
    user_id: UserId
    tenant_id: TenantId
    account_id: AccountId
    scene: Scene
    tier: str
    materials: Annotated[int, msgspec.Meta(ge=0)] = 0
    """How many the task has: its price may depend on it."""
    reply_to: int | None = None


class CommitReservation(Command, tag="quota.commit.v1"):
    account_id: AccountId
    reservation_id: ReservationId
    amount_micros: Micros
    """At most what is reserved is charged; the rest is released."""


class ReleaseReservation(Command, tag="quota.release.v1"):
    account_id: AccountId
    reservation_id: ReservationId
    ran: bool
    """Whether an attempt ever ran: only if not, the day's count is returned."""


class RefundCharge(Command, tag="quota.refund.v1"):
    account_id: AccountId
    charge_id: ChargeId
    amount_micros: Micros
    reason: str
    who: str


class TopUpQuota(Command, tag="quota.top_up.v1"):
    account_id: AccountId
    user_id: UserId | None = None
    """None: the tenant's contract is topped up."""
    scene: Scene
    amount_micros: Micros
    who: str
    why: str
    reply_to: int | None = None


class PublishPolicy(Command, tag="policy.publish.v1"):
    """Sent to every partition of quota-commands and of pool-commands."""

    policy: Policy
    who: str = ""
    why: str = ""
    reply_to: int | None = None


class ReleaseKey(Command, tag="key.release.v1"):
    """Lets the commands parked behind a quarantined key go on, in order. Any command topic."""

    key: str
    """Empty: none is quarantined, only the letter is meant."""
    who: str
    why: str
    letter_id: str = ""
    """The dead letter that an operator is done with; empty: only the key is meant."""
    redrive: bytes | None = None
    """The record of that letter. It is applied first, in the same transaction; poison again, the
    key stays quarantined. None: it is never applied."""
    discard: bool = False
    """The letter is thrown away."""
    discarded: bytes | None = None
    """The record of a letter that is thrown away: what was set aside for it is given back."""
    unknown_at: Instant | None = None
    """When the read model was asked for the task that `redrive` would begin, and had none, by the
    clock of whoever asked. None: nobody asked, and nothing that begins a task is applied."""


# --- task-commands ------------------------------------------------------------------------------


class InputLimits(Part):
    """What the tier of a task takes of each of its materials."""

    seconds_max: int
    bytes_max: Bytes
    pixels_max: int
    """Of one picture."""


class CreateTask(Command, tag="task.create.v1"):
    task_id: TaskId
    origin: Origin
    pool_id: PoolId
    lane: Lane
    price: Price
    policy_version: int
    reservation_id: ReservationId
    reserved_micros: Micros
    run_limit_seconds: int
    created_wait_seconds: int
    weight: int = 0
    """Of the user's tier (`TierPolicy.weight`)."""
    deadline_seconds: int | None = None
    lower_spec: bool = False
    """Whether its scene can be made with less."""
    input_limits: InputLimits | None = None
    """None: no limit is known; then none is held against its materials."""


class RequeueTask(Command, tag="task.requeue.v1"):
    task_id: TaskId
    user_id: UserId
    tenant_id: TenantId
    account_id: AccountId
    price: Price
    policy_version: int
    reservation_id: ReservationId
    reserved_micros: Micros
    reply_to: int | None = None


class ConfirmMaterial(Command, tag="task.confirm_material.v1"):
    """A material is READY. What is 0 or empty is not known (material of older releases)."""

    task_id: TaskId
    material_id: MaterialId
    content_key: str = ""
    """The object that the runner fetches; empty: `schema.objects.material_key`."""
    seconds_ms: Milliseconds = 0
    """How long it is; 0 also for a picture."""
    pixels: int = 0
    """Of one picture."""
    size: Bytes = 0


class ExtendWait(Command, tag="task.extend_wait.v1"):
    """An upload that the task waits for goes on: from the material, at most once a minute."""

    task_id: TaskId
    material_id: MaterialId


class RejectMaterial(Command, tag="task.reject_material.v1"):
    task_id: TaskId
    material_id: MaterialId
    reason: str


class StartAttempt(Command, tag="task.start.v1"):
    """The pool's proposal. The task grants only from QUEUED and only the next token."""

    task_id: TaskId
    token: Token
    pool_id: PoolId
    runner_id: RunnerId
    incarnation_id: IncarnationId
    lease_seconds: int


class MoveTask(Command, tag="task.move.v1"):
    """The pool asks a waiting task to wait elsewhere; only while it is QUEUED with this token."""

    task_id: TaskId
    token: Token
    """The last token dispatched when the task was enqueued."""
    pool_id: PoolId
    """Where it shall wait."""
    lane: Lane
    lower_spec: bool = False
    reason: MoveReason


class LoseAttempt(Command, tag="task.lose.v1"):
    task_id: TaskId
    token: Token
    cause: LossCause


class AttemptYielded(Command, tag="task.yield.v1"):
    """The runner gives an attempt back (drain, preemption), with the name of its checkpoint."""

    task_id: TaskId
    token: Token
    cause: LossCause
    checkpoint: str = ""
    card_ms: Milliseconds = 0
    saved_ms: Milliseconds = 0
    """The part of `card_ms` that the checkpoint keeps; the rest is burnt."""
    started_anew: bool = False
    """It could not go on from the checkpoint that it was given, and began from the beginning."""


class ReportMilestone(Command, tag="task.milestone.v1"):
    task_id: TaskId
    token: Token
    percent: int


class StoreAttempt(Command, tag="task.store.v1"):
    """The work is done, its files are being stored: the slot is free, the run limit is off."""

    task_id: TaskId
    token: Token
    card_ms: Milliseconds


class ResultFile(Part):
    """A stored object of a result. The object key holds task and token (see `schema.objects`)."""

    name: str
    object_key: str
    content_type: str
    size: Bytes
    sha256: str


class FinishAttempt(Command, tag="task.finish.v1"):
    task_id: TaskId
    token: Token
    files: tuple[ResultFile, ...] = ()
    facts: Parameters = {}
    """What the pipeline tells of its result (keep list, sizes); opaque to the rules."""
    card_ms: Milliseconds


class FailAttempt(Command, tag="task.fail.v1"):
    task_id: TaskId
    token: Token
    failure: FailureClass
    message: str = ""
    card_ms: Milliseconds = 0


class CancelTask(Command, tag="task.cancel.v1"):
    task_id: TaskId
    user_id: UserId
    tenant_id: TenantId
    cause: CancelCause = CancelCause.USER
    reply_to: int | None = None


class ExpireTask(Command, tag="task.expire.v1"):
    """The pool's queue TTL has passed for the wait that began with this token's predecessor."""

    task_id: TaskId
    token: Token
    """The last token dispatched when the task was enqueued (0: none)."""


# --- pool-commands ------------------------------------------------------------------------------


class EnqueueTask(Command, tag="pool.enqueue.v1"):
    """Never refused. `token` is the last token dispatched; the next start has token + 1."""

    pool_id: PoolId
    task_id: TaskId
    token: Token
    lane: Lane
    account_id: AccountId
    scene: Scene
    weight: int = 0
    model: str = ""
    """The model that it runs, where the pool counts those; empty: none."""
    deadline_ms: int | None = None
    """What is left until the caller wants it; may be negative."""
    moved: bool = False
    """It came from another pool or lane, or has its lower spec: it is not moved again."""
    preemptions: int = 0
    """How often it was preempted."""
    lower_spec: bool = False
    """Whether it could be made with less and is not yet."""


class DequeueTask(Command, tag="pool.dequeue.v1"):
    pool_id: PoolId
    task_id: TaskId
    token: Token
    moved: bool = False
    """Also a wait that the task was moved to; False, the one before it, and no later one."""


class GrantAttempt(Command, tag="pool.grant.v1"):
    pool_id: PoolId
    task_id: TaskId
    token: Token


class RefuseAttempt(Command, tag="pool.refuse.v1"):
    pool_id: PoolId
    task_id: TaskId
    token: Token
    reason: str


class EndAttempt(Command, tag="pool.end.v1"):
    """The task says that this token is over; the slot stays taken until the runner frees it."""

    pool_id: PoolId
    task_id: TaskId
    token: Token
    ended_well: bool = False
    """It made its result. With neither this nor a failure it says nothing of the card."""
    failure: FailureClass | None = None
    card_ms: Milliseconds = 0


class RegisterRunner(Command, tag="pool.register_runner.v1"):
    pool_id: PoolId
    runner_id: RunnerId
    incarnation_id: IncarnationId
    slots: int
    spot: bool = False
    """Its card may be taken away at any time."""


class HeldAttempt(Part):
    task_id: TaskId
    token: Token


class BeatRunner(Command, tag="pool.beat.v1"):
    """Sign of life each `beat_seconds`; answered in the inbox with the attempts that stay held."""

    pool_id: PoolId
    runner_id: RunnerId
    incarnation_id: IncarnationId
    beat: int
    held: tuple[HeldAttempt, ...] = ()
    unsaved_ms: tuple[Milliseconds, ...] = ()
    """For each of `held`, the work since its last checkpoint; empty: nobody knows."""


class AcceptAttempt(Command, tag="pool.accept.v1"):
    pool_id: PoolId
    runner_id: RunnerId
    incarnation_id: IncarnationId
    task_id: TaskId
    token: Token


class FreeSlot(Command, tag="pool.free.v1"):
    """From the runner, once the attempt's process group is gone (or its worker is clean again)."""

    pool_id: PoolId
    runner_id: RunnerId
    incarnation_id: IncarnationId
    task_id: TaskId
    token: Token


class DrainRunner(Command, tag="pool.drain_runner.v1"):
    """The runner takes nothing new; it goes when what it holds is done or given back."""

    pool_id: PoolId
    runner_id: RunnerId
    incarnation_id: IncarnationId
    spot: bool = False
    """Its card is being taken away."""
    notice_seconds: int = 0
    """In so long it is gone; 0: the runner does not say."""


class PauseLane(Command, tag="pool.pause_lane.v1"):
    pool_id: PoolId
    lane: Lane
    who: str
    why: str
    reply_to: int | None = None


class ResumeLane(Command, tag="pool.resume_lane.v1"):
    pool_id: PoolId
    lane: Lane
    who: str
    why: str
    reply_to: int | None = None


class ResetBreaker(Command, tag="pool.reset_breaker.v1"):
    """An operator closes a breaker by hand."""

    pool_id: PoolId
    scene: Scene
    who: str
    why: str
    reply_to: int | None = None


# --- material-commands --------------------------------------------------------------------------


class MediaFacts(Part):
    """What a material is, as it was counted and measured, never as it claims."""

    kind: MediaKind
    container: str
    video_codec: str = ""
    audio_codec: str = ""
    width: int = 0
    """As it is shown, turned."""
    height: int = 0
    rotation: int = 0
    """By how much it is turned to be shown: 0, 90, 180, 270."""
    frames: int = 0
    """That can be decoded; a picture has 1."""
    duration_ms: Milliseconds = 0
    """0: a picture."""
    frame_rate: str = ""
    """As `num/den`; empty: none."""
    pixels: int = 0
    """Of one picture."""
    bit_rate: int = 0
    """In a second, of the whole file; 0: a picture."""
    has_audio: bool = False
    has_alpha: bool = False
    hdr: bool = False
    animated: bool = False
    """A picture that moves (GIF, APNG, animated WebP or AVIF)."""


class OfMaterialCommand(Command):
    """What every command from the way of a material into the store carries."""

    material_id: MaterialId
    user_id: UserId
    tenant_id: TenantId


class RegisterMaterial(OfMaterialCommand, tag="material.register.v1"):
    """A file is announced; its parts come in from here on."""

    content_type: str
    size: Bytes
    sha256: str
    private: bytes | None = None
    part_bytes: int = 0
    """Of each part but the last."""
    seconds_max: int = 0
    """The longest that its caller says it is; 0: he doesn't say. If it is longer it is refused."""
    upload_id: str = ""
    """The store's name of the multipart upload; opaque. Of two that register at once the first
    one's stands, and `Accepted.upload_id` tells both which that is."""
    instead_of: str = ""
    """The upload of a REGISTERED material that this one replaces: the store lost it, or (empty) it
    was registered by an older release. Any other is ignored: it has been replaced already."""
    after: Seq = 0
    """The last event of the material that the read model knows: where its decider has forgotten it,
    its events are numbered on from here. 0: there was none."""
    reply_to: int | None = None


class TouchUpload(OfMaterialCommand, tag="material.touch.v1"):
    """The upload goes on.

    From the api when parts are asked for or told, at most once a minute; from the sweep when it has
    found new ones in the store.
    """


class CompleteMaterial(OfMaterialCommand, tag="material.complete.v2"):
    """The caller says that all parts are there: they are joined, read and probed."""

    again_after: int = 0
    """Of an older release's sweep: the number of the try that nothing was heard of; another one
    begins, unless one has. 0: from the caller, or from the sweep that has found all parts in the
    store: their word begins one only if none is on its way."""
    reply_to: int | None = None


class ConcludeMaterial(OfMaterialCommand, tag="material.conclude.v1"):
    """The prober's verdict: `facts`, or `reason`, or `part_missing`; exactly one of the three."""

    number: int
    """The try that it ends (`MaterialAssembling.number`)."""
    size: Bytes = 0
    """As it was read; 0 with a reason: it was not read to its end."""
    sha256: str = ""
    content_key: str = ""
    facts: MediaFacts | None = None
    reason: MaterialRefusal | None = None
    detail: str = ""
    """What exactly, for people: names and numbers, nothing of the file's content."""
    part_missing: bool = False
    """Not all parts are there: the caller may send the rest and complete it again."""


class AdoptMaterial(OfMaterialCommand, tag="material.adopt.v1"):
    """Its content is known in the tenant, and its caller has proved that he holds it."""

    size: Bytes
    sha256: str
    content_key: str
    facts: MediaFacts
    reply_to: int | None = None


class AbandonMaterial(OfMaterialCommand, tag="material.abandon.v1"):
    """From the sweep: it seems that nothing has come in for a day."""


class ChillMaterial(OfMaterialCommand, tag="material.chill.v1"):
    """From the sweep: it seems that no task has used it for thirty days."""


class AttachMaterial(Command, tag="material.attach.v1"):
    """A task needs this material: answered by ConfirmMaterial or RejectMaterial once known."""

    material_id: MaterialId
    task_id: TaskId
    user_id: UserId
    tenant_id: TenantId


QuotaCommand = (
    SubmitTask
    | RetryTask
    | CommitReservation
    | ReleaseReservation
    | RefundCharge
    | TopUpQuota
    | PublishPolicy
    | ReleaseKey
)
TaskCommand = (
    CreateTask
    | RequeueTask
    | ConfirmMaterial
    | ExtendWait
    | RejectMaterial
    | StartAttempt
    | MoveTask
    | LoseAttempt
    | AttemptYielded
    | ReportMilestone
    | StoreAttempt
    | FinishAttempt
    | FailAttempt
    | CancelTask
    | ExpireTask
    | ReleaseKey
)
PoolCommand = (
    EnqueueTask
    | DequeueTask
    | GrantAttempt
    | RefuseAttempt
    | EndAttempt
    | RegisterRunner
    | BeatRunner
    | AcceptAttempt
    | FreeSlot
    | DrainRunner
    | PauseLane
    | ResumeLane
    | ResetBreaker
    | PublishPolicy
    | ReleaseKey
)
MaterialCommand = (
    RegisterMaterial
    | TouchUpload
    | CompleteMaterial
    | ConcludeMaterial
    | AdoptMaterial
    | AbandonMaterial
    | ChillMaterial
    | AttachMaterial
    | ReleaseKey
)

# --- material-commands: results ------------------------------------------------------------------


class OfResultCommand(Command):
    """What every command to a result carries; the task is its name."""

    task_id: TaskId
    user_id: UserId
    tenant_id: TenantId


class ChillResult(OfResultCommand, tag="result.chill.v1"):
    """From the sweep: it is as old as results are kept hot."""

    seq: Seq = 0
    """The last event of the result that the sweep knows of; 0: none."""


class DeleteResult(OfResultCommand, tag="result.delete.v1"):
    """The tombstone is asked for; only when it stands are the objects deleted."""

    reason: ResultEnd
    seq: Seq = 0
    """As in ChillResult."""


class WithholdResult(OfResultCommand, tag="result.withhold.v1"):
    """Nobody is handed an address of it any more."""

    reason: str
    who: str
    publishes: TaskId | None = None
    """The task whose result this one is in full size: it is the same work, and goes with it."""
    reply_to: int | None = None


class RestoreResult(OfResultCommand, tag="result.restore.v1"):
    """Withheld no longer, or hot again."""

    who: str
    why: str
    publishes: TaskId | None = None
    """As in WithholdResult."""
    reply_to: int | None = None


class PublishResult(OfResultCommand, tag="result.publish.v1"):
    """It is published.

    From the task that makes it in full size, once that is accepted; or from its caller, where it is
    full size already.
    """

    by: TaskId
    """The task that makes it in full size; its own, if it is full size already."""
    reply_to: int | None = None


class Delivery(Part):
    """Addresses of results that were handed out, summed up."""

    tenant_id: TenantId
    scene: Scene
    cold: bool
    reads: int
    """Results that were asked for."""
    size: Bytes
    """Of all their files."""


class CountDeliveries(Command, tag="result.deliveries.v1"):
    """From an api instance, every few seconds: what it handed out since the last one."""

    source: str
    """The instance; one key, so that told twice is counted once."""
    deliveries: tuple[Delivery, ...]


ResultCommand = (
    ChillResult | DeleteResult | WithholdResult | RestoreResult | PublishResult | CountDeliveries
)
AnyCommand = QuotaCommand | TaskCommand | PoolCommand | MaterialCommand | ResultCommand
