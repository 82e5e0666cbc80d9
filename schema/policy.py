"""Limits, prices and pools as data: one versioned document that operators publish.

A policy is read from a file at the first start and changed by `PublishPolicy`; every partition
keeps the newest as a row and names its version in each event. Versions only rise. Durations are
seconds or milliseconds as their names say, money is micros. Nothing here decides anything: the
rules that read these numbers are in `commands`.
"""

from typing import Annotated, Any, Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import msgspec

from schema.ids import PoolId
from schema.message import Micros, Part
from schema.topics import POOL_PARTITIONS
from schema.words import Lane, Scene

CREATED_WAIT_SECONDS_MIN: Final = 720
"""While a material is looked at its tasks hear of it every ten minutes: they must wait longer."""
MICROS_MAX: Final = 10**15
"""No amount on the wire is larger (`schema.message.Micros`)."""

Positive = Annotated[int, msgspec.Meta(ge=1, le=10**9)]
Count = Annotated[int, msgspec.Meta(ge=0, le=10**9)]
Bytes = Annotated[int, msgspec.Meta(ge=1, le=10**13)]
Share = Annotated[float, msgspec.Meta(ge=0, le=1)]


class Price(Part):
    """What a task of a scene costs its account, frozen into the task when it is reserved.

    reserved = base + per_card_second x card_seconds_max; charged = base + per_card_second x card
    time used, never more than reserved.
    """

    base_micros: Micros
    card_second_micros: Micros
    card_seconds_max: Positive
    cancel_share_base: Share = 0.0
    """The share of `base_micros` that a task canceled while RUNNING still pays."""


class EachMaterial(Part):
    """What every material of a task beyond the first adds to its price and to its run limit."""

    base_micros: Micros = 0
    card_seconds_max: Count = 0
    run_limit_seconds: Count = 0


class ScenePolicy(Part):
    pool_id: PoolId
    price: Price
    run_limit_seconds: Positive = 600
    each_material: EachMaterial = EachMaterial()
    """For scenes that make something of each material: a batch costs and lasts by its size."""
    created_wait_seconds: Positive = 900
    """How long a task waits for its material before it EXPIRES, from the last sign of that on."""
    lower_spec: bool = False
    """Whether it can be made with less (size, steps) when memory or room is short."""

    def price_of(self, materials: int) -> Price:
        """The price of a task with so many materials."""
        more, each, price = max(materials - 1, 0), self.each_material, self.price
        return msgspec.structs.replace(
            price,
            base_micros=price.base_micros + more * each.base_micros,
            card_seconds_max=price.card_seconds_max + more * each.card_seconds_max,
        )

    def run_limit_of(self, materials: int) -> int:
        """The seconds that a task with so many materials may run."""
        return self.run_limit_seconds + max(materials - 1, 0) * self.each_material.run_limit_seconds


class UserLimits(Part):
    """What a user of one tier may submit in one scene."""

    per_minute: Count
    per_day: Count
    credits_month_micros: Micros


class TierPolicy(Part):
    lane: Lane
    limits: dict[Scene, UserLimits]
    """A scene that is not listed is not offered to this tier."""
    lanes: dict[Scene, Lane] = {}
    """Scenes whose lane is another than `lane`."""
    weight: Count = 0
    """Places behind, 10 s of waiting each: priority = weight - wait / 10 s, lowest first."""
    input_seconds_max: Positive = 600
    input_bytes_max: Bytes = 500_000_000
    input_pixels_max: Positive = 200_000_000
    """Of one picture."""

    def lane_of(self, scene: Scene) -> Lane:
        """The lane of a submission of this tier in `scene`."""
        return self.lanes.get(scene, self.lane)


class TenantPolicy(Part):
    """A contract: credits a month by scene. A scene that is not listed has no contract limit."""

    credits_month_micros: dict[Scene, Micros] = {}


class LanePolicy(Part):
    queue_limit: Positive = 100_000
    """Waiting tasks beyond which the door answers 429 with an estimate."""
    wait_max_seconds: Positive | None = None
    """An estimated wait beyond which the door answers 429 with it; None: only `queue_limit`."""
    ttl_seconds: Positive = 86_400
    """A task that waits longer EXPIRES (refund)."""
    floor_picks: Count = 20
    """While it waits, the lane gets at least one pick in so many; 0: what better lanes leave."""
    wait_p95_seconds: Positive | None = None
    """The objective: 95 % of its tasks start sooner."""


