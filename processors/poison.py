"""What is done with work that raises: its dead letter; the timers of a tick, each on its own."""

from collections.abc import Callable

from processors.clock import instant
from processors.engine import Step
from processors.engine import UnknownVersionError as EngineUnknownVersionError
from processors.outbox import Outbox
from schema.codec import UnknownVersionError
from schema.replies import DeadLetter

_CAUSE_CHARACTERS_MAX = 500


def letter(step: Step, error: BaseException, key: str | None, timer: str = "") -> DeadLetter:
    """The record at work, whole; `timer` tells the letters of one tick apart."""
    record = step.cause
    return DeadLetter(
        letter_id=f"{record.topic}/{record.partition}/{record.offset}{timer}",
        at=instant(step.now),
        topic=record.topic,
        partition=record.partition,
        offset=record.offset,
        key=record.key,
        value=record.value,
        cause=f"{type(error).__name__}: {error}"[:_CAUSE_CHARACTERS_MAX],
        quarantined_key=key or "",
    )


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
