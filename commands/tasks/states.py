"""The states of a task, one type each with only the fields that it has, and the moves between them.

A state is its own row, under the task's id. QUEUED has two types: `Queued` waits at its pool,
`Delayed` waits for its retry delay and is not at the pool. RUNNING has two: `Running`, and
`Storing` once the work is done and its files are being stored. `until_ms` and `end_until_ms` are
instants of the served clock of task-commands, as is `started_served_ms`; `started_ms` is log time.
"""

from typing import Any, Final, dataclass_transform

import msgspec

from schema import events as e
from schema.commands import InputLimits
from schema.ids import (
    AccountId,
    IncarnationId,
    MaterialId,
    PoolId,
    ReservationId,
    RunnerId,
    TenantId,
    TraceId,
    UserId,
)
from schema.message import KeywordOnly, Parameters
from schema.policy import Price
from schema.words import CancelCause, Lane, Scene, Status


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(msgspec.field,))
class Row(msgspec.Struct, metaclass=KeywordOnly, frozen=True, array_like=True, gc=False):
    """Compact on the wire: an array. Fields are only ever added at the end, with a default."""


class Spec(Row):
    """What was asked: fixed when the task is created, but for where and how richly it is made."""

    user_id: UserId
    tenant_id: TenantId
    account_id: AccountId
    scene: Scene
    lane: Lane
    pool_id: PoolId
    run_limit_seconds: int
    parameters: Parameters
    material_ids: tuple[MaterialId, ...]
    trace_id: TraceId
    weight: int = 0
    deadline_ms: int | None = None
    """When its caller wants it, in the served clock; gone with a retry by hand."""
    can_lower: bool = False
    """Whether it can be made with less."""
    lowered: bool = False
    """It is made with less from here on."""
    moved: bool = False
    """It waits elsewhere than at first. Once: it is not moved again."""
    content_keys: dict[MaterialId, str] = {}
    """The objects of its materials, as they were confirmed; none: of an older release."""
    private: bytes | None = None
    """Sealed words of its user. Never read here: they go with the dispatch."""


class Hold(Row):
    """The reservation that pays for it. A manual retry brings another one."""

    taken: tuple[ReservationId, ...]
    """Every reservation that it ever took: the last one is held, earlier ones are resolved."""
    reserved_micros: int
    price: Price
    since_token: int
    """The last token before it was taken: a higher one ran on this reservation."""

    @property
    def reservation_id(self) -> ReservationId:
        return self.taken[-1]


class Course(Row):
    """How far the attempts came."""

    token: int = 0
    """The last token that was granted; 0: none."""
    retries: int = 0
    """Counted failures since the last retry by hand."""
    losses: int = 0
    """Losses that burn no retry."""
    percent: int = 0
    """The highest milestone of any attempt."""
    checkpoint: str = ""
    """What the next attempt begins from."""
    ended_by: str = ""
    """The failure or loss that ended the last token, so that it is known when told twice."""
    preemptions: int = 0
    """How often it made room for a better task; the pool's budget, also over a retry by hand."""


class Absent(Row):
    """No such task, or none that is remembered. Never a row."""

    seq: int = 0


class _Kept(Row):
    """What a task has until it is SUCCEEDED, CANCELED or EXPIRED."""

    seq: int
    spec: Spec
    hold: Hold
    course: Course = Course()

    @property
    def user_id(self) -> UserId:
        return self.spec.user_id

    @property
    def tenant_id(self) -> TenantId:
        return self.spec.tenant_id

    @property
    def token(self) -> int:
        return self.course.token

    @property
    def taken(self) -> tuple[ReservationId, ...]:
        return self.hold.taken


class Created(_Kept, tag="created"):
    """Waits for material."""

    missing: tuple[MaterialId, ...]
    wait_ms: int
    """How long it waits after the last sign that an upload goes on."""
    until_ms: int
    end_until_ms: int
    """It waits no longer than this, whatever is uploaded."""
    input_limits: InputLimits | None = None
    """What its tier takes of each; None: none is held against them."""


