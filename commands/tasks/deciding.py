"""Which rule judges a command, and the row around it: read, decide, evolve, put."""

from typing import Final, assert_never

from commands.decider import Now, Rows
from commands.tasks import attempts, creating, ending, losing, moving, retrying
from commands.tasks.evolving import evolve
from commands.tasks.follow_ups import NOTHING, Asked, TaskDecision
from commands.tasks.states import ENDED, INITIAL, TaskRow, TaskState
from schema import commands as c
from schema.ids import CommandId, TaskId
from schema.policy import Policy
from schema.routes import TaskBound

DEFAULT_POLICY: Final = Policy(version=1, scenes={}, tiers={}, pools={})
"""Before any is published: no task exists then, so only its delays and spans are ever read."""


def decide(  # noqa: C901, PLR0912 - a branch for each command
    state: TaskState, command: TaskBound, now: Now, policy: Policy = DEFAULT_POLICY
) -> TaskDecision:
    """What follows from the command, in this state, now."""
    asked = Asked(command.command_id, command.task_id, now, policy)
    if isinstance(command, c.CreateTask):
        return creating.create(state, command, asked)
    if isinstance(state, ENDED) and now.served_ms >= state.until_ms:
        state = INITIAL  # whether or not a tick has come by and deleted the row
    match command:
        case c.ReportMilestone():
            return attempts.milestone(state, command, asked)
        case c.StartAttempt():
            return attempts.start(state, command, asked)
        case c.StoreAttempt():
            return attempts.store(state, command, asked)
        case c.FinishAttempt():
            return attempts.finish(state, command, asked)
        case c.FailAttempt():
            return losing.fail(state, command, asked)
        case c.LoseAttempt():
            return losing.lose(state, command, asked)
        case c.AttemptYielded():
            return losing.give_back(state, command, asked)
        case c.ConfirmMaterial():
            return creating.confirm_material(state, command, asked)
        case c.RejectMaterial():
            return creating.reject_material(state, command, asked)
        case c.ExtendWait():
            return creating.extend_wait(state, command, asked)
        case c.CancelTask():
            return ending.cancel(state, command, asked)
        case c.ExpireTask():
            return ending.expire(state, command, asked)
        case c.MoveTask():
            return moving.move(state, command, asked)
        case c.RequeueTask():
            return retrying.requeue(state, command, asked)
        case _:
            assert_never(command)


def handle(
    rows: Rows[TaskRow], command: c.TaskCommand, now: Now, policy: Policy | None = None
) -> TaskDecision:
    """Decide on the row of the task, and put what becomes of it."""
    if isinstance(command, c.ReleaseKey):
        return NOTHING  # the engine's: it lets the parked commands go on
    rules = DEFAULT_POLICY if policy is None else policy
    state = rows.get(command.task_id) or INITIAL
    decision = decide(state, command, now, rules)
    if decision.events:
        settle(rows, command.task_id, state, decision, now.served_ms, rules)
    return decision


def discard(
    rows: Rows[TaskRow],
    command: c.TaskCommand,
    asked_by: CommandId,
    now: Now,
    policy: Policy | None = None,
) -> TaskDecision:
    """What follows when an operator throws a command away: what is reserved for it goes back."""
    if not isinstance(command, c.CreateTask | c.RequeueTask):
        return NOTHING
    rules = DEFAULT_POLICY if policy is None else policy
    state = rows.get(command.task_id) or INITIAL
    asked = Asked(asked_by, command.task_id, now, rules)
    if isinstance(command, c.RequeueTask):
        return retrying.discard(state, command, asked)
    decision = creating.discard(state, command, asked)
    if decision.events:
        settle(rows, command.task_id, state, decision, now.served_ms, rules)
    return decision


def settle(
    rows: Rows[TaskRow],
    task_id: TaskId,
    state: TaskState,
    decision: TaskDecision,
    served_ms: int,
    policy: Policy,
) -> None:
    """Put what the events make of the task."""
    row: TaskRow | None = None
    for event in decision.events:
        row = evolve(state if row is None else row, event, served_ms, policy)
    if row is not None:
        rows.put(task_id, row)