class BreakerPolicy(Part):
    """When a scene is kept off a pool whose cards fail it."""

    failure_share_max: Share = 0.01
    attempts_min: Positive = 200
    """Attempts in the window below which nothing is judged."""
    window_seconds: Positive = 300
    open_seconds: Positive = 60
    """Then it is half open: a few are let through."""
    probes: Positive = 3
    """So many at once while half open, and so many must end well in a row to close it."""


class ScalingPolicy(Part):
    """How many cards a pool wants. Up on wait and depth together, down when either is low."""

    cards_min: Count = 0
    cards_max: Positive
    budget_cards: Count = 0
    """Cards beyond `cards_max` are never wanted; 0: no further bound."""
    wait_target_seconds: Positive = 30
    """P95 of the waits of the look-back; beyond it, and at depth >= `up_share`, it goes up."""
    up_share: Share = 0.7
    down_share: Share = 0.6
    """Wait or demand below this share of its mark for `down_seconds`: it goes down."""
    down_seconds: Positive = 30
    cooldown_seconds: Positive = 30
    look_back_seconds: Positive = 30
    """Of waits; no longer than what a new card takes to help."""
    horizon_seconds: Positive = 60
    """The demand that waits is to be worked off in so long."""
    step_share_max: Share = 0.5
    """One decision changes the number by at most this share (and by at least one)."""


class PoolPolicy(Part):
    lanes: dict[Lane, LanePolicy]
    lease_seconds: Positive = 120
    beat_seconds: Positive = 15
    accept_seconds: Positive = 10
    expected_seconds: Positive = 20
    """Card time of one task, for estimates and shares."""
    baseline_share: Share = 0.1
    """How far the card time may be from `expected_seconds` before somebody is told."""
    card: str = ""
    """The kinds of card, for people."""
    slots_per_card: Positive = 1
    """A runner is one card; it registers so many slots."""
    run_limit_seconds: Positive | None = None
    """The pool's own run limit; the lower of this and the scene's counts."""
    preemptible: bool = False
    """Whether p0 may take a slot from a lower lane. Only for work that can begin again."""
    spot: bool = False
    """Its cards may be taken away at any time."""
    min_run_seconds: Count = 30
    """An attempt that is younger is not preempted."""
    preemptions_max: Count = 3
    """A task is preempted at most so often."""
    yield_seconds: Positive = 30
    """How long a preempted attempt may take to checkpoint; how long its room is held after that."""
    model_caps: dict[str, Positive] = {}
    """Attempts at once by model."""
    tenant_share: Share = 1.0
    """Of the pool's slots, the most that one account gets while others wait."""
    tenant_weights: dict[str, Positive] = {}
    """By account; 1 where none is named. Twice the weight, twice the card time."""
    half_life_seconds: Positive = 600
    """After so long, card time that an account has had counts half."""
    spare_pool: PoolId | None = None
    """Where a task goes, once, when this pool or its model is full or its breaker open."""
    spill_wait_seconds: Positive | None = None
    """The estimated wait from which on the pool counts as full; None: never."""
    lower_lane: Lane | None = None
    """The lane to which a task of a full pool or model goes, once, if there is no spare pool."""
    breaker: BreakerPolicy | None = None
    scaling: ScalingPolicy | None = None


class RetryPolicy(Part):
    delays_ms: tuple[Count, ...] = (10_000, 30_000)
    """Before retry 1, 2, …; their number is how many counted retries a task has."""
    loss_delay_ms: Count = 120_000
    losses_max: Positive = 5
    """Uncounted losses (of runners, leases, preemption) before the task fails."""
    jitter: Share = 0.2
    backstop_seconds: Positive = 600
    """RUNNING ends this long after the run limit, whatever else happened."""
    storing_seconds: Positive = 4_200
    """The same, once the attempt is storing its result."""


class KeepPolicy(Part):
    """How long what has ended is remembered by the deciders."""

    ended_seconds: Positive = 86_400
    failed_seconds: Positive = 604_800
    charge_seconds: Positive = 3_456_000
    """40 days: how long a charge can be refunded, and the refund told twice is known."""

    @property
    def released_seconds(self) -> int:
        """What a FAILED task gave back is known as long as the task: it is not reserved again."""
        return max(self.ended_seconds, self.failed_seconds)


class Policy(Part):
    version: Positive
    timezone: str = "UTC"
    """IANA name of the zone in which days and months of quotas begin. Fixed by the first policy."""
    scenes: dict[Scene, ScenePolicy]
    tiers: dict[str, TierPolicy]
    pools: dict[PoolId, PoolPolicy]
    tenants: dict[str, TenantPolicy] = {}
    tenant_default: TenantPolicy = TenantPolicy()
    retries: RetryPolicy = RetryPolicy()
    keep: KeepPolicy = KeepPolicy()

    def tenant(self, tenant_id: str) -> TenantPolicy:
        """The contract of a tenant, or the default one."""
        return self.tenants.get(tenant_id, self.tenant_default)


