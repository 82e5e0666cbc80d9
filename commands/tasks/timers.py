"""What a tick finds due: a wait for material, a lost wait, a delay, a backstop, a row to forget."""

from typing import assert_never

import msgspec

from commands.decider import Decision, Now, Rows, TimerDue
from commands.tasks import follow_ups as f
from commands.tasks.card_time import untold
from commands.tasks.creating import queue
from commands.tasks.deciding import DEFAULT_POLICY, settle
from commands.tasks.ending import expired
from commands.tasks.evolving import ask_again_ms
from commands.tasks.follow_ups import NOTHING, Asked, TaskDecision
from commands.tasks.losing import attempt_lost, ended
from commands.tasks.states import (
    Canceled,
    Created,
    Delayed,
    Expired,
    Failed,
    Queued,
    Running,
    Storing,
    Succeeded,
    TaskRow,
    due_ms,
)
from schema.failures import FailureClass
from schema.ids import TaskId
from schema.policy import Policy
from schema.words import LossCause


def on_due(
    rows: Rows[TaskRow], timer: TimerDue, now: Now, policy: Policy | None = None
) -> TaskDecision:
    """What the deadline of a row leads to; nothing if it is gone or lies ahead again."""
    row = rows.get(timer.key)
    due = None if row is None else due_ms(row)
    if row is None or due is None or due > now.served_ms:
        return NOTHING
    rules = DEFAULT_POLICY if policy is None else policy
    task_id = TaskId(timer.key)
    asked = Asked(timer.command_id, task_id, now, rules)
    match row:
        case Succeeded() | Failed() | Canceled() | Expired():
            rows.delete(timer.key)
            return NOTHING
        case Created():
            decision = expired(row, asked)
        case Delayed():
            decision = queue(row, asked)
        case Running() | Storing():
            decision = _backstop(row, asked)
        case Queued():
            return _asked_again(rows, timer.key, row, asked)
        case _:
            assert_never(row)
    settle(rows, task_id, row, decision, now.served_ms, rules)
    return decision


def ask_soon(rows: Rows[TaskRow], task_id: TaskId, now: Now) -> None:
    """A word between it and its pool was thrown away: if it waits, the next tick asks anew."""
    row = rows.get(task_id)
    if isinstance(row, Queued):
        rows.put(task_id, msgspec.structs.replace(row, until_ms=now.served_ms))


def _asked_again(rows: Rows[TaskRow], key: str, row: Queued, asked: Asked) -> TaskDecision:
    """It waits at its pool, as far as it knows: whatever became of that word, it is said again.

    Its time to live is the pool's. One that has the task waiting, or a slot for it, does nothing;
    one that has lost it lets it wait anew.
    """
    asks = row.asks + 1
    until_ms = ask_again_ms(row.spec, asked.now.served_ms, asked.policy, asks)
    rows.put(key, msgspec.structs.replace(row, until_ms=until_ms, asks=asks))
    return Decision(orders=(f.enqueue(asked, row.spec, row.course, 0),))


def _backstop(row: Running | Storing, asked: Asked) -> TaskDecision:
    """RUNNING has an end, whatever has become of runner and pool: both are told."""
    time = untold(row, asked)
    over = attempt_lost(row, asked, LossCause.BACKSTOP, time)
    failure = FailureClass.STORE if isinstance(row, Storing) else FailureClass.TIME_LIMIT
    told = (
        f.stop_attempt(asked, row, LossCause.BACKSTOP),
        f.end_attempt(asked, row, time.ms, failure=failure),
    )
    return ended(over, row, *told)
