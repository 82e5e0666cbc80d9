"""The application, as the engine sees it."""

from typing import Protocol

from processors.engine.records import Record
from processors.engine.step import Step


class Rules(Protocol):
    """Synchronous and deterministic: state and `step.now` in, changes and sends out."""

    @property
    def version(self) -> int:
        """Number of the rules; the journal names it for each transaction."""
        ...

    def handle(self, step: Step, record: Record) -> None:
        """Apply one command.

        Whatever it raises makes the command poison, except UnknownVersionError, which ends the
        process.
        """
        ...

    def tick(self, step: Step, topic: str) -> bool:
        """Handle at most some hundred due timers of `topic`, in order of being due.

        Each timer is work of its own: `step.seal` after it. If it raises: `step.undo`, `step.fail`
        with the smallest key, whose timers are left out until it is released, a dead letter, and
        `step.seal` again. True: more is due now (of what is not left out); another tick is
        appended at once.
        """
        ...

    def key_of(self, record: Record) -> bytes | None:
        """The smallest key that must wait when this command is poison; None parks nothing.

        Must not raise for a record that cannot be decoded: None.
        """
        ...

    def poisoned(self, step: Step, record: Record, error: BaseException) -> None:
        """Write the dead letter (the record whole) and the reply, on a fresh overlay.

        If it raises, the engine stays down.
        """
        ...

    def parked(self, step: Step, record: Record) -> None:
        """The command waits behind a quarantined key; `handle` sees it when the key is released.

        Whoever else waits for what it asks is told here, on an overlay of its own.
        """
        ...

    def released(self, record: Record) -> bytes | None:
        """The key to release, if the record is a command to release one.

        Asked only while something is quarantined. `handle` sees that record too, before the
        parked commands are applied.
        """
        ...