class PolicyError(ValueError):
    """The document is not a policy; the message says which field and why."""


def read_policy(document: bytes) -> Policy:
    """A policy from its JSON document; raises PolicyError with the field that is wrong.

    Stricter than the wire: a field that no rule reads is a typing error of the operator, while in a
    message it is a newer release's.
    """
    try:
        raw = msgspec.json.decode(document)
        policy = msgspec.convert(raw, Policy, strict=True)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise PolicyError(str(error)) from error
    _refuse_unknown_fields(policy, raw, "")
    check_policy(policy)
    for name, scene in policy.scenes.items():
        if scene.created_wait_seconds < CREATED_WAIT_SECONDS_MIN:
            raise PolicyError(
                f"scenes.{name}.created_wait_seconds: at least {CREATED_WAIT_SECONDS_MIN}, "
                "or tasks expire while their material is looked at"
            )
    return policy


def check_policy(policy: Policy) -> None:
    """What types cannot say: that names lead somewhere and numbers fit; raises PolicyError."""
    try:
        ZoneInfo(policy.timezone)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise PolicyError(f"timezone: {policy.timezone!r} is no IANA zone") from error
    for pool_id, pool in policy.pools.items():
        if pool_id not in POOL_PARTITIONS:
            raise PolicyError(f"pools.{pool_id} has no place in schema.topics.POOL_PARTITIONS")
        if pool.beat_seconds >= pool.lease_seconds:
            raise PolicyError(f"pools.{pool_id}: a lease must outlast a beat")
        _check_pool(policy, pool_id, pool)
    for scene, rules in policy.scenes.items():
        if rules.pool_id not in policy.pools:
            raise PolicyError(f"scenes.{scene}.pool_id: {rules.pool_id!r} is not in pools")
        price = rules.price
        dearest = price.base_micros + price.card_second_micros * price.card_seconds_max
        if dearest > MICROS_MAX:
            raise PolicyError(f"scenes.{scene}.price: the maximum exceeds {MICROS_MAX} micros")
    for name, tier in policy.tiers.items():
        _check_tier(policy, name, tier)


def _check_pool(policy: Policy, pool_id: PoolId, pool: PoolPolicy) -> None:
    """Where a pool sends what it cannot take, and how it grows."""
    spare = pool.spare_pool
    if spare is not None:
        if spare == pool_id or spare not in policy.pools:
            raise PolicyError(f"pools.{pool_id}.spare_pool: {spare!r} is no other pool")
        missing = sorted(set(pool.lanes) - set(policy.pools[spare].lanes))
        if missing and pool.lower_lane is None:
            raise PolicyError(
                f"pools.{pool_id}.spare_pool: {spare!r} lacks the lanes {', '.join(missing)}; "
                "name a lower_lane that it has, or give it those lanes"
            )
    if pool.lower_lane is not None:
        there = pool.lanes if spare is None else policy.pools[spare].lanes
        if pool.lower_lane not in there:
            raise PolicyError(f"pools.{pool_id}.lower_lane: {pool.lower_lane!r} is not served")
    scaling = pool.scaling
    if scaling is not None and scaling.cards_min > scaling.cards_max:
        raise PolicyError(f"pools.{pool_id}.scaling: cards_min is more than cards_max")
    if scaling is not None and scaling.down_share >= scaling.up_share:
        raise PolicyError(
            f"pools.{pool_id}.scaling: down_share must be under up_share, or the pool swings"
        )


def _check_tier(policy: Policy, name: str, tier: TierPolicy) -> None:
    for scene in tier.limits:
        if scene not in policy.scenes:
            raise PolicyError(f"tiers.{name}.limits: {scene!r} is not in scenes")
        lane = tier.lane_of(scene)
        if lane not in policy.pools[policy.scenes[scene].pool_id].lanes:
            raise PolicyError(f"tiers.{name}: {scene!r} goes to {lane!r}, which its pool lacks")


def _refuse_unknown_fields(value: object, raw: Any, path: str) -> None:  # noqa: ANN401 - JSON
    """Hold a struct against the JSON object that it was read from."""
    if isinstance(value, msgspec.Struct):
        for name, part in raw.items():
            if name not in value.__struct_fields__:
                raise PolicyError(f"{path}{name} is no field of a policy")
            _refuse_unknown_fields(getattr(value, name), part, f"{path}{name}.")
    elif isinstance(value, dict):
        for name, part in value.items():
            _refuse_unknown_fields(part, raw[name], f"{path}{name}.")
