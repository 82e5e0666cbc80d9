"""Events: facts, in the past tense. An event is never edited, only superseded by a new version.

The tag is the name on the wire. It is chosen once, by hand; renaming the class is free, renaming
the tag is a new event. Every event of a key has a `seq`, one more than the one before: the key is
the task, the account, the pool, the material, or (for a policy) the partition.
"""

from schema.commands import (
    Bytes,
    Delivery,
    HeldAttempt,
    InputLimits,
    MediaFacts,
    Origin,
    ResultFile,
)
from schema.failures import FailureClass
from schema.ids import (
    AccountId,
    ChargeId,
    EventId,
    IncarnationId,
    MaterialId,
    PoolId,
    ReservationId,
    RunnerId,
    TaskId,
    TenantId,
    UserId,
)
from schema.message import (
    Instant,
    Message,
    Micros,
    Milliseconds,
    Parameters,
    Part,
    Seq,
    Token,
)
from schema.policy import Policy, Price
from schema.words import CancelCause, Lane, LossCause, MoveReason, ResultEnd, ScaleReason, Scene


class Event(Message):
    """What every event carries."""

    event_id: EventId
    seq: Seq
    at: Instant
    """Log time: of the command that led here, never a clock of ours."""


# --- quota-events, key: account -----------------------------------------------------------------


class Window(Part):
    """A half-open span of time, [start, end), computed once from the policy's zone."""

    start: Instant
    end: Instant


class OfAccount(Event):
    account_id: AccountId


class QuotaReserved(OfAccount, tag="quota.reserved.v1"):
    """Held for a task. Reserved and spent of the month, this included, are within the limits here.

    A limit that is lowered later leaves what is held: the sum only falls until the next
    reservation, which is held against the new one.
    """

    reservation_id: ReservationId
    task_id: TaskId
    user_id: UserId
    scene: Scene
    fingerprint: str
    amount_micros: Micros
    month: Window
    day: Window
    minute: Window
    limit_micros: Micros
    """The user's limit of this month in this scene, top-ups included, that was held against it."""
    contract_micros: Micros | None = None
    """The tenant's limit, top-ups included; None: no tenant, or no contract limit."""
    policy_version: int


class QuotaCommitted(OfAccount, tag="quota.committed.v1"):
    """The reservation is resolved: `amount_micros` is spent, `released_micros` is free again."""

    reservation_id: ReservationId
    charge_id: ChargeId
    task_id: TaskId
    user_id: UserId
    scene: Scene
    amount_micros: Micros
    released_micros: Micros
    month_start: Instant


class QuotaReleased(OfAccount, tag="quota.released.v1"):
    reservation_id: ReservationId
    task_id: TaskId
    user_id: UserId
    scene: Scene
    amount_micros: Micros
    month_start: Instant
    day_returned: bool


class ChargeRefunded(OfAccount, tag="quota.refunded.v1"):
    charge_id: ChargeId
    user_id: UserId
    scene: Scene
    amount_micros: Micros
    month_start: Instant
    reason: str
    who: str


class QuotaToppedUp(OfAccount, tag="quota.topped_up.v1"):
    """`user_id` None: the tenant's contract of that month."""

    user_id: UserId | None = None
    scene: Scene
    amount_micros: Micros
    month: Window
    who: str
    why: str


class PolicyAdopted(Event, tag="policy.adopted.v1"):
    """A partition goes by this policy from here on. Key: the partition (`seq` of its own)."""

    policy: Policy
    who: str
    why: str


# --- task-events, key: task ---------------------------------------------------------------------
# Every token that was started is ended by one event, and that event tells the card time of the
# attempt (`card_ms`): TaskSucceeded, TaskFailed, TaskRequeued or TaskCanceled.


class OfTask(Event):
    task_id: TaskId
    user_id: UserId


class TaskCreated(OfTask, tag="task.created.v1"):
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
    deadline_seconds: int | None = None
    lower_spec: bool = False
    """Whether it can be made with less."""
    input_limits: InputLimits | None = None


class TaskMaterialConfirmed(OfTask, tag="task.material_confirmed.v1"):
    """One of several materials is there; the last one leads to TaskQueued."""

    material_id: MaterialId
    content_key: str = ""
    """The object that the runner fetches; empty: `schema.objects.material_key`."""


class TaskWaitExtended(OfTask, tag="task.wait_extended.v1"):
    """Still CREATED: an upload that it waits for goes on, so it waits longer."""

    material_id: MaterialId


