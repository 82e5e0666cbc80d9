"""The decision of every quota command."""

from typing import assert_never

from commands.decider import Decision, Now
from commands.quotas.operate import publish, top_up
from commands.quotas.reserve import reserve
from commands.quotas.resolve import commit, refund, release
from commands.quotas.state import Books
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
from schema.events import QuotaEvent


def decide(books: Books, command: QuotaCommand, now: Now) -> Decision[QuotaEvent]:
    """What follows. The books hold the rows that the command names."""
    match command:
        case SubmitTask() | RetryTask():
            return reserve(books, command, now)
        case CommitReservation():
            return commit(books, command, now)
        case ReleaseReservation():
            return release(books, command, now)
        case RefundCharge():
            return refund(books, command, now)
        case TopUpQuota():
            return top_up(books, command, now)
        case PublishPolicy():
            return publish(books, command, now)
        case ReleaseKey():
            return Decision()  # the shell's own: it parks and releases, no rule is asked
        case _:
            assert_never(command)
