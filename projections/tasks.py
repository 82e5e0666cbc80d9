"""Tasks: their rows and their events, from `task-events`.

A milestone is an event and writes no row: its percent is read from `task_events`. Rows that are
made in a batch are copied in whole; the others are changed by one statement. Each token that was
started has a row in `task_attempts`; what attempts burnt is added up in `pool_waste`.

What a checkpoint keeps of an attempt (`saved_ms`) is no waste as long as another one may go on from
it. When it is given up it is: so all card time is of use, kept, or waste.
"""

from collections.abc import Callable, Sequence
from datetime import datetime
from operator import attrgetter
from pathlib import Path
from typing import Any, ClassVar, Final, NamedTuple

from projections.folding import Db, Fact, Seqs, change, copy, put, storable
from schema import events as e
from schema.codec import encode
from schema.ids import shard_of
from schema.topics import Topic
from schema.words import LossCause, Status

_SQL: Final = (Path(__file__).parent / "sql" / "tasks.sql").read_text().split("\n-- ;;\n")
_LAST_SEQS, _MERGE, _START_ATTEMPTS, _END_ATTEMPTS, _ADD_WASTE, _DROP = _SQL
_EVENT_COLUMNS: Final = (
    "task_id", "seq", "user_id", "log_partition", "log_offset", "kind", "at", "body",
)  # fmt: skip


class _Row:
    """What a batch does to one task. None: the column stays as it is (for a new row: NULL)."""

    def __init__(self, task_id: str) -> None:
        self.shard = shard_of(task_id)
        self.task_id = task_id

    shard: int
    task_id: str
    user_id: str | None = None
    tenant_id: str | None = None
    account_id: str | None = None
    scene: str | None = None
    tier: str | None = None
    lane: str | None = None
    pool_id: str | None = None
    status: str | None = None
    seq: int
    token: int | None = None
    retries: int = 0
    losses: int = 0
    storing: bool | None = None
    publishes: str | None = None
    fingerprint: str | None = None
    parameters: str | None = None
    material_ids: list[str] | None = None
    private: bytes | None = None
    policy_version: int | None = None
    reservation_id: str | None = None
    reserved_micros: int | None = None
    charge_micros: int | None = None
    run_limit_seconds: int | None = None
    trace_id: str | None = None
    runner_id: str | None = None
    failure: str | None = None
    last_failure: str | None = None
    loss: str | None = None
    message: str | None = None
    cause: str | None = None
    reason: str | None = None
    files: str | None = None
    facts: str | None = None
    card_ms: int = 0
    card_measured: bool = True
    lower_spec: bool | None = None
    deadline_seconds: int | None = None
    created_at: datetime | None = None
    queued_at: datetime | None = None
    started_at: datetime | None = None
    ended_at: datetime | None = None
    updated_at: datetime
    reset: bool = False
    """Retried by hand: counters and the end begin anew."""
    verdict: bool = False
    """Failure, last failure, loss and message are set together, absent ones to NULL."""

    def judge(
        self,
        failure: str | None = None,
        last_failure: str | None = None,
        loss: str | None = None,
        message: str | None = None,
    ) -> None:
        """What went wrong last, or that nothing did."""
        self.failure, self.last_failure, self.loss = failure, last_failure, loss
        self.message = storable(message) if message else None
        self.verdict = True

    def spend(self, card_ms: int, *, measured: bool) -> None:
        """Card time of an attempt that is over."""
        self.card_ms += card_ms
        self.card_measured = self.card_measured and measured


class _Start(NamedTuple):
    """An attempt that began. None: the task's row says."""

    shard: int
    task_id: str
    token: int
    pool_id: str
    lane: str | None
    scene: str | None
    runner_id: str
    queued_at: datetime | None
    started_at: datetime


class _End(NamedTuple):
    """An attempt that is over."""

    task_id: str
    token: int
    ended_at: datetime
    outcome: str
    cause: str | None
    card_ms: int
    saved_ms: int
    card_measured: bool


