"""Material commands in, material events out: the single writer of every material and result."""

from collections.abc import Callable
from functools import partial
from typing import Any

from commands import materials
from commands.decider import TimerDue
from commands.materials import results
from processors.clock import now_of
from processors.due import DueIndex
from processors.engine import Record, Step
from processors.outbox import Outbox
from processors.poison import guarded, release
from processors.quotas import tick_id
from processors.step_rows import StepRows
from processors.tables import Tables
from schema.codec import MATERIAL_COMMANDS
from schema.commands import CountDeliveries, MaterialCommand, ReleaseKey, ResultCommand
from schema.topics import Topic


class Materials:
    def __init__(self, tables: Tables, outbox: Outbox) -> None:
        self._table = tables.materials
        self._results = tables.results
        self._outbox = outbox
        self._due = DueIndex(materials.due_ms)
        self._table.listen(self._due)
        self._results_due = DueIndex(results.due_ms)
        self._results.listen(self._results_due)

    def handle(self, step: Step, record: Record) -> None:
        """One command."""
        command = MATERIAL_COMMANDS.decode(record.value or b"")
        if isinstance(command, ReleaseKey):
            release(step, self._outbox, record, command, self.handle)
            return
        now = now_of(step, Topic.TASK_COMMANDS)
        reply_to = getattr(command, "reply_to", None)
        if isinstance(command, ResultCommand):
            told = results.handle(StepRows(step, self._results), command, now)
            self._outbox.write(step, Topic.MATERIAL_EVENTS, _name(command), told, reply_to)
            return
        decision = materials.handle(StepRows(step, self._table), command, now)
        self._outbox.write(step, Topic.MATERIAL_EVENTS, command.material_id, decision, reply_to)

    def tick(self, step: Step, limit: int) -> bool:
        """What is due of materials and of results, earliest first; whether more is."""
        more = self._tick(step, limit, self._due, "material", self._fire)
        return self._tick(step, limit, self._results_due, "result", self._fire_result) or more

    def _tick(
        self,
        step: Step,
        limit: int,
        index: DueIndex[Any],
        noun: str,
        fire: Callable[[Step, str], None],
    ) -> bool:
        def waits(key: bytes) -> bool:
            return step.waits(f"{noun}/".encode() + key)

        now = now_of(step, Topic.TASK_COMMANDS)
        count = 0
        for key in index.due(step.partition, now.served_ms, limit, waits):
            count += 1
            name = key.decode()
            guarded(step, self._outbox, f"{noun}/{name}", partial(fire, step, name))
        return count == limit

    def _fire(self, step: Step, material_id: str) -> None:
        timer = TimerDue(tick_id(step, material_id.encode()), material_id)
        now, rows = now_of(step, Topic.TASK_COMMANDS), StepRows(step, self._table)
        decision = materials.on_due(rows, timer, now)
        self._outbox.write(step, Topic.MATERIAL_EVENTS, material_id, decision, None)

    def _fire_result(self, step: Step, task_id: str) -> None:
        timer = TimerDue(tick_id(step, task_id.encode()), task_id)
        now, rows = now_of(step, Topic.TASK_COMMANDS), StepRows(step, self._results)
        decision = results.on_due(rows, timer, now)
        self._outbox.write(step, Topic.MATERIAL_EVENTS, task_id, decision, None)


def _name(command: ResultCommand) -> str:
    return command.source if isinstance(command, CountDeliveries) else command.task_id


def quarantine_key(command: MaterialCommand | ResultCommand) -> str | None:
    """The material, or the result, waits behind its poison command."""
    if isinstance(command, ReleaseKey):
        return None
    if isinstance(command, ResultCommand):
        return f"result/{_name(command)}"
    return f"material/{command.material_id}"