class TaskQueued(OfTask, tag="task.queued.v1"):
    """CREATED -> QUEUED: everything that it needs is there.

    Also told when a retry delay is over: the task was QUEUED by status all the while, and waits at
    its pool from here on.
    """

    pool_id: PoolId
    lane: Lane
    material_id: MaterialId | None = None
    """The last material that it waited for, where its `content_key` is known."""
    content_key: str = ""
    """Of that material, as in TaskMaterialConfirmed."""


class TaskMoved(OfTask, tag="task.moved.v1"):
    """Still QUEUED: it waits at another pool or lane from here on, or with its lower spec."""

    token: Token
    pool_id: PoolId
    lane: Lane
    lower_spec: bool = False
    reason: MoveReason


class TaskStarted(OfTask, tag="task.started.v1"):
    token: Token
    pool_id: PoolId
    runner_id: RunnerId
    incarnation_id: IncarnationId
    lease_seconds: int


class TaskProgressed(OfTask, tag="task.progressed.v1"):
    token: Token
    percent: int


class TaskStoring(OfTask, tag="task.storing.v1"):
    """Still RUNNING: the work is done, the result is being stored."""

    token: Token
    card_ms: Milliseconds


class TaskRequeued(OfTask, tag="task.requeued.v1"):
    """RUNNING -> QUEUED. Exactly one of `loss` and `failure` is set."""

    token: Token
    loss: LossCause | None = None
    failure: FailureClass | None = None
    message: str = ""
    counted: bool
    """Whether it burnt a retry of the task."""
    delay_ms: Milliseconds
    checkpoint: str = ""
    saved_ms: Milliseconds = 0
    """The part of `card_ms` that the checkpoint keeps; the rest is burnt."""
    lower_spec: bool = False
    """From here on it is made with less."""
    card_ms: Milliseconds = 0
    card_measured: bool = True
    """False: nobody told `card_ms`. It is estimated from the time since the start."""
    started_anew: bool = False
    """`checkpoint` is its own, made from the beginning: what an earlier one kept is burnt."""


class TaskSucceeded(OfTask, tag="task.succeeded.v1"):
    token: Token
    files: tuple[ResultFile, ...] = ()
    facts: Parameters = {}
    card_ms: Milliseconds
    """Always the runner's word."""
    charge_micros: Micros


class TaskFailed(OfTask, tag="task.failed.v1"):
    token: Token
    failure: FailureClass
    last_failure: FailureClass | None = None
    """What the last attempt said, where `failure` is RETRIES_SPENT."""
    loss: LossCause | None = None
    """What took the last attempt, where that was no failure of its own."""
    message: str = ""
    card_ms: Milliseconds = 0
    card_measured: bool = True
    """As in TaskRequeued."""


class TaskCanceled(OfTask, tag="task.canceled.v1"):
    cause: CancelCause
    token: Token
    """The attempt that was running, or the last one; 0: none ever started."""
    charge_micros: Micros
    reason: str = ""
    card_ms: Milliseconds = 0
    """Of the attempt that this ends; 0: none was running, earlier ones have told theirs."""
    card_measured: bool = True
    """As in TaskRequeued."""


class TaskExpired(OfTask, tag="task.expired.v1"):
    token: Token


class TaskRetried(OfTask, tag="task.retried.v1"):
    """FAILED -> QUEUED by hand, on a new reservation; retries start anew, tokens go on."""

    price: Price
    policy_version: int
    reservation_id: ReservationId
    reserved_micros: Micros


# --- pool-events, key: pool ---------------------------------------------------------------------


class OfPool(Event):
    pool_id: PoolId


class TaskEnqueued(OfPool, tag="pool.enqueued.v1"):
    task_id: TaskId
    token: Token
    lane: Lane
    account_id: AccountId
    scene: Scene
    weight: int = 0
    model: str = ""
    deadline_ms: int | None = None
    moved: bool = False
    preemptions: int = 0
    lower_spec: bool = False


class TaskMoveAsked(OfPool, tag="pool.move_asked.v1"):
    """The task is asked to wait elsewhere; until it does it waits here and may start here."""

    task_id: TaskId
    token: Token
    to_pool_id: PoolId
    to_lane: Lane
    to_lower_spec: bool = False
    reason: MoveReason


class TaskDequeued(OfPool, tag="pool.dequeued.v1"):
    """It waits here no more: canceled, or its TTL passed (then the task is told to expire)."""

    task_id: TaskId
    token: Token
    expired: bool = False


class SlotProposed(OfPool, tag="pool.proposed.v1"):
    """A free slot is held for a waiting task; the task is asked to start."""

    task_id: TaskId
    token: Token
    runner_id: RunnerId
    incarnation_id: IncarnationId