class _Drop(NamedTuple):
    """What was kept of a task's attempts is given up."""

    task_id: str
    above: int
    """Attempts up to this token have nothing to give up any more."""
    upto: int
    cause: str


_GOES_ON: Final = (None,) * len(_End._fields[2:])


class _Batch:
    """What a batch does to tasks and attempts."""

    def __init__(self) -> None:
        self.rows: dict[str, _Row] = {}
        self.starts: list[_Start] = []
        self.ends: dict[tuple[str, int], _End] = {}
        self.drops: dict[str, list[_Drop]] = {}

    def fold(self, event: e.TaskEvent) -> None:
        """One event, in order."""
        if type(event) is e.TaskProgressed:
            return
        row = self.rows.get(event.task_id)
        if row is None:
            row = self.rows[event.task_id] = _Row(event.task_id)
        row.seq = event.seq
        row.updated_at = event.at
        _FOLDS[type(event)](row, event)
        if isinstance(event, e.TaskStarted):
            self.starts.append(_start(row, event))
        elif (end := _end(event)) is not None:
            self.ends.setdefault((end.task_id, end.token), end)
        if (given_up := _given_up(event)) is not None:
            drops = self.drops.setdefault(event.task_id, [])
            upto, cause = given_up
            above = drops[-1].upto if drops else 0
            if upto > above:
                drops.append(_Drop(event.task_id, above, upto, cause))

    async def write(self, db: Db) -> None:
        """Attempts first: what they don't know of their task stands there as it was."""
        ends = [self.ends.pop((one.task_id, one.token), None) for one in self.starts]
        started = [
            (*start, *(_GOES_ON if end is None else end[2:]))
            for start, end in zip(self.starts, ends, strict=True)
        ]
        await put(db, _START_ATTEMPTS, started)
        await put(db, _ADD_WASTE, _waste(self.starts, ends))
        await put(db, _END_ATTEMPTS, list(self.ends.values()))
        await put(db, _DROP, [drop for drops in self.drops.values() for drop in drops])
        new = [_new_values(row) for row in self.rows.values() if row.created_at is not None]
        changed = [_changed_values(row) for row in self.rows.values() if row.created_at is None]
        await copy(db, "tasks", _NEW_COLUMNS, new)
        await change(db, _MERGE, changed)


_NEW_COLUMNS: Final = tuple(
    name for name in _Row.__annotations__ if name not in ("reset", "verdict")
)
_CHANGED_COLUMNS: Final = (
    "shard", "task_id", "seq", "updated_at", "reset", "verdict", "status", "token", "retries",
    "losses", "storing", "policy_version", "reservation_id", "reserved_micros", "charge_micros",
    "runner_id", "failure", "last_failure", "loss", "message", "cause", "reason", "files", "facts",
    "card_ms", "card_measured", "lower_spec", "pool_id", "lane", "queued_at", "started_at",
    "ended_at",
)  # fmt: skip
_new_values: Final = attrgetter(*_NEW_COLUMNS)
_changed_values: Final = attrgetter(*_CHANGED_COLUMNS)


class Tasks:
    """The fold of `task-events`."""

    name: ClassVar[str] = "tasks"
    topic: ClassVar[Topic] = Topic.TASK_EVENTS
    tables: ClassVar[tuple[str, ...]] = (
        "tasks",
        "task_events",
        "task_attempts",
        "pool_waste",
    )

    def __init__(self) -> None:
        self._seqs = Seqs()

    def forget(self) -> None:
        self._seqs.forget()

    async def apply(self, db: Db, facts: Sequence[Fact]) -> None:
        """Every event once into `task_events`, and the rows that they change."""
        unknown = self._seqs.unknown(fact.message.task_id for fact in facts)
        if unknown:
            shards = [shard_of(task_id) for task_id in unknown]
            found = await db.fetch(_LAST_SEQS, unknown, shards)
            self._seqs.learn(unknown, {row["task_id"]: row["seq"] for row in found})
        events: list[tuple[Any, ...]] = []
        batch = _Batch()
        for fact in facts:
            event = fact.message
            if not self._seqs.is_next(fact, event.task_id, event.seq):
                continue
            events.append(_event_row(fact))
            batch.fold(event)
        await copy(db, "task_events", _EVENT_COLUMNS, events)
        await batch.write(db)


