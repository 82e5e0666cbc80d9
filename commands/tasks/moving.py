"""A pool asks a waiting task to wait elsewhere. The task has the word, and it moves once.

The pool keeps it until the task has said so: whoever comes first, a start here or the move, there
is one start a token all the same.
"""

from commands.decider import Decision
from commands.tasks import follow_ups as f
from commands.tasks.ending import not_waiting
from commands.tasks.evolving import spec_when_moved
from commands.tasks.follow_ups import NOTHING, Asked, TaskDecision
from commands.tasks.states import Queued, TaskState
from schema import commands as c
from schema import events as e
from schema.refusals import Refusal


def move(state: TaskState, command: c.MoveTask, asked: Asked) -> TaskDecision:
    """Only while it is QUEUED with the token that the pool knew."""
    match state:
        case Queued() if command.token == state.course.token:
            if _is_there(state, command):
                return NOTHING
            spec = state.spec
            if not (spec.moved or spec.lowered) and (spec.can_lower or not command.lower_spec):
                return _moved(state, command, asked)
            return f.refuse(state, command, asked, Refusal.TASK_NOT_MOVABLE)
        case _:
            return not_waiting(state, command, asked)


def _is_there(state: Queued, command: c.MoveTask) -> bool:
    spec = state.spec
    return (spec.pool_id, spec.lane) == (command.pool_id, command.lane) and (
        spec.lowered or not command.lower_spec
    )


def _moved(state: Queued, command: c.MoveTask, asked: Asked) -> TaskDecision:
    moved = e.TaskMoved(
        event_id=asked.event_id(),
        seq=state.seq + 1,
        at=asked.now.at,
        task_id=asked.task_id,
        user_id=state.spec.user_id,
        token=command.token,
        pool_id=command.pool_id,
        lane=command.lane,
        lower_spec=command.lower_spec,
        reason=command.reason,
    )
    there = spec_when_moved(state.spec, command.pool_id, command.lane, lower=command.lower_spec)
    # In this order: they may be one and the same pool.
    return Decision((moved,), (f.dequeue(asked, state), f.enqueue(asked, there, state.course, 0)))
