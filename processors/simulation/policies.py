"""What is asked, by whom, on which cards and by which rules: the figures behind every scenario.

1/100 of a million users a day: 30,000 tasks, a film of 60 card-seconds in the mean, peak factor 3.
The cards are half of what the peak would need (`cards_at_peak`), spread over the five pools. A card
that has several slots works on so many films at once, each so much longer: a slot is a share.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

from schema.ids import PoolId
from schema.policy import (
    BreakerPolicy,
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

DAY_SECONDS: Final = 86_400
TASKS_A_DAY: Final = 30_000
PEAK_FACTOR: Final = 3.0
_CREDIT: Final = 1_000_000


class Work(NamedTuple):
    """What a scene takes of a card."""

    pool_id: str
    least_seconds: float
    most_seconds: float
    """Card-seconds, drawn evenly between the two."""

    @property
    def mean_seconds(self) -> float:
        return (self.least_seconds + self.most_seconds) / 2


class Cards(NamedTuple):
    """The cards of a pool."""

    kind: str
    number: int
    slots_per_card: int
    lanes: tuple[Lane, ...]
    dollar_hour: float
    """6 in the mean of the platform; spot at a third of its sister's."""


WORKS: Final[dict[Scene, Work]] = {
    Scene.AUTOCUT: Work("A", 15, 25),
    Scene.SMART: Work("B", 45, 90),
    Scene.GENAI: Work("C", 120, 300),
    Scene.MATTING: Work("M", 0.5, 1.5),
}
_ALL: Final = (Lane.P0, Lane.P1, Lane.P2)
CARDS: Final[dict[str, Cards]] = {
    "A": Cards("L20 / 4090", 8, 4, _ALL, 4.0),
    "B": Cards("A100 40G", 5, 2, (Lane.P0, Lane.P1), 7.0),
    "C": Cards("H20 / A100 80G", 15, 1, _ALL, 8.0),
    "C-spot": Cards("H20 / A100 80G, spot", 2, 1, (Lane.P2,), 2.7),
    "M": Cards("L20 / 4090", 1, 8, _ALL, 4.0),
}
LANE_MIX: Final[dict[Lane, float]] = {Lane.P0: 0.10, Lane.P1: 0.35, Lane.P2: 0.55}
SCENE_MIX: Final[dict[Lane, dict[Scene, float]]] = {
    Lane.P0: {Scene.AUTOCUT: 0.78, Scene.SMART: 0.11, Scene.GENAI: 0.11},
    Lane.P1: {Scene.AUTOCUT: 0.78, Scene.SMART: 0.11, Scene.GENAI: 0.11},
    Lane.P2: {Scene.AUTOCUT: 0.60, Scene.GENAI: 0.285, Scene.MATTING: 0.115},
}
"""The free may not use smart (pool B has no p2); they and the batches fill the genai cards."""
TIERS: Final[dict[Lane, str]] = {Lane.P0: "member", Lane.P1: "plus", Lane.P2: "free"}
RUN_LIMIT_SECONDS: Final[dict[Scene, int]] = {
    Scene.AUTOCUT: 400,
    Scene.SMART: 600,
    Scene.GENAI: 1_200,
    Scene.MATTING: 120,
}


def mean_card_seconds() -> float:
    """Of a film, over all that is asked."""
    return sum(
        LANE_MIX[lane] * share * WORKS[scene].mean_seconds
        for lane, mix in SCENE_MIX.items()
        for scene, share in mix.items()
    )


def cards_at_peak(tasks_a_day: float = TASKS_A_DAY) -> float:
    """Cards that are busy at the peak if nobody waits: three times the mean of the day."""
    return tasks_a_day * mean_card_seconds() / DAY_SECONDS * PEAK_FACTOR


def cards_in_all() -> int:
    return sum(cards.number for cards in CARDS.values())


