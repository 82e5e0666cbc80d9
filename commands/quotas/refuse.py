"""A refusal of the quota side: a fact, and the same as an answer where somebody waits."""

from commands.decider import Decision, Now, wire_name
from schema.commands import (
    CommitReservation,
    PublishPolicy,
    RefundCharge,
    ReleaseReservation,
    RetryTask,
    SubmitTask,
    TopUpQuota,
)
from schema.events import QuotaEvent
from schema.ids import UserId
from schema.message import Instant
from schema.refusals import Refusal
from schema.replies import CommandRefused, Refused, Remaining

Refusable = (
    SubmitTask
    | RetryTask
    | CommitReservation
    | ReleaseReservation
    | RefundCharge
    | TopUpQuota
    | PublishPolicy
)


def refuse(
    command: Refusable,
    now: Now,
    reason: Refusal,
    *,
    detail: str = "",
    remaining: Remaining | None = None,
    resets_at: Instant | None = None,
) -> Decision[QuotaEvent]:
    """Nothing happens, and why."""
    key, user_id, reply_to = _asked(command)
    fact = CommandRefused(
        command_id=command.command_id,
        command=wire_name(command),
        key=key,
        user_id=user_id,
        at=now.at,
        reason=reason,
        detail=detail,
        remaining=remaining,
        resets_at=resets_at,
    )
    if reply_to is None:
        return Decision(refusal=fact)
    reply = Refused(
        command_id=command.command_id,
        key=key,
        at=now.at,
        reason=reason,
        detail=detail,
        remaining=remaining,
        resets_at=resets_at,
    )
    return Decision(refusal=fact, reply=reply)


def _asked(command: Refusable) -> tuple[str, UserId | None, int | None]:
    """What was asked about, for whom, and who waits."""
    match command:
        case SubmitTask():
            return command.task_id, command.origin.user_id, command.reply_to
        case RetryTask():
            return command.task_id, command.user_id, command.reply_to
        case CommitReservation() | ReleaseReservation():
            return command.reservation_id, None, None
        case RefundCharge():
            return command.charge_id, None, None
        case TopUpQuota():
            return command.account_id, command.user_id, command.reply_to
        case PublishPolicy():
            return "policy", None, command.reply_to
