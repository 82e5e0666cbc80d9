"""What a tick finds due: a wait for material, a retry delay, a backstop, a row to forget."""

from typing import assert_never

from commands.decider import Now, Rows, TimerDue
from commands.tasks import follow_ups as f
from commands.tasks.card_time import untold
from commands.tasks.creating import queue
from commands.tasks.deciding import DEFAULT_POLICY, settle
from commands.tasks.ending import expired
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
            return NOTHING  # its time to live is the pool's
        case _:
            assert_never(row)
    settle(rows, task_id, row, decision, now.served_ms, rules)
    return decision


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
