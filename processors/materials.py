"""Material commands in, material events out: the single writer of every material."""

from commands import materials
from processors.clock import now_of
from processors.engine import Record, Step
from processors.outbox import Outbox
from processors.poison import release
from processors.step_rows import StepRows
from processors.tables import Tables
from schema.codec import MATERIAL_COMMANDS
from schema.commands import MaterialCommand, ReleaseKey
from schema.topics import Topic


class Materials:
    def __init__(self, tables: Tables, outbox: Outbox) -> None:
        self._table = tables.materials
        self._outbox = outbox

    def handle(self, step: Step, record: Record) -> None:
        """One command."""
        command = MATERIAL_COMMANDS.decode(record.value or b"")
        if isinstance(command, ReleaseKey):
            release(step, self._outbox, record, command, self.handle)
            return
        rows = StepRows(step, self._table)
        decision = materials.handle(rows, command, now_of(step, Topic.TASK_COMMANDS))
        reply_to = getattr(command, "reply_to", None)
        self._outbox.write(step, Topic.MATERIAL_EVENTS, command.material_id, decision, reply_to)


def quarantine_key(command: MaterialCommand) -> str | None:
    """The material waits behind its poison command."""
    return None if isinstance(command, ReleaseKey) else f"material/{command.material_id}"
