"""The fast simulation, made small and rough: a crowd of faults in half an hour of virtual time."""

from random import Random

from msgspec.structs import replace

from processors.simulation.play import Play, Played
from processors.simulation.policies import policy
from processors.simulation.scenarios import HOT_MODEL, Burst, Pause, Scenario
from schema.ids import PoolId
from schema.policy import BreakerPolicy, Policy, PoolPolicy, RetryPolicy
from schema.words import Lane

TASKS = 300
FAULTS = 15.0
_FLOORS = {Lane.P0: 0, Lane.P1: 4, Lane.P2: 6}
_SECONDS = 900
_BURSTS = (
    None,
    Burst(60, 600, TASKS // 5, "p1", ""),
    Burst(200, 260, TASKS // 10, "p1", "genai"),
    Burst(300, 420, TASKS // 6, "p0", "genai"),
)


def scenario(seed: int, tasks: int = TASKS) -> Scenario:
    """What a seed has in store."""
    dice = Random(seed)
    lane = dice.choice(["p0", "p1", "p2"])
    begin = dice.randint(60, _SECONDS // 2)
    pause = Pause(dice.choice(["A", "C"]), lane, begin, begin + dice.randint(60, 900))
    return Scenario(
        name="seed",
        seconds=_SECONDS,
        exactly=tasks,
        hot_share=dice.choice([0.0, 0.6]),
        outages=(dice.randint(60, _SECONDS),) if dice.random() < 0.3 else (),
        skewed=dice.random() < 0.3,
        spot_waves=(dice.randint(100, _SECONDS),),
        cancels=0.08,
        settle_hours=5,
        pauses=(pause,) if dice.random() < 0.4 else (),
        burst=dice.choice(_BURSTS),
    )


def rules(seed: int) -> Policy:
    """The platform's, with a shorter patience: so that everything happens in half an hour."""
    dice = Random(seed + 1)
    found = policy(model_caps={HOT_MODEL: 3})
    pools: dict[PoolId, PoolPolicy] = {}
    for pool_id, pool in found.pools.items():
        lanes = {
            lane: replace(
                each,
                wait_max_seconds=None,
                ttl_seconds=_ttl(lane, dice),
                floor_picks=_FLOORS[lane],
            )
            for lane, each in pool.lanes.items()
        }
        pools[pool_id] = replace(
            pool,
            lanes=lanes,
            half_life_seconds=120,
            tenant_share=dice.choice([1.0, 0.5]),
            min_run_seconds=20,
            preemptions_max=1,
            yield_seconds=15,
            spill_wait_seconds=400 if pool.spare_pool else None,
            breaker=BreakerPolicy(
                failure_share_max=0.2,
                attempts_min=5,
                window_seconds=300,
                open_seconds=40,
                probes=2,
            ),
        )
    retries = RetryPolicy(delays_ms=(2_000, 8_000), loss_delay_ms=dice.choice([0, 3_000, 120_000]))
    return replace(found, pools=pools, retries=retries)


def _ttl(lane: Lane, dice: Random) -> int:
    return 900 if lane is Lane.P0 else dice.choice([900, 7_200])


def play(seed: int, tasks: int = TASKS) -> Played:
    """One seed, with memory held against the events after every batch."""
    return Play(scenario(seed, tasks), seed, FAULTS, rules(seed), strict=True).run()


__all__ = ["TASKS", "play", "rules", "scenario"]