def demand_by_pool(lanes: tuple[Lane, ...] = _ALL) -> dict[str, float]:
    """Cards that these lanes keep busy at the peak, by pool."""
    rate = TASKS_A_DAY / DAY_SECONDS * PEAK_FACTOR
    found: dict[str, float] = dict.fromkeys(CARDS, 0.0)
    for lane in lanes:
        for scene, share in SCENE_MIX[lane].items():
            work = WORKS[scene]
            found[work.pool_id] += rate * LANE_MIX[lane] * share * work.mean_seconds
    return found


def slot_seconds(scene: Scene) -> float:
    """How long a task holds its slot in the mean."""
    work = WORKS[scene]
    return work.mean_seconds * CARDS[work.pool_id].slots_per_card


def expected_seconds(pool_id: str) -> int:
    home = "C" if pool_id == "C-spot" else pool_id
    return round(next(slot_seconds(scene) for scene, w in WORKS.items() if w.pool_id == home))


def policy(*, model_caps: Mapping[str, int] | None = None) -> Policy:
    """The rules by which all scenarios are played."""
    return Policy(
        version=1,
        scenes={
            scene: ScenePolicy(
                pool_id=PoolId(work.pool_id),
                price=Price(
                    base_micros=_CREDIT,
                    card_second_micros=_CREDIT // 100,
                    card_seconds_max=RUN_LIMIT_SECONDS[scene],
                    cancel_share_base=0.5,
                ),
                run_limit_seconds=RUN_LIMIT_SECONDS[scene],
                lower_spec=scene is Scene.GENAI,
            )
            for scene, work in WORKS.items()
        },
        tiers={TIERS[lane]: _tier(lane) for lane in Lane},
        pools={PoolId(name): _pool(name, model_caps or {}) for name in CARDS},
        tenant_default=TenantPolicy(),
        retries=RetryPolicy(),
    )


def _tier(lane: Lane) -> TierPolicy:
    limits = UserLimits(per_minute=5, per_day=20, credits_month_micros=300 * _CREDIT)
    shop = UserLimits(per_minute=100_000, per_day=1_000_000, credits_month_micros=10**14)
    offered = dict.fromkeys(SCENE_MIX[lane], limits) | {Scene.MATTING: shop}
    return TierPolicy(lane=lane, limits=offered)


def _lanes(pool_id: str) -> dict[Lane, LanePolicy]:
    rules = {
        Lane.P0: LanePolicy(ttl_seconds=3_600, wait_p95_seconds=30),
        Lane.P1: LanePolicy(
            ttl_seconds=3_600,
            wait_max_seconds={"A": 108, "B": 140}.get(pool_id, 165),
            wait_p95_seconds=180,
            floor_picks=20,
        ),
        Lane.P2: LanePolicy(ttl_seconds=86_400, queue_limit=4_000, floor_picks=40),
    }
    return {lane: rules[lane] for lane in CARDS[pool_id].lanes}


def _pool(pool_id: str, model_caps: Mapping[str, int]) -> PoolPolicy:
    cards = CARDS[pool_id]
    common = PoolPolicy(
        lanes=_lanes(pool_id),
        expected_seconds=expected_seconds(pool_id),
        card=cards.kind,
        slots_per_card=cards.slots_per_card,
        # Long enough to hold a burst back, too short to make somebody who comes twice in an
        # evening wait behind everybody: then no estimate could be true for both.
        half_life_seconds=60,
        breaker=BreakerPolicy(failure_share_max=0.10, attempts_min=50),
    )
    if pool_id == "C":
        return _with(
            common,
            preemptible=True,
            min_run_seconds=30,
            yield_seconds=20,
            spare_pool=PoolId("C-spot"),
            spill_wait_seconds=8 * 3_600,
            lower_lane=Lane.P2,
            model_caps=dict(model_caps),
        )
    if pool_id == "C-spot":
        return _with(common, preemptible=True, spot=True)
    return common


def _with(pool: PoolPolicy, **fields: object) -> PoolPolicy:
    from msgspec.structs import replace  # noqa: PLC0415 - only here

    return replace(pool, **fields)
