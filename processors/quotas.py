"""Quota commands and submissions in, quota events out: the single writer of every account."""

from functools import partial

from commands import quotas
from commands.decider import TimerDue
from processors.clock import now_of
from processors.due import DueIndex
from processors.engine import Record, Step
from processors.outbox import Outbox
from processors.poison import guarded, release
from processors.step_rows import StepRows
from processors.tables import Tables
from schema.codec import QUOTA_COMMANDS
from schema.commands import (
    CommitReservation,
    PublishPolicy,
    QuotaCommand,
    RefundCharge,
    ReleaseKey,
    ReleaseReservation,
    RetryTask,
    SubmitTask,
    TopUpQuota,
)
from schema.ids import CommandId
from schema.policy import Policy
from schema.topics import Topic


class Quotas:
    """Deadlines of quota rows are in the served clock of task-commands, whose ticks see them."""

    def __init__(self, tables: Tables, outbox: Outbox) -> None:
        self._table = tables.quotas
        self._outbox = outbox
        self._due = DueIndex(quotas.due_ms)
        self._table.listen(self._due)

    def handle(self, step: Step, record: Record) -> None:
        """One command."""
        command = QUOTA_COMMANDS.decode(record.value or b"")
        if isinstance(command, ReleaseKey):
            release(step, self._outbox, record, command, self.handle)
            return
        decision = quotas.handle(
            StepRows(step, self._table), command, now_of(step, Topic.TASK_COMMANDS)
        )
        reply_to = getattr(command, "reply_to", None)
        self._outbox.write(step, Topic.QUOTA_EVENTS, _key(command, step), decision, reply_to)

    def tick(self, step: Step, limit: int) -> bool:
        """Forget rows whose time has passed; whether more are due."""

        def waits(key: bytes) -> bool:
            return step.waits(b"quota-row/" + key)

        now = now_of(step, Topic.TASK_COMMANDS)
        count = 0
        for key in self._due.due(step.partition, now.served_ms, limit, waits):
            count += 1
            # No command has this key: nothing but the forgetting of the row waits behind it.
            guarded(step, self._outbox, f"quota-row/{key.decode()}", partial(self._fire, step, key))
        return count == limit

    def _fire(self, step: Step, key: bytes) -> None:
        timer = TimerDue(tick_id(step, key), key.decode())
        quotas.on_due(StepRows(step, self._table), timer, now_of(step, Topic.TASK_COMMANDS))

    def policy(self, step: Step) -> Policy | None:
        """What the partition goes by now."""
        row = step.get(self._table, quotas.POLICY_KEY.encode())
        return row.policy if isinstance(row, quotas.PolicyRow) else None


def tick_id(step: Step, key: bytes) -> CommandId:
    """The id of what a tick found due: of the tick's record and the key."""
    return CommandId(f"tick-{step.partition}-{step.cause.offset}-{key.decode()}")


def _key(command: QuotaCommand, step: Step) -> str:
    match command:
        case SubmitTask():
            return command.origin.account_id
        case PublishPolicy():
            return f"policy/{step.partition}"
        case (
            RetryTask() | CommitReservation() | ReleaseReservation() | RefundCharge() | TopUpQuota()
        ):
            return command.account_id
        case ReleaseKey():
            return command.key


def quarantine_key(command: QuotaCommand) -> str | None:
    """The smallest key that waits behind a poison command; a submission makes nobody wait."""
    match command:
        case SubmitTask() | PublishPolicy() | ReleaseKey():
            return None
        case RetryTask():
            return f"task/{command.task_id}"
        case CommitReservation() | ReleaseReservation():
            return f"reservation/{command.reservation_id}"
        case RefundCharge():
            return f"charge/{command.charge_id}"
        case TopUpQuota():
            return f"user/{command.user_id or command.account_id}"
