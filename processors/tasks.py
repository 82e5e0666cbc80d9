"""Task commands in, task events out: the single writer of every task."""

from commands import tasks
from commands.decider import TimerDue
from processors.clock import now_of
from processors.due import DueIndex
from processors.engine import Record, Step
from processors.outbox import Outbox
from processors.quotas import Quotas, tick_id
from processors.step_rows import StepRows
from processors.tables import Tables
from schema.codec import TASK_COMMANDS
from schema.commands import ReleaseKey, TaskCommand
from schema.topics import Topic


class Tasks:
    def __init__(self, tables: Tables, outbox: Outbox, quotas: Quotas) -> None:
        self._table = tables.tasks
        self._outbox = outbox
        self._quotas = quotas
        self._due = DueIndex(tasks.due_ms)
        self._table.listen(self._due)

    def handle(self, step: Step, record: Record) -> None:
        """One command."""
        command = TASK_COMMANDS.decode(record.value or b"")
        if isinstance(command, ReleaseKey):
            return
        now = now_of(step, Topic.TASK_COMMANDS)
        rows = StepRows(step, self._table)
        decision = tasks.handle(rows, command, now, self._quotas.policy(step))
        reply_to = getattr(command, "reply_to", None)
        self._outbox.write(step, Topic.TASK_EVENTS, command.task_id, decision, reply_to)

    def tick(self, step: Step, limit: int) -> bool:
        """Waits, delays, backstops, forgetting: what is due, earliest first; whether more is."""
        now = now_of(step, Topic.TASK_COMMANDS)
        rows = StepRows(step, self._table)
        policy = self._quotas.policy(step)
        count = 0
        for key in self._due.due(step.partition, now.served_ms, limit):
            count += 1
            task_id = key.decode()
            decision = tasks.on_due(rows, TimerDue(tick_id(step, key), task_id), now, policy)
            self._outbox.write(step, Topic.TASK_EVENTS, task_id, decision, None)
        return count == limit


def quarantine_key(command: TaskCommand) -> str | None:
    """The task waits behind its poison command."""
    return None if isinstance(command, ReleaseKey) else f"task/{command.task_id}"
