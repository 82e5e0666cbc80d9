"""A small world for stories of quotas: two scenes, three tiers, a tenant with a contract."""

from typing import Any
from zlib import crc32

from commands import quotas
from schema import commands as c
from schema.codec import encode
from schema.ids import (
    AccountId,
    ChargeId,
    CommandId,
    MaterialId,
    PoolId,
    ReservationId,
    TaskId,
    TenantId,
    UserId,
    account_of,
)
from schema.policy import (
    KeepPolicy,
    LanePolicy,
    Policy,
    PoolPolicy,
    Price,
    ScenePolicy,
    TenantPolicy,
    TierPolicy,
    UserLimits,
)
from schema.words import Lane, Scene
from tests.support.spec import Story

CREDIT = 1_000_000
ACME = TenantId("acme")
NOBODY = TenantId("")
ANN = UserId("ann000001")
BEN = UserId("ben000002")
ANNS = account_of(NOBODY, ANN)
"""The account of Ann without a tenant."""
ACMES = account_of(ACME, ANN)
PRICE = Price(base_micros=CREDIT, card_second_micros=CREDIT // 10, card_seconds_max=40)
"""At most 5 credits."""
MAXIMUM = 5 * CREDIT


def policy(  # noqa: PLR0913 - what a story changes
    version: int = 1,
    *,
    per_minute: int = 5,
    per_day: int = 20,
    credits: int = 300,  # noqa: A002 - the word of the domain
    contract: int | None = None,
    timezone: str = "UTC",
    keep: KeepPolicy | None = None,
    price: Price = PRICE,
) -> Policy:
    """Every tier has these limits; `contract` is that of acme in autocut, in credits."""
    limits = UserLimits(
        per_minute=per_minute, per_day=per_day, credits_month_micros=credits * CREDIT
    )
    every_lane = {lane: LanePolicy() for lane in Lane}
    agreed = {} if contract is None else {Scene.AUTOCUT: contract * CREDIT}
    return Policy(
        version=version,
        timezone=timezone,
        scenes={
            Scene.AUTOCUT: ScenePolicy(pool_id=PoolId("A"), price=price),
            Scene.REHEARSAL: ScenePolicy(pool_id=PoolId("R"), price=price, run_limit_seconds=30),
            Scene.GENAI: ScenePolicy(pool_id=PoolId("A"), price=price),
        },
        tiers={
            "free": TierPolicy(
                lane=Lane.P2, limits={Scene.AUTOCUT: limits, Scene.REHEARSAL: limits}
            ),
            "pro": TierPolicy(
                lane=Lane.P0,
                limits={Scene.AUTOCUT: limits, Scene.GENAI: limits},
                lanes={Scene.GENAI: Lane.P1},
            ),
        },
        pools={
            PoolId("A"): PoolPolicy(lanes=every_lane),
            PoolId("R"): PoolPolicy(lanes=every_lane),
        },
        tenants={ACME: TenantPolicy(credits_month_micros=agreed)},
        keep=keep or KeepPolicy(),
    )


def world(published: Policy | None = None, **changes: Any) -> Story:  # noqa: ANN401 - of `policy`
    """A partition that goes by this policy."""
    story = bare_world()
    return story.given(publish(published or policy(**changes)))


def bare_world() -> Story:
    """A partition that has no policy yet."""
    return Story(
        handle=quotas.handle,
        row=quotas.ROW,
        on_due=quotas.on_due,
        due_ms=quotas.due_ms,
        key_of=lambda event: getattr(event, "account_id", quotas.POLICY_KEY),
    )


def publish(published: Policy, reply_to: int | None = None) -> c.PublishPolicy:
    """The command of this version; another document of the same version is another command."""
    name = f"publish-{published.version}-{crc32(encode(published))}"
    return c.PublishPolicy(
        command_id=CommandId(name), policy=published, who="olga", why="spring", reply_to=reply_to
    )


def submit(  # noqa: PLR0913 - what a story changes
    name: str = "one",
    *,
    user: UserId = ANN,
    tenant: TenantId = NOBODY,
    scene: Scene = Scene.AUTOCUT,
    tier: str = "free",
    body: str = "",
    claimed: float | None = None,
    reply_to: int | None = None,
    account: AccountId | None = None,
    materials: int = 0,
) -> c.SubmitTask:
    """`name` is the key that the user chose; `body` is what stands in the request."""
    return c.SubmitTask(
        command_id=submit_id(name, user),
        task_id=task(name, user),
        origin=c.Origin(
            user_id=user,
            tenant_id=tenant,
            account_id=account or account_of(tenant, user),
            scene=scene,
            tier=tier,
            fingerprint=f"print-{body}",
            material_ids=tuple(MaterialId(f"m{number}") for number in range(materials)),
        ),
        card_seconds_claimed=claimed,
        reply_to=reply_to,
    )


def retry(  # noqa: PLR0913 - what a story changes
    name: str = "one",
    attempt: int = 1,
    *,
    user: UserId = ANN,
    tenant: TenantId = NOBODY,
    scene: Scene = Scene.AUTOCUT,
    tier: str = "free",
    materials: int = 0,
    reply_to: int | None = None,
) -> c.RetryTask:
    """The retry number `attempt` by hand of the task that was submitted under `name`."""
    return c.RetryTask(
        command_id=retry_id(name, attempt, user),
        task_id=task(name, user),
        user_id=user,
        tenant_id=tenant,
        account_id=account_of(tenant, user),
        scene=scene,
        tier=tier,
        materials=materials,
        reply_to=reply_to,
    )


def commit(
    amount_micros: int,
    reserved_by: str | None = None,
    *,
    account: AccountId = ANNS,
) -> c.CommitReservation:
    """Of the reservation that this command made (`one` of Ann where nothing is said)."""
    reserving = reserved_by or submit_id("one", ANN)
    return c.CommitReservation(
        command_id=CommandId(f"{reserving}.commit"),
        account_id=account,
        reservation_id=ReservationId(reserving),
        amount_micros=amount_micros,
    )


def release(
    reserved_by: str | None = None,
    *,
    ran: bool = True,
    account: AccountId = ANNS,
) -> c.ReleaseReservation:
    """The same, of a release."""
    reserving = reserved_by or submit_id("one", ANN)
    return c.ReleaseReservation(
        command_id=CommandId(f"{reserving}.release"),
        account_id=account,
        reservation_id=ReservationId(reserving),
        ran=ran,
    )


def refund(
    amount_micros: int,
    charged_by: str | None = None,
    *,
    number: int = 1,
    account: AccountId = ANNS,
) -> c.RefundCharge:
    """Of what the task of this reservation was charged; `number` tells several askings apart."""
    charge = charged_by or submit_id("one", ANN)
    return c.RefundCharge(
        command_id=CommandId(f"refund-{charge}-{number}"),
        account_id=account,
        charge_id=ChargeId(charge),
        amount_micros=amount_micros,
        reason="object lost",
        who="olga",
    )


def top_up(
    amount_micros: int,
    *,
    number: int = 1,
    user: UserId | None = ANN,
    account: AccountId = ANNS,
    scene: Scene = Scene.AUTOCUT,
    reply_to: int | None = None,
) -> c.TopUpQuota:
    """`user` None: the contract."""
    return c.TopUpQuota(
        command_id=CommandId(f"top-up-{number}"),
        account_id=account,
        user_id=user,
        scene=scene,
        amount_micros=amount_micros,
        who="olga",
        why="a good customer",
        reply_to=reply_to,
    )


def task(name: str, user: UserId = ANN) -> TaskId:
    return TaskId(f"task-{name}-{user}")


def submit_id(name: str, user: UserId = ANN) -> CommandId:
    return CommandId(f"submit-{name}-{user}")


def retry_id(name: str, attempt: int = 1, user: UserId = ANN) -> CommandId:
    return CommandId(f"retry-{name}-{attempt}-{user}")
