"""Results after their task has ended: hot, cold, withheld, deleted; and what was handed out.

A result is there once its task is SUCCEEDED, and then it is hot; nothing is remembered of one that
nothing has happened to. Age is no business of this decider: a sweep proposes what is old enough,
and says which event of the result it has seen. The tombstone is an event; objects go after it.

A preview and the results that make it in full size are one work: withheld or restored, each takes
the others along. A task that came to nothing and was followed by another may be retried by hand, so
the preview knows all that ever published it (`published_by` and `published_before`), not only the
newest; of those, who asks says which preview it is.

Read the states, the table of moves, `decide` with its branches, `evolve`; then `handle` and
`on_due`, which the shell calls. Rows stand under the task's id, deliveries under their source.
"""

from typing import Any, Final, assert_never, dataclass_transform

import msgspec

from commands.decider import Decision, ImpossibleEventError, Now, Rows, TimerDue, wire_name
from schema import commands as c
from schema import events as e
from schema.ids import CommandId, EventId, TaskId, TenantId, UserId, event_id_of, follow_up_id
from schema.message import KeywordOnly
from schema.refusals import Refusal
from schema.replies import Accepted, CommandRefused, Refused, ReplyMessage
from schema.routes import ResultBound

FORGET_MS: Final = 2 * 24 * 3_600_000
"""So long after its tombstone a result is remembered here; the read models remember it on."""
RECENT_MAX: Final = 16
"""How many of the last commands of a source are remembered, to know one told twice."""

ResultDecision = Decision[e.ResultEvent]
NOTHING: Final[ResultDecision] = Decision()


# --- states ---------------------------------------------------------------------------------------


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(msgspec.field,))
class Row(msgspec.Struct, metaclass=KeywordOnly, frozen=True, array_like=True, gc=False):
    """Compact on the wire: an array. Fields are only ever added at the end, with a default."""


class Untouched(Row):
    """Hot, and nothing ever happened to it; or there is no such result. Never a row."""

    seq: int = 0


class _Kept(Row):
    seq: int
    user_id: UserId
    tenant_id: TenantId
    published_by: str = ""
    """The task that makes it in full size, or its own; empty: it is not published."""


class Hot(_Kept, tag="result_hot"):
    published_before: tuple[str, ...] = ()
    """Who published it before `published_by`, oldest first: each may still come to a result."""


class Cold(_Kept, tag="result_cold"):
    published_before: tuple[str, ...] = ()


class Withheld(_Kept, tag="result_withheld"):
    """Nobody is handed an address of it."""

    cold: bool = False
    """What it is again when it is restored."""
    reason: str = ""
    who: str = ""
    published_before: tuple[str, ...] = ()


class Deleted(_Kept, tag="result_deleted"):
    """Its tombstone stands. Forgotten at `until_ms`, in the served clock of task-commands."""

    until_ms: int = 0
    published_before: tuple[str, ...] = ()


class Deliveries(Row, tag="deliveries"):
    """Of one api instance."""

    seq: int
    recent: tuple[CommandId, ...] = ()


KeptRow = Hot | Cold | Withheld | Deleted
ResultRow = KeptRow | Deliveries
ResultState = Untouched | KeptRow
ROW: Final[Any] = ResultRow
INITIAL: Final = Untouched()

STATUSES: Final[dict[type[KeptRow], str]] = {
    Hot: "HOT",
    Cold: "COLD",
    Withheld: "WITHHELD",
    Deleted: "DELETED",
}
"""What a reply calls the state."""

TRANSITIONS: Final[dict[tuple[type[ResultState], type[e.OfResult]], frozenset[type[KeptRow]]]] = {
    (Untouched, e.ResultChilled): frozenset({Cold}),
    (Untouched, e.ResultDeleted): frozenset({Deleted}),
    (Untouched, e.ResultWithheld): frozenset({Withheld}),
    (Untouched, e.ResultPublished): frozenset({Hot}),
    (Hot, e.ResultChilled): frozenset({Cold}),
    (Hot, e.ResultDeleted): frozenset({Deleted}),
    (Hot, e.ResultWithheld): frozenset({Withheld}),
    (Hot, e.ResultPublished): frozenset({Hot}),
    (Cold, e.ResultRestored): frozenset({Hot}),
    (Cold, e.ResultDeleted): frozenset({Deleted}),
    (Cold, e.ResultWithheld): frozenset({Withheld}),
    (Cold, e.ResultPublished): frozenset({Cold}),
    (Withheld, e.ResultRestored): frozenset({Hot, Cold}),
    (Withheld, e.ResultPublished): frozenset({Withheld}),
    (Withheld, e.ResultDeleted): frozenset({Deleted}),
}
"""Every move there is, as data; `evolve` says the same as code, and a test holds them together."""


# --- decide ---------------------------------------------------------------------------------------