class SlotPreempted(OfPool, tag="pool.preempted.v1"):
    """The attempt is asked to give its slot up; the room is held for a better task, for a while."""

    task_id: TaskId
    token: Token
    runner_id: RunnerId
    for_task_id: TaskId


class SlotGranted(OfPool, tag="pool.granted.v1"):
    task_id: TaskId
    token: Token


class SlotRefused(OfPool, tag="pool.refused.v1"):
    """The task did not start; the slot is free again."""

    task_id: TaskId
    token: Token
    reason: str


class AttemptAccepted(OfPool, tag="pool.accepted.v1"):
    task_id: TaskId
    token: Token


class AttemptOver(OfPool, tag="pool.over.v1"):
    """The task says that the token is over; the slot waits for its runner to free it."""

    task_id: TaskId
    token: Token
    ended_well: bool = False
    failure: FailureClass | None = None
    card_ms: Milliseconds = 0


class SlotFreed(OfPool, tag="pool.freed.v1"):
    task_id: TaskId
    token: Token
    runner_id: RunnerId


class SlotLost(OfPool, tag="pool.lost.v1"):
    """The pool gives an attempt up; the task is told (`LoseAttempt`)."""

    task_id: TaskId
    token: Token
    runner_id: RunnerId
    cause: LossCause


class RunnerRegistered(OfPool, tag="pool.runner_registered.v1"):
    runner_id: RunnerId
    incarnation_id: IncarnationId
    slots: int
    spot: bool = False


class RunnerDraining(OfPool, tag="pool.runner_draining.v1"):
    runner_id: RunnerId
    incarnation_id: IncarnationId
    spot: bool = False
    notice_seconds: int = 0
    """As the runner said: in so long its card is gone; 0: it did not say."""


class RunnerGone(OfPool, tag="pool.runner_gone.v1"):
    """Its lease ended, it drained to the end, or a newer incarnation took its place."""

    runner_id: RunnerId
    incarnation_id: IncarnationId


class Unsaved(Part):
    """Work of an attempt since its last checkpoint: what a preemption would burn."""

    task_id: TaskId
    token: Token
    ms: Milliseconds


class LeaseExtended(Part):
    runner_id: RunnerId
    incarnation_id: IncarnationId
    beat: int
    missing: tuple[HeldAttempt, ...] = ()
    """What the pool counts on and this beat did not list; lost when the next lacks it too."""
    unsaved: tuple[Unsaved, ...] = ()


class LeasesExtended(OfPool, tag="pool.leases_extended.v1"):
    """The beats that were answered, several runners in one event where they came together."""

    runners: tuple[LeaseExtended, ...]


class LanePaused(OfPool, tag="pool.lane_paused.v1"):
    lane: Lane
    who: str
    why: str


class LaneResumed(OfPool, tag="pool.lane_resumed.v1"):
    lane: Lane
    who: str
    why: str
    stood_ms: Milliseconds
    """How long the lane's TTLs stood still."""


class BreakerOpened(OfPool, tag="pool.breaker_opened.v1"):
    """Too many attempts of a scene failed on this pool's cards: nothing of it starts here."""

    scene: Scene
    failed: int
    counted: int
    """Attempts of the window that `failed` is a part of; 0: a probe failed."""


class BreakerHalfOpened(OfPool, tag="pool.breaker_half_opened.v1"):
    """A few attempts are let through."""

    scene: Scene


class BreakerClosed(OfPool, tag="pool.breaker_closed.v1"):
    scene: Scene
    who: str = ""
    """Empty: its probes ended well."""
    why: str = ""


class PoolScaled(OfPool, tag="pool.scaled.v1"):
    """The number of cards that the pool wants from here on, and what it was drawn from."""

    cards: int
    cards_before: int
    reason: ScaleReason
    demand_card_seconds: int
    """Of what waits and runs."""
    wait_p95_ms: Milliseconds
    """Of the tasks that started in the look-back; 0: none did."""
    oldest_wait_ms: Milliseconds


# --- material-events, key: material -------------------------------------------------------------


class OfMaterial(Event):
    material_id: MaterialId
    user_id: UserId


class MaterialRegistered(OfMaterial, tag="material.registered.v1"):
    tenant_id: TenantId
    content_type: str
    size: Bytes
    sha256: str
    private: bytes | None = None
    part_bytes: int = 0
    seconds_max: int = 0
    upload_id: str = ""


class UploadTouched(OfMaterial, tag="material.touched.v1"):
    """The upload goes on."""