def _event_row(fact: Fact) -> tuple[Any, ...]:
    event = fact.message
    return (
        event.task_id,
        event.seq,
        event.user_id,
        fact.partition,
        fact.offset,
        event.__struct_config__.tag,
        event.at,
        fact.value.decode(),
    )


def _waste(starts: Sequence[_Start], ends: Sequence[_End | None]) -> list[tuple[Any, ...]]:
    """What attempts burnt that began and ended within the batch, by pool and cause."""
    sums: dict[tuple[str, str], list[int]] = {}
    for start, end in zip(starts, ends, strict=True):
        if end is not None and end.cause is not None:
            found = sums.setdefault((start.pool_id, end.cause), [0, 0, 0])
            found[0] += 1
            found[1] += end.card_ms
            found[2] += end.card_ms - min(end.saved_ms, end.card_ms)
    return [(*key, *counts) for key, counts in sums.items()]


def _start(row: _Row, event: e.TaskStarted) -> _Start:
    return _Start(
        row.shard,
        event.task_id,
        event.token,
        event.pool_id,
        row.lane,
        row.scene,
        event.runner_id,
        row.queued_at,
        event.at,
    )


def _end(event: e.TaskEvent) -> _End | None:
    """The attempt that the event ends, if one was running."""
    match event:
        case e.TaskSucceeded():
            return _end_of(event, "succeeded", None)
        case e.TaskRequeued():
            outcome = "lost" if event.loss else "failed"
            return _end_of(event, outcome, event.loss or event.failure, event.saved_ms)
        case e.TaskFailed():
            cause = event.loss or event.last_failure or event.failure
            return _end_of(event, "lost" if event.loss else "failed", cause)
        case e.TaskCanceled():
            return _end_of(event, "canceled", "canceled")
        case _:
            return None


def _given_up(event: e.TaskEvent) -> tuple[int, str] | None:
    """Up to which token nobody goes on any more from what was kept, and why."""
    match event:
        case e.TaskRequeued() if event.counted:
            return event.token, event.loss or event.failure or "failed"
        case e.TaskRequeued() if event.started_anew:
            return event.token - 1, "started_anew"
        case e.TaskFailed():
            return event.token, event.loss or event.last_failure or event.failure
        case e.TaskCanceled():
            return event.token, "canceled"
        case e.TaskExpired():
            return event.token, "expired"
        case e.TaskSucceeded() if event.facts.get("started_anew"):
            return event.token - 1, "started_anew"
        case _:
            return None


def _end_of(
    event: e.TaskSucceeded | e.TaskRequeued | e.TaskFailed | e.TaskCanceled,
    outcome: str,
    cause: str | None,
    saved_ms: int = 0,
) -> _End:
    measured = event.card_measured if not isinstance(event, e.TaskSucceeded) else True
    return _End(
        event.task_id, event.token, event.at, outcome, cause, event.card_ms, saved_ms, measured
    )


def _created(row: _Row, event: e.TaskCreated) -> None:
    origin = event.origin
    row.user_id, row.tenant_id = event.user_id, origin.tenant_id
    row.account_id, row.scene, row.tier = origin.account_id, origin.scene, origin.tier
    row.lane, row.pool_id, row.status = event.lane, event.pool_id, Status.CREATED
    row.token, row.storing, row.publishes = 0, False, origin.publishes
    row.fingerprint, row.trace_id = origin.fingerprint, origin.trace_id
    row.parameters = encode(origin.parameters).decode()
    row.material_ids, row.private = list(origin.material_ids), origin.private
    row.policy_version, row.reservation_id = event.policy_version, event.reservation_id
    row.reserved_micros, row.run_limit_seconds = event.reserved_micros, event.run_limit_seconds
    row.deadline_seconds, row.lower_spec = event.deadline_seconds, False
    row.created_at = event.at


