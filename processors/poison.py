"""What is done with work that raises: its dead letter; the timers of a tick, each on its own.

And how it is done again, once the code is right: the release of the key brings the record along.
"""

from collections.abc import Callable

import msgspec

from processors.clock import instant
from processors.engine import Record, Step
from processors.engine import UnknownVersionError as EngineUnknownVersionError
from processors.outbox import Outbox
from schema.codec import CODECS, UnknownVersionError, UnreadableMessageError
from schema.commands import Command, CreateTask, ReleaseKey, SubmitTask
from schema.ids import TaskId, TraceId
from schema.replies import DeadLetter, KeyReleased
from schema.topics import Topic

VOUCHED_MS_MAX = 3_600_000
"""So long the words of the read model count that a task never was. Together with how far it may be
behind (12 h) it is less than the deciders remember what has ended (`keep.ended_seconds`)."""
_CAUSE_CHARACTERS_MAX = 500


class RedriveRefusedError(Exception):
    """It would begin a task that may have been begun, and done, by another submission since."""


def letter(
    step: Step,
    error: BaseException,
    key: str | None,
    timer: str = "",
    command: Command | None = None,
    redriven: ReleaseKey | None = None,
) -> DeadLetter:
    """The record at work, whole; `timer` tells the letters of one tick apart.

    `command` is what the record says, where that could be read; its task is named, so that it can
    be found. A record that was redriven and is poison again is the same record in a new letter.
    """
    place = step.cause
    record = place if redriven is None else inner(place, redriven)
    return DeadLetter(
        letter_id=f"{place.topic}/{place.partition}/{place.offset}{timer}",
        at=instant(step.now),
        topic=place.topic,
        partition=place.partition,
        offset=place.offset,
        key=record.key,
        value=record.value,
        cause=f"{type(error).__name__}: {error}"[:_CAUSE_CHARACTERS_MAX],
        quarantined_key=key or "",
        task_id=_task_of(command, key),
        trace_id=_trace_of(command),
        replaces="" if redriven is None else redriven.letter_id,
    )


def _task_of(command: Command | None, key: str | None) -> TaskId | None:
    """The task of the command, or of the timer whose key this is."""
    kind, _, name = (key or "").partition("/")
    if command is None:
        return TaskId(name) if kind == "task" else None
    task_id: TaskId | None = getattr(command, "task_id", None)
    return task_id


def _trace_of(command: Command | None) -> TraceId | None:
    """Only what creates a task says of which request it is."""
    match command:
        case SubmitTask() | CreateTask():
            return command.origin.trace_id or None
        case _:
            return None


def inner(record: Record, command: ReleaseKey) -> Record:
    """The record that is redriven, as if it stood where the release stands."""
    return msgspec.structs.replace(record, key=command.key.encode(), value=command.redrive)


def release(
    step: Step,
    outbox: Outbox,
    record: Record,
    command: ReleaseKey,
    handle: Callable[[Step, Record], None],
) -> None:
    """Apply what was poison, if it comes along, before the engine goes on with what waits behind.

    That it is done, by whom and why, is a fact in the same transaction. If it raises it is poison
    again: nothing of this is written and the key stays quarantined. What begins a task is only
    applied where nobody has begun it since: otherwise it is a letter again, which says so.
    """
    if command.redrive is not None:
        begins = _begins(step, command)
        if begins is not None and not _is_vouched_for(step, command):
            error = RedriveRefusedError(
                "nobody has looked of late whether its task was made since; redrive this letter "
                "by the api, have its user send the same key again, or discard it"
            )
            told = letter(step, error, None, command=begins, redriven=command)
            outbox.order(step, told)
            return
        handle(step, inner(record, command))
    outbox.order(
        step,
        KeyReleased(
            command_id=command.command_id,
            at=instant(step.now),
            key=command.key,
            letter_id=command.letter_id,
            redriven=bool(command.letter_id) and not command.discard,
            discarded=command.discard,
            who=command.who,
            why=command.why,
        ),
    )


def _begins(step: Step, command: ReleaseKey) -> SubmitTask | CreateTask | None:
    """What begins a task, and may have been sent again since: nothing waits behind its key."""
    try:
        found: Command = CODECS[Topic(step.cause.topic)].decode(command.redrive or b"")
    except (UnreadableMessageError, UnknownVersionError):
        return None  # it is poison again
    match found:
        case SubmitTask():
            return found
        case CreateTask() if not command.key:
            return found
        case _:
            return None


def _is_vouched_for(step: Step, command: ReleaseKey) -> bool:
    at = command.unknown_at
    return at is not None and step.now - at.timestamp() * 1_000 <= VOUCHED_MS_MAX


def _nothing() -> None:
    """Nothing but the step is to be undone."""


def guarded(
    step: Step,
    outbox: Outbox,
    key: str | None,
    fire: Callable[[], None],
    *,
    undo: Callable[[], None] = _nothing,
) -> None:
    """Work on one timer of a tick. If it raises, it alone is undone, and `key` waits.

    `undo` is for what the timer changed outside the step.
    """
    try:
        fire()
        step.seal()
    except (UnknownVersionError, EngineUnknownVersionError) as error:
        raise EngineUnknownVersionError(str(error)) from error
    except Exception as error:  # noqa: BLE001 - whatever it is, the timer is poison
        undo()
        step.undo()
        step.fail(None if key is None else key.encode(), error)
        outbox.order(step, letter(step, error, key, f"/{key or 'free-slots'}"))
        step.seal()
