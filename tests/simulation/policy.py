"""The policy of the simulation: short times, few credits, three pools on as many partitions."""

from random import Random

import msgspec

from schema.ids import PoolId
from schema.policy import (
    BreakerPolicy,
    KeepPolicy,
    LanePolicy,
    Policy,
    PoolPolicy,
    Price,
    RetryPolicy,
    ScenePolicy,
    TenantPolicy,
    TierPolicy,
    UserLimits,
)
from schema.words import Lane, Scene

SCENES = {Scene.REHEARSAL: PoolId("R"), Scene.AUTOCUT: PoolId("A"), Scene.GENAI: PoolId("C")}
ENDED_SECONDS, FAILED_SECONDS = 240, 480
TTL_SECONDS = {Lane.P0: 60, Lane.P1: 90, Lane.P2: 120}
CREATED_WAIT_SECONDS = 70
RUN_LIMIT_SECONDS = 15
BACKSTOP_SECONDS = 20
STORING_SECONDS = 45
LEASE_SECONDS = 9
BEAT_SECONDS = 2
ACCEPT_SECONDS = 3
_CREDIT = 1_000_000


def policy(version: int, dice: Random) -> Policy:
    """Another version has other limits; times stay, so that a watch can judge them."""
    price = Price(
        base_micros=_CREDIT,
        card_second_micros=_CREDIT // 10,
        card_seconds_max=RUN_LIMIT_SECONDS,
        cancel_share_base=0.5,
    )
    rules = {
        scene: ScenePolicy(
            pool_id=pool_id,
            price=msgspec.structs.replace(price, base_micros=_CREDIT * (1 + version % 2)),
            run_limit_seconds=RUN_LIMIT_SECONDS,
            created_wait_seconds=CREATED_WAIT_SECONDS,
        )
        for scene, pool_id in SCENES.items()
    }
    return Policy(
        version=version,
        scenes=rules,
        tiers={
            "free": _tier(Lane.P2, dice.randint(2, 4), dice.randint(4, 8), 15),
            "pro": _tier(Lane.P1, dice.randint(8, 20), 200, dice.randint(30, 100)),
            "team": _tier(Lane.P0, 60, 1_000, 2_000),
        },
        pools={pool_id: _pool(pool_id) for pool_id in SCENES.values()},
        tenants={
            "acme": TenantPolicy(credits_month_micros={Scene.REHEARSAL: 60 * _CREDIT}),
            "tiny": TenantPolicy(
                credits_month_micros=dict.fromkeys(SCENES, dice.randint(6, 20) * _CREDIT)
            ),
        },
        retries=RetryPolicy(
            delays_ms=(1_000, 3_000),
            loss_delay_ms=dice.choice([0, 300, 2_000]),
            losses_max=5,
            jitter=0.2,
            backstop_seconds=BACKSTOP_SECONDS,
            storing_seconds=STORING_SECONDS,
        ),
        keep=KeepPolicy(
            ended_seconds=ENDED_SECONDS, failed_seconds=FAILED_SECONDS, charge_seconds=3_600
        ),
    )


def _tier(lane: Lane, per_minute: int, per_day: int, credits_month: int) -> TierPolicy:
    limits = UserLimits(
        per_minute=per_minute, per_day=per_day, credits_month_micros=credits_month * _CREDIT
    )
    return TierPolicy(lane=lane, limits=dict.fromkeys(SCENES, limits))


def _pool(pool_id: PoolId) -> PoolPolicy:
    """C gives way to p0 and sends what it cannot take to A; A's breaker is a nervous one."""
    common = PoolPolicy(
        lanes={lane: LanePolicy(ttl_seconds=seconds) for lane, seconds in TTL_SECONDS.items()},
        lease_seconds=LEASE_SECONDS,
        beat_seconds=BEAT_SECONDS,
        accept_seconds=ACCEPT_SECONDS,
        expected_seconds=5,
        half_life_seconds=30,
    )
    nervous = BreakerPolicy(
        failure_share_max=0.3, attempts_min=6, window_seconds=60, open_seconds=8, probes=2
    )
    if pool_id == "C":
        return msgspec.structs.replace(
            common,
            preemptible=True,
            min_run_seconds=1,
            preemptions_max=2,
            yield_seconds=2,
            spare_pool=PoolId("A"),
            spill_wait_seconds=20,
            breaker=nervous,
        )
    return msgspec.structs.replace(common, breaker=nervous) if pool_id == "A" else common