def _waits(_row: _Row, _event: e.TaskMaterialConfirmed | e.TaskWaitExtended) -> None:
    """Only that it happened."""


def _queued(row: _Row, event: e.TaskQueued) -> None:
    row.status, row.queued_at = Status.QUEUED, event.at
    row.pool_id, row.lane = event.pool_id, event.lane


def _moved(row: _Row, event: e.TaskMoved) -> None:
    """It has waited since it was queued, wherever that is from here on."""
    row.pool_id, row.lane = event.pool_id, event.lane
    if event.lower_spec:
        row.lower_spec = True


def _started(row: _Row, event: e.TaskStarted) -> None:
    row.status, row.token, row.runner_id = Status.RUNNING, event.token, event.runner_id
    row.started_at, row.storing = event.at, False


def _storing(row: _Row, _event: e.TaskStoring) -> None:
    row.storing = True


def _requeued(row: _Row, event: e.TaskRequeued) -> None:
    row.status, row.queued_at, row.storing = Status.QUEUED, event.at, False
    row.retries += event.counted
    # What it gave up for another task is none: preemptions have a budget of their own.
    row.losses += not event.counted and event.loss is not LossCause.PREEMPTED
    if event.lower_spec:
        row.lower_spec = True
    row.spend(event.card_ms, measured=event.card_measured)
    row.judge(failure=event.failure, loss=event.loss, message=event.message)


def _succeeded(row: _Row, event: e.TaskSucceeded) -> None:
    row.status, row.ended_at, row.storing = Status.SUCCEEDED, event.at, False
    row.files, row.facts = encode(event.files).decode(), encode(event.facts).decode()
    row.spend(event.card_ms, measured=True)
    row.charge_micros = event.charge_micros
    row.judge()


def _failed(row: _Row, event: e.TaskFailed) -> None:
    row.status, row.ended_at, row.storing = Status.FAILED, event.at, False
    row.spend(event.card_ms, measured=event.card_measured)
    row.charge_micros = 0
    row.judge(event.failure, event.last_failure, event.loss, event.message)


def _canceled(row: _Row, event: e.TaskCanceled) -> None:
    row.status, row.ended_at, row.storing = Status.CANCELED, event.at, False
    row.cause, row.reason = event.cause, storable(event.reason) or None
    row.spend(event.card_ms, measured=event.card_measured)
    row.charge_micros = event.charge_micros


def _expired(row: _Row, event: e.TaskExpired) -> None:
    row.status, row.ended_at, row.storing = Status.EXPIRED, event.at, False
    row.charge_micros = 0


def _retried(row: _Row, event: e.TaskRetried) -> None:
    row.status, row.queued_at = Status.QUEUED, event.at
    row.policy_version, row.reservation_id = event.policy_version, event.reservation_id
    row.reserved_micros = event.reserved_micros
    row.retries = row.losses = 0
    row.ended_at = row.charge_micros = None
    row.reset = True
    row.judge()


_FOLDS: Final[dict[type, Callable[[_Row, Any], None]]] = {
    e.TaskCreated: _created,
    e.TaskMaterialConfirmed: _waits,
    e.TaskWaitExtended: _waits,
    e.TaskQueued: _queued,
    e.TaskMoved: _moved,
    e.TaskStarted: _started,
    e.TaskStoring: _storing,
    e.TaskRequeued: _requeued,
    e.TaskSucceeded: _succeeded,
    e.TaskFailed: _failed,
    e.TaskCanceled: _canceled,
    e.TaskExpired: _expired,
    e.TaskRetried: _retried,
}
"""Every event but the milestone."""