class MaterialAssembling(OfMaterial, tag="material.assembling.v1"):
    """The prober shall join, read and probe it: all that it needs for that is here."""

    tenant_id: TenantId
    number: int
    """Of the try: 1, 2, … over the whole life of the material. A higher one replaces none: the
    first verdict on this upload counts, of whichever try."""
    again: bool = False
    """By itself: nothing was heard of the try before, which may still go on."""
    content_type: str
    size: Bytes
    sha256: str
    part_bytes: int = 0
    seconds_max: int = 0
    upload_id: str = ""
    """Empty: of an older release, whose callers sent the file in one piece to `upload_key`."""


class MaterialReady(OfMaterial, tag="material.ready.v1"):
    """It is stored as declared, or its caller has proved to hold what is stored already."""

    size: Bytes
    sha256: str
    content_key: str = ""
    """The object of its content; empty: `schema.objects.material_key` (of an older release)."""
    facts: MediaFacts | None = None
    upload_id: str = ""
    """What was not needed, and shall be aborted: it was adopted. Empty: nothing."""


class MaterialRefused(OfMaterial, tag="material.refused.v1"):
    reason: str
    """One of `MaterialRefusal`, or of an older release."""
    detail: str = ""
    upload_id: str = ""
    """Whatever is left of it in the store is of no use."""


class MaterialReopened(OfMaterial, tag="material.reopened.v1"):
    """Not all parts are there: ASSEMBLING -> REGISTERED."""

    number: int
    detail: str = ""


class MaterialAborted(OfMaterial, tag="material.aborted.v1"):
    """Its upload was left lying: the store is to forget it."""

    upload_id: str = ""


class MaterialChilled(OfMaterial, tag="material.chilled.v1"):
    """READY -> COLD: no task has used it for long. Attached again it is READY at once."""


class MaterialAttached(OfMaterial, tag="material.attached.v1"):
    """A task waits for this material (or uses it, if it is ready)."""

    task_id: TaskId


QuotaEvent = (
    QuotaReserved | QuotaCommitted | QuotaReleased | ChargeRefunded | QuotaToppedUp | PolicyAdopted
)
TaskEvent = (
    TaskCreated
    | TaskMaterialConfirmed
    | TaskWaitExtended
    | TaskQueued
    | TaskMoved
    | TaskStarted
    | TaskProgressed
    | TaskStoring
    | TaskRequeued
    | TaskSucceeded
    | TaskFailed
    | TaskCanceled
    | TaskExpired
    | TaskRetried
)
PoolEvent = (
    TaskEnqueued
    | TaskMoveAsked
    | TaskDequeued
    | SlotProposed
    | SlotPreempted
    | SlotGranted
    | SlotRefused
    | AttemptAccepted
    | AttemptOver
    | SlotFreed
    | SlotLost
    | RunnerRegistered
    | RunnerDraining
    | RunnerGone
    | LeasesExtended
    | LanePaused
    | LaneResumed
    | BreakerOpened
    | BreakerHalfOpened
    | BreakerClosed
    | PoolScaled
    | PolicyAdopted
)
MaterialEvent = (
    MaterialRegistered
    | UploadTouched
    | MaterialAssembling
    | MaterialReady
    | MaterialRefused
    | MaterialReopened
    | MaterialAborted
    | MaterialChilled
    | MaterialAttached
)

# --- material-events: results, key: task ---------------------------------------------------------
# A result is there once its task is SUCCEEDED, hot and untouched; nothing is told of it until then.


class OfResult(Event):
    task_id: TaskId
    user_id: UserId
    tenant_id: TenantId


class ResultChilled(OfResult, tag="result.chilled.v1"):
    """From here on it may lie where reading costs more."""


class ResultDeleted(OfResult, tag="result.deleted.v1"):
    """The tombstone: its objects are deleted from here on."""

    reason: ResultEnd


class ResultWithheld(OfResult, tag="result.withheld.v1"):
    reason: str
    who: str


class ResultRestored(OfResult, tag="result.restored.v1"):
    """Withheld no longer (then as hot or cold as it was), or hot again."""

    cold: bool
    """What it is from here on."""
    who: str
    why: str


class ResultPublished(OfResult, tag="result.published.v1"):
    by: TaskId
    """The task that makes it in full size; its own: it was that already."""


class ResultsDelivered(Event, tag="result.delivered.v1"):
    """What an api instance handed out. Key: the instance (`source`)."""

    source: str
    deliveries: tuple[Delivery, ...]


ResultEvent = (
    ResultChilled
    | ResultDeleted
    | ResultWithheld
    | ResultRestored
    | ResultPublished
    | ResultsDelivered
)
AnyEvent = QuotaEvent | TaskEvent | PoolEvent | MaterialEvent | ResultEvent