class Queued(_Kept, tag="queued"):
    """Waits at its pool, which has the word on how long. If its word was lost, the task asks anew.

    A backstop, and no end: a pause or an outage may well be longer, and the pool that has it
    waiting does nothing when it is told so again.
    """

    until_ms: int | None = None
    """When it asks its pool again; None: of an older release, which never did."""
    asks: int = 0
    """How often it has asked again: the next time, it waits longer."""


class Delayed(_Kept, tag="delayed"):
    """Waits for its retry delay; then it goes to its pool."""

    until_ms: int


class Running(_Kept, tag="running"):
    """One attempt, `course.token`, is granted and current."""

    pool_id: PoolId
    runner_id: RunnerId
    incarnation_id: IncarnationId
    started_ms: int
    until_ms: int
    """The backstop: RUNNING ends then, whatever else happened."""
    started_served_ms: int | None = None
    """When it started; None: of an older release."""
    lease_seconds: int = 0
    """As its runner was told: so long it works on without a word from here."""


class Storing(_Kept, tag="storing"):
    """The work of the current attempt is done, its result is being stored."""

    pool_id: PoolId
    runner_id: RunnerId
    incarnation_id: IncarnationId
    ran_ms: int
    """From the start to the end of the work: log time, as far as somebody was there to serve."""
    until_ms: int
    card_ms: int = 0
    """The card time of the work, as its runner told it."""


class Failed(_Kept, tag="failed"):
    """May be retried by hand until the row is forgotten; its reservation is resolved."""

    until_ms: int


class _Ended(Row):
    """What is remembered of a task at its end; `until_ms`: it counts as absent from then on."""

    seq: int
    user_id: UserId
    tenant_id: TenantId
    taken: tuple[ReservationId, ...]
    token: int
    until_ms: int


class Succeeded(_Ended, tag="succeeded"):
    pass


class Canceled(_Ended, tag="canceled"):
    cause: CancelCause


class Expired(_Ended, tag="expired"):
    pass


TaskRow = Created | Queued | Delayed | Running | Storing | Succeeded | Failed | Canceled | Expired
TaskState = Absent | TaskRow
AttemptState = Running | Storing
ROW: Final[Any] = TaskRow
"""What the rows are decoded as."""
INITIAL: Final = Absent()

STATUSES: Final[dict[type[TaskRow], Status]] = {
    Created: Status.CREATED,
    Queued: Status.QUEUED,
    Delayed: Status.QUEUED,
    Running: Status.RUNNING,
    Storing: Status.RUNNING,
    Succeeded: Status.SUCCEEDED,
    Failed: Status.FAILED,
    Canceled: Status.CANCELED,
    Expired: Status.EXPIRED,
}

TRANSITIONS: Final[dict[tuple[type[TaskState], type[e.TaskEvent]], type[TaskRow]]] = {
    (Absent, e.TaskCreated): Created,
    (Created, e.TaskMaterialConfirmed): Created,
    (Created, e.TaskWaitExtended): Created,
    (Created, e.TaskQueued): Queued,
    (Created, e.TaskCanceled): Canceled,
    (Created, e.TaskExpired): Expired,
    (Queued, e.TaskMoved): Queued,
    (Queued, e.TaskStarted): Running,
    (Queued, e.TaskCanceled): Canceled,
    (Queued, e.TaskExpired): Expired,
    (Delayed, e.TaskQueued): Queued,
    (Delayed, e.TaskCanceled): Canceled,
    (Running, e.TaskProgressed): Running,
    (Running, e.TaskStoring): Storing,
    (Running, e.TaskRequeued): Delayed,
    (Running, e.TaskSucceeded): Succeeded,
    (Running, e.TaskFailed): Failed,
    (Running, e.TaskCanceled): Canceled,
    (Storing, e.TaskProgressed): Storing,
    (Storing, e.TaskRequeued): Delayed,
    (Storing, e.TaskSucceeded): Succeeded,
    (Storing, e.TaskFailed): Failed,
    (Storing, e.TaskCanceled): Canceled,
    (Failed, e.TaskRetried): Queued,
}
"""Every move there is, as data; `evolve` says the same as code, and a test holds them together."""

ENDED: Final = (Succeeded, Failed, Canceled, Expired)


def due_ms(row: TaskRow) -> int | None:
    """When (served clock) something is due by itself: an end, an ask, or that it is forgotten."""
    return row.until_ms
