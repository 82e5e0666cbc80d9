"""At the door: a submission or a manual retry reserves what it may cost at most, or is refused.

All layers or none, and the first refusal by precedence. Only grants are remembered: who was refused
may ask again, who was granted is answered again without another event.
"""

from typing import NamedTuple

from commands.decider import Decision, Now
from commands.pricing import estimate_micros
from commands.quotas.refuse import refuse
from commands.quotas.state import Books, PolicyRow, Released, Reservation
from schema.commands import CreateTask, InputLimits, Origin, RequeueTask, RetryTask, SubmitTask
from schema.events import QuotaEvent, QuotaReserved
from schema.ids import account_of, event_id_of, follow_up_id, reservation_id_of
from schema.message import Instant
from schema.policy import MICROS_MAX, Policy, ScenePolicy, TierPolicy, UserLimits
from schema.refusals import Refusal
from schema.replies import Accepted, Remaining
from schema.windows import Windows, windows_at
from schema.words import Status

CREATE_SUFFIX = "create"
REQUEUE_SUFFIX = "requeue"


class Standing(NamedTuple):
    """What a user has used and may use in a scene at this instant."""

    limits: UserLimits
    windows: Windows
    minute_count: int
    day_count: int
    held_micros: int
    """Reserved and spent by the user this month."""
    limit_micros: int
    contract_held_micros: int
    contract_micros: int | None
    """None: no tenant, or a tenant without a contract limit."""

    def remaining(self, *, asked: int = 0, amount_micros: int = 0) -> Remaining:
        """What is left once so many submissions and so much more are granted."""
        contract = self.contract_micros
        windows = self.windows
        return Remaining(
            minute=max(self.limits.per_minute - self.minute_count - asked, 0),
            day=max(self.limits.per_day - self.day_count - asked, 0),
            credits_micros=max(self.limit_micros - self.held_micros - amount_micros, 0),
            contract_micros=None
            if contract is None
            else max(contract - self.contract_held_micros - amount_micros, 0),
            minute_window=windows.minute,
            day_window=windows.day,
            month_window=windows.month,
        )


def reserve(books: Books, command: SubmitTask | RetryTask, now: Now) -> Decision[QuotaEvent]:
    """What follows from a submission or a retry."""
    if isinstance(command, SubmitTask):
        asker: Origin | RetryTask = command.origin
        fingerprint, claimed = command.origin.fingerprint, command.card_seconds_claimed
        materials = len(command.origin.material_ids)
    else:
        asker, fingerprint, claimed = command, "", None
        materials = command.materials
    row, found = books.policy, books.reservation
    if row is None:
        return refuse(command, now, Refusal.POLICY_MISSING)
    if found is not None and (found.task_id, found.fingerprint) != (command.task_id, fingerprint):
        return refuse(command, now, Refusal.IDEMPOTENCY_CONFLICT)
    if asker.account_id != account_of(asker.tenant_id, asker.user_id):
        return refuse(command, now, Refusal.NOT_YOURS)
    terms = _terms(row.policy, asker)
    if found is not None:
        return _again(books, command, found, terms, now)
    if isinstance(terms, Refusal):
        return refuse(command, now, terms)
    scene_policy, tier = terms
    standing = _standing(books, row.policy, asker, tier, now)
    amount = estimate_micros(scene_policy.price_of(materials), claimed)
    exceeded = _exceeded(standing, amount)
    if exceeded is not None:
        reason, resets_at = exceeded
        return refuse(command, now, reason, remaining=standing.remaining(), resets_at=resets_at)
    event = QuotaReserved(
        event_id=event_id_of(command.command_id, 0),
        seq=books.account.seq + 1,
        at=now.at,
        account_id=asker.account_id,
        reservation_id=reservation_id_of(command.command_id),
        task_id=command.task_id,
        user_id=asker.user_id,
        scene=asker.scene,
        fingerprint=fingerprint,
        amount_micros=amount,
        month=standing.windows.month,
        day=standing.windows.day,
        minute=standing.windows.minute,
        limit_micros=standing.limit_micros,
        contract_micros=standing.contract_micros,
        policy_version=row.policy.version,
    )
    if isinstance(command, SubmitTask):
        return _submitted(command, event, row, standing, now)
    return _asked_again(command, event, scene_policy)


def _terms(policy: Policy, asker: Origin | RetryTask) -> tuple[ScenePolicy, TierPolicy] | Refusal:
    scene_policy = policy.scenes.get(asker.scene)
    if scene_policy is None:
        return Refusal.SCENE_NOT_OFFERED
    tier = policy.tiers.get(asker.tier)
    if tier is None:
        return Refusal.TIER_UNKNOWN
    if asker.scene not in tier.limits:
        return Refusal.SCENE_NOT_OFFERED
    return scene_policy, tier


def _standing(
    books: Books, policy: Policy, asker: Origin | RetryTask, tier: TierPolicy, now: Now
) -> Standing:
    user, tenant = books.user, books.tenant
    limits = tier.limits[asker.scene]
    windows = windows_at(now.at, policy.timezone)
    contract: int | None = None
    contract_held = 0
    if tenant is not None:
        contract_held = tenant.reserved_micros + tenant.spent_micros
        agreed = policy.tenant(asker.tenant_id).credits_month_micros.get(asker.scene)
        if agreed is not None:
            contract = min(agreed + tenant.topped_up_micros, MICROS_MAX)
    return Standing(
        limits,
        windows,
        user.minute_count if user.minute_start == windows.minute.start else 0,
        user.day_count if user.day_start == windows.day.start else 0,
        user.reserved_micros + user.spent_micros,
        min(limits.credits_month_micros + user.topped_up_micros, MICROS_MAX),
        contract_held,
        contract,
    )