def decide(state: ResultState, command: ResultBound, now: Now) -> ResultDecision:
    """What follows from the command, in this state, now."""
    if not isinstance(state, Untouched) and (
        state.user_id != command.user_id or state.tenant_id != command.tenant_id
    ):
        return _refuse(command, now, Refusal.NOT_YOURS)
    match command:
        case c.ChillResult():
            return _chill(state, command, now)
        case c.DeleteResult():
            return _delete(state, command, now)
        case c.WithholdResult():
            return _withhold(state, command, now)
        case c.RestoreResult():
            return _restore(state, command, now)
        case c.PublishResult():
            return _publish(state, command, now)
        case _:
            assert_never(command)


def _chill(state: ResultState, command: c.ChillResult, now: Now) -> ResultDecision:
    """Only what the sweep has seen as it is: it may have been restored since."""
    match state:
        case Untouched() | Hot() if command.seq == state.seq:
            return Decision((e.ResultChilled(**_of(state, command, now)),))
        case Untouched() | Hot() | Cold() | Withheld() | Deleted():
            return NOTHING
        case _:
            assert_never(state)


def _delete(state: ResultState, command: c.DeleteResult, now: Now) -> ResultDecision:
    match state:
        case Untouched() if command.seq:
            return NOTHING  # there was a tombstone, and it is forgotten here
        case Untouched() | Hot() | Cold() | Withheld():
            return Decision((e.ResultDeleted(**_of(state, command, now), reason=command.reason),))
        case Deleted():
            return NOTHING
        case _:
            assert_never(state)


def _withhold(state: ResultState, command: c.WithholdResult, now: Now) -> ResultDecision:
    match state:
        case Untouched() | Hot() | Cold():
            event = e.ResultWithheld(
                **_of(state, command, now), reason=command.reason, who=command.who
            )
            reply = _accepted(command, now, event.seq, Withheld)
            return Decision((event,), _others(state, command, event.event_id), reply)
        case Withheld():
            return Decision(reply=_accepted(command, now, state.seq, Withheld))
        case Deleted():
            return _refuse(command, now, Refusal.RESULT_DELETED)
        case _:
            assert_never(state)


def _restore(state: ResultState, command: c.RestoreResult, now: Now) -> ResultDecision:
    match state:
        case Cold() | Withheld():
            cold = isinstance(state, Withheld) and state.cold
            event = e.ResultRestored(
                **_of(state, command, now), cold=cold, who=command.who, why=command.why
            )
            reply = _accepted(command, now, event.seq, Cold if cold else Hot)
            # Made hot again, it alone is.
            others = _others(state, command, event.event_id) if isinstance(state, Withheld) else ()
            return Decision((event,), others, reply)
        case Untouched() | Hot():
            return Decision(reply=_accepted(command, now, state.seq, Hot))
        case Deleted():
            return _refuse(command, now, Refusal.RESULT_DELETED)
        case _:
            assert_never(state)


def _publish(state: ResultState, command: c.PublishResult, now: Now) -> ResultDecision:
    match state:
        case Hot() | Cold() if state.published_by == command.by:
            return Decision(reply=_accepted(command, now, state.seq, type(state)))
        case Untouched() | Hot() | Cold():
            event = e.ResultPublished(**_of(state, command, now), by=command.by)
            kind = Cold if isinstance(state, Cold) else Hot
            return Decision((event,), reply=_accepted(command, now, event.seq, kind))
        case Withheld() if command.by == command.task_id:
            return _refuse(command, now, Refusal.RESULT_WITHHELD)
        case Withheld() if command.by in _publishers(state):
            return Decision(reply=_accepted(command, now, state.seq, Withheld))
        case Withheld():  # its task was accepted before it was withheld: that result goes with it
            event = e.ResultPublished(**_of(state, command, now), by=command.by)
            reply = _accepted(command, now, event.seq, Withheld)
            held = c.WithholdResult(
                command_id=follow_up_id(event.event_id, "w"),
                task_id=command.by,
                user_id=command.user_id,
                tenant_id=command.tenant_id,
                reason=state.reason,
                who=state.who,
            )
            return Decision((event,), (held,), reply)
        case Deleted():
            return _refuse(command, now, Refusal.RESULT_DELETED)
        case _:
            assert_never(state)


def _others(
    state: ResultState, command: c.WithholdResult | c.RestoreResult, event_id: EventId
) -> tuple[c.WithholdResult | c.RestoreResult, ...]:
    """The same for the results that are the same work; told of one that is so, it does nothing."""
    named = dict.fromkeys((*_publishers(state), command.publishes or ""))
    return tuple(
        msgspec.structs.replace(
            command,
            command_id=follow_up_id(event_id, f"o{number}"),
            task_id=TaskId(task_id),
            publishes=None,
            reply_to=None,
        )
        for number, task_id in enumerate(named)
        if task_id not in ("", command.task_id)
    )


def _publishers(state: ResultState) -> tuple[str, ...]:
    """All that ever published it: the newest first, empty if nobody did."""
    if isinstance(state, Untouched):
        return ("",)
    return state.published_by, *state.published_before


