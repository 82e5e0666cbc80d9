"""Task commands in, task events out: the single writer of every task."""

from functools import partial

from commands import tasks
from commands.decider import TimerDue
from processors.clock import now_of
from processors.due import DueIndex
from processors.engine import Record, Step
from processors.outbox import Outbox
from processors.poison import guarded, release
from processors.quotas import Quotas, tick_id
from processors.step_rows import StepRows
from processors.tables import Tables
from schema.codec import TASK_COMMANDS, UnknownVersionError, UnreadableMessageError
from schema.commands import RefuseAttempt, ReleaseKey, StartAttempt, TaskCommand
from schema.ids import TaskId, event_id_of, follow_up_id
from schema.topics import Topic

_QUARANTINED = "quarantined"


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
            release(step, self._outbox, record, command, self.handle)
            self._thrown_away(step, command)
            return
        now = now_of(step, Topic.TASK_COMMANDS)
        rows = StepRows(step, self._table)
        decision = tasks.handle(rows, command, now, self._quotas.policy(step))
        reply_to = getattr(command, "reply_to", None)
        self._outbox.write(step, Topic.TASK_EVENTS, command.task_id, decision, reply_to)

    def _thrown_away(self, step: Step, command: ReleaseKey) -> None:
        """What never is applied leaves nothing behind: no reservation, and no wait that is none."""
        if command.redrive is not None:
            return
        now, rows = now_of(step, Topic.TASK_COMMANDS), StepRows(step, self._table)
        if command.discarded is not None:
            try:
                away = TASK_COMMANDS.decode(command.discarded)
            except (UnreadableMessageError, UnknownVersionError):
                away = None  # nobody knows what it was
            if away is not None and not isinstance(away, ReleaseKey):
                policy = self._quotas.policy(step)
                decision = tasks.discard(rows, away, command.command_id, now, policy)
                self._outbox.write(step, Topic.TASK_EVENTS, away.task_id, decision, None)
        kind, _, task_id = command.key.partition("/")
        if kind == "task":
            tasks.ask_soon(rows, TaskId(task_id), now)

    def tick(self, step: Step, limit: int) -> bool:
        """Waits, delays, backstops, forgetting: what is due, earliest first; whether more is."""

        def waits(key: bytes) -> bool:
            return step.waits(b"task/" + key)

        now = now_of(step, Topic.TASK_COMMANDS)
        count = 0
        for key in self._due.due(step.partition, now.served_ms, limit, waits):
            count += 1
            task_id = key.decode()
            guarded(step, self._outbox, f"task/{task_id}", partial(self._fire, step, task_id))
        return count == limit

    def _fire(self, step: Step, task_id: str) -> None:
        timer = TimerDue(tick_id(step, task_id.encode()), task_id)
        now, rows = now_of(step, Topic.TASK_COMMANDS), StepRows(step, self._table)
        decision = tasks.on_due(rows, timer, now, self._quotas.policy(step))
        self._outbox.write(step, Topic.TASK_EVENTS, task_id, decision, None)

    def refuse(self, step: Step, command: StartAttempt) -> None:
        """The task cannot be asked now: the slot that is held for it is free again at once."""
        refused = RefuseAttempt(
            command_id=follow_up_id(event_id_of(command.command_id, 0), "q"),
            pool_id=command.pool_id,
            task_id=command.task_id,
            token=command.token,
            reason=_QUARANTINED,
        )
        self._outbox.order(step, refused)


def quarantine_key(command: TaskCommand) -> str | None:
    """The task waits behind its poison command."""
    return None if isinstance(command, ReleaseKey) else f"task/{command.task_id}"