def _exceeded(standing: Standing, amount_micros: int) -> tuple[Refusal, Instant] | None:
    """The first limit that does not allow one more of this amount, and when it begins anew."""
    windows = standing.windows
    if standing.minute_count >= standing.limits.per_minute:
        return Refusal.RATE_EXCEEDED, windows.minute.end
    if standing.day_count >= standing.limits.per_day:
        return Refusal.DAY_EXHAUSTED, windows.day.end
    if standing.held_micros + amount_micros > standing.limit_micros:
        return Refusal.QUOTA_EXHAUSTED, windows.month.end
    contract = standing.contract_micros
    if contract is not None and standing.contract_held_micros + amount_micros > contract:
        return Refusal.CONTRACT_EXHAUSTED, windows.month.end
    return None


def _submitted(
    command: SubmitTask, event: QuotaReserved, row: PolicyRow, standing: Standing, now: Now
) -> Decision[QuotaEvent]:
    origin = command.origin
    scene_policy = row.policy.scenes[origin.scene]
    tier = row.policy.tiers[origin.tier]
    order = CreateTask(
        command_id=follow_up_id(event.event_id, CREATE_SUFFIX),
        task_id=command.task_id,
        origin=origin,
        pool_id=scene_policy.pool_id,
        lane=tier.lane_of(origin.scene),
        price=scene_policy.price_of(len(origin.material_ids)),
        policy_version=event.policy_version,
        reservation_id=event.reservation_id,
        reserved_micros=event.amount_micros,
        run_limit_seconds=_run_limit_seconds(row.policy, scene_policy, len(origin.material_ids)),
        created_wait_seconds=scene_policy.created_wait_seconds,
        weight=tier.weight,
        deadline_seconds=command.deadline_seconds,
        lower_spec=scene_policy.lower_spec,
        input_limits=InputLimits(
            seconds_max=tier.input_seconds_max,
            bytes_max=tier.input_bytes_max,
            pixels_max=tier.input_pixels_max,
        )
        if origin.material_ids
        else None,
    )
    if command.reply_to is None:
        return Decision((event,), (order,))
    remaining = standing.remaining(asked=1, amount_micros=event.amount_micros)
    return Decision((event,), (order,), _accepted(command, event.amount_micros, remaining, now))


def _run_limit_seconds(policy: Policy, scene_policy: ScenePolicy, materials: int) -> int:
    """The lower of the scene's and its pool's."""
    pool = policy.pools.get(scene_policy.pool_id)
    limit = scene_policy.run_limit_of(materials)
    if pool is None or pool.run_limit_seconds is None:
        return limit
    return min(limit, pool.run_limit_seconds)


def _asked_again(
    command: RetryTask, event: QuotaReserved, scene_policy: ScenePolicy
) -> Decision[QuotaEvent]:
    """The task has the last word, and the reply: it takes the reservation or gives it back."""
    order = RequeueTask(
        command_id=follow_up_id(event.event_id, REQUEUE_SUFFIX),
        task_id=command.task_id,
        user_id=command.user_id,
        tenant_id=command.tenant_id,
        account_id=command.account_id,
        price=scene_policy.price_of(command.materials),
        policy_version=event.policy_version,
        reservation_id=event.reservation_id,
        reserved_micros=event.amount_micros,
        reply_to=command.reply_to,
    )
    return Decision((event,), (order,))


def _again(
    books: Books,
    command: SubmitTask | RetryTask,
    found: Reservation,
    terms: tuple[ScenePolicy, TierPolicy] | Refusal,
    now: Now,
) -> Decision[QuotaEvent]:
    """It was granted before: the same answer, with what is left by now."""
    if isinstance(command, RetryTask):
        if isinstance(found, Released):
            # Refused by the task, or over since: only the task's own row tells which.
            return refuse(command, now, Refusal.RESERVATION_RESOLVED)
        if command.reply_to is None:
            return Decision()
        return Decision(reply=_accepted(command, found.reserved_micros, None, now))
    if command.reply_to is None:
        return Decision()
    remaining = None
    if books.policy is not None and not isinstance(terms, Refusal):
        standing = _standing(books, books.policy.policy, command.origin, terms[1], now)
        remaining = standing.remaining()
    return Decision(reply=_accepted(command, found.reserved_micros, remaining, now))


def _accepted(
    command: SubmitTask | RetryTask, amount_micros: int, remaining: Remaining | None, now: Now
) -> Accepted:
    """A submission's task has one event; a retry's answer is the task's, this only repeats it."""
    submitted = isinstance(command, SubmitTask)
    return Accepted(
        command_id=command.command_id,
        key=command.task_id,
        at=now.at,
        seq=1 if submitted else 0,
        status=Status.CREATED if submitted else Status.QUEUED,
        remaining=remaining,
        reserved_micros=amount_micros,
    )