def _before(state: ResultState, by: TaskId) -> tuple[str, ...]:
    """Who published it before `by` does."""
    if isinstance(state, Untouched):
        return ()
    known = (*state.published_before, state.published_by)
    return tuple(one for one in known if one not in ("", by))


def _of(state: ResultState, command: ResultBound, now: Now) -> dict[str, Any]:
    """What every event of a result carries."""
    return {
        "event_id": event_id_of(command.command_id, state.seq),
        "seq": state.seq + 1,
        "at": now.at,
        "task_id": command.task_id,
        "user_id": command.user_id,
        "tenant_id": command.tenant_id,
    }


# --- evolve ---------------------------------------------------------------------------------------


def evolve(state: ResultState, event: e.OfResult, served_ms: int) -> KeptRow:
    """The next state; raises ImpossibleEventError."""
    if event.seq != state.seq + 1 or isinstance(state, Deleted):
        raise ImpossibleEventError(state, event)
    kept: dict[str, Any] = {
        "seq": event.seq,
        "user_id": event.user_id,
        "tenant_id": event.tenant_id,
        "published_by": "" if isinstance(state, Untouched) else state.published_by,
        "published_before": () if isinstance(state, Untouched) else state.published_before,
    }
    match event:
        case e.ResultChilled() if isinstance(state, Untouched | Hot):
            return Cold(**kept)
        case e.ResultWithheld() if not isinstance(state, Withheld):
            return Withheld(
                **kept, cold=isinstance(state, Cold), reason=event.reason, who=event.who
            )
        case e.ResultRestored() if isinstance(state, Withheld) or (
            isinstance(state, Cold) and not event.cold
        ):
            return Cold(**kept) if event.cold else Hot(**kept)
        case e.ResultPublished() if isinstance(state, Withheld):
            before = _before(state, event.by)
            return msgspec.structs.replace(
                state, seq=event.seq, published_by=event.by, published_before=before
            )
        case e.ResultPublished():
            published: dict[str, Any] = {
                **kept,
                "published_by": event.by,
                "published_before": _before(state, event.by),
            }
            return Cold(**published) if isinstance(state, Cold) else Hot(**published)
        case e.ResultDeleted():
            return Deleted(**kept, until_ms=served_ms + FORGET_MS)
        case _:
            raise ImpossibleEventError(state, event)


# --- refuse, answer -------------------------------------------------------------------------------


def _accepted(
    command: c.WithholdResult | c.RestoreResult | c.PublishResult,
    now: Now,
    seq: int,
    kind: type[KeptRow],
) -> Accepted | None:
    if command.reply_to is None:
        return None
    return Accepted(
        command_id=command.command_id,
        key=command.task_id,
        at=now.at,
        seq=seq,
        status=STATUSES[kind],
    )


def _refuse(command: ResultBound, now: Now, reason: Refusal) -> ResultDecision:
    reply: ReplyMessage | None = None
    if getattr(command, "reply_to", None) is not None:
        reply = Refused(
            command_id=command.command_id, key=command.task_id, at=now.at, reason=reason
        )
    fact = CommandRefused(
        command_id=command.command_id,
        command=wire_name(command),
        key=command.task_id,
        user_id=command.user_id,
        at=now.at,
        reason=reason,
    )
    return Decision(reply=reply, refusal=fact)


# --- rows -----------------------------------------------------------------------------------------


def handle(rows: Rows[ResultRow], command: c.ResultCommand, now: Now) -> ResultDecision:
    """Decide on the row of the result (or of the source), and put what becomes of it."""
    if isinstance(command, c.CountDeliveries):
        return _count(rows, command, now)
    row = rows.get(command.task_id)
    state: ResultState = INITIAL if row is None or isinstance(row, Deliveries) else row
    decision = decide(state, command, now)
    for event in decision.events:
        if isinstance(event, e.OfResult):
            state = evolve(state, event, now.served_ms)
            rows.put(command.task_id, state)
    return decision


def _count(rows: Rows[ResultRow], command: c.CountDeliveries, now: Now) -> ResultDecision:
    """Sums only: told twice it is counted once."""
    row = rows.get(command.source)
    known = row if isinstance(row, Deliveries) else Deliveries(seq=0)
    if command.command_id in known.recent or not command.deliveries:
        return NOTHING
    event = e.ResultsDelivered(
        event_id=event_id_of(command.command_id, known.seq),
        seq=known.seq + 1,
        at=now.at,
        source=command.source,
        deliveries=command.deliveries,
    )
    recent = (*known.recent, command.command_id)[-RECENT_MAX:]
    rows.put(command.source, Deliveries(seq=event.seq, recent=recent))
    return Decision((event,))


def due_ms(row: ResultRow) -> int | None:
    """When (served clock) it is forgotten by itself."""
    return row.until_ms if isinstance(row, Deleted) else None


def on_due(rows: Rows[ResultRow], timer: TimerDue, now: Now) -> ResultDecision:
    """Forget a tombstone whose time has passed."""
    row = rows.get(timer.key)
    if isinstance(row, Deleted) and row.until_ms <= now.served_ms:
        rows.delete(timer.key)
    return NOTHING
