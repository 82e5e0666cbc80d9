"""What operators change: the policy of a partition, and what is added to a month's limit."""

from commands.decider import Decision, Now
from commands.policies import ALREADY, Refused, judge
from commands.quotas.refuse import refuse
from commands.quotas.state import POLICY_KEY, Books
from schema.commands import PublishPolicy, TopUpQuota
from schema.events import PolicyAdopted, QuotaEvent, QuotaToppedUp
from schema.ids import NO_TENANT, account_of, event_id_of
from schema.refusals import Refusal
from schema.replies import Accepted
from schema.windows import windows_at


def top_up(books: Books, command: TopUpQuota, now: Now) -> Decision[QuotaEvent]:
    """More for a user or a contract, in the scene and in the month that is now."""
    row, found = books.policy, books.top_up
    if row is None:
        return refuse(command, now, Refusal.POLICY_MISSING)
    if found is not None:
        asked = (command.user_id, command.scene, command.amount_micros)
        if (found.user_id, found.scene, found.amount_micros) != asked:
            return refuse(command, now, Refusal.IDEMPOTENCY_CONFLICT)
        return Decision(reply=_topped_up(command, books.account.seq, now))
    if books.tenant is None:
        if command.user_id is None:
            return refuse(command, now, Refusal.CONTRACT_UNKNOWN)
        if command.account_id != account_of(NO_TENANT, command.user_id):
            return refuse(command, now, Refusal.NOT_YOURS)
    event = QuotaToppedUp(
        event_id=event_id_of(command.command_id, 0),
        seq=books.account.seq + 1,
        at=now.at,
        account_id=command.account_id,
        user_id=command.user_id,
        scene=command.scene,
        amount_micros=command.amount_micros,
        month=windows_at(now.at, row.policy.timezone).month,
        who=command.who,
        why=command.why,
    )
    return Decision((event,), reply=_topped_up(command, event.seq, now))


def _topped_up(command: TopUpQuota, seq: int, now: Now) -> Accepted | None:
    if command.reply_to is None:
        return None
    return Accepted(command_id=command.command_id, key=command.account_id, at=now.at, seq=seq)


def publish(books: Books, command: PublishPolicy, now: Now) -> Decision[QuotaEvent]:
    """The partition goes by it from here on, if it may (`commands.policies`)."""
    held = books.policy
    verdict = judge(None if held is None else held.policy, command.policy)
    if isinstance(verdict, Refused):
        return refuse(command, now, verdict.reason, detail=verdict.detail)
    if held is not None and verdict is ALREADY:
        return Decision(reply=_adopted(command, held.seq, now))
    event = PolicyAdopted(
        event_id=event_id_of(command.command_id, 0),
        seq=1 if held is None else held.seq + 1,
        at=now.at,
        policy=command.policy,
        who=command.who,
        why=command.why,
    )
    return Decision((event,), reply=_adopted(command, event.seq, now))


def _adopted(command: PublishPolicy, seq: int, now: Now) -> Accepted | None:
    if command.reply_to is None:
        return None
    return Accepted(command_id=command.command_id, key=POLICY_KEY, at=now.at, seq=seq)
