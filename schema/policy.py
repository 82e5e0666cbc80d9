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


class ScenePolicy(Part):
    pool_id: PoolId
    price: Price
    run_limit_seconds: Positive = 600
    created_wait_seconds: Positive = 900
    """How long a task waits for its material before it EXPIRES."""


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
    input_seconds_max: Positive = 600
    input_bytes_max: Bytes = 500_000_000

    def lane_of(self, scene: Scene) -> Lane:
        """The lane of a submission of this tier in `scene`."""
        return self.lanes.get(scene, self.lane)


class TenantPolicy(Part):
    """A contract: credits a month by scene. A scene that is not listed has no contract limit."""

    credits_month_micros: dict[Scene, Micros] = {}


class LanePolicy(Part):
    queue_limit: Positive = 100_000
    """Waiting tasks beyond which the door answers 429 with an estimate."""
    ttl_seconds: Positive = 86_400
    """A task that waits longer EXPIRES (refund)."""


class PoolPolicy(Part):
    lanes: dict[Lane, LanePolicy]
    lease_seconds: Positive = 120
    beat_seconds: Positive = 15
    accept_seconds: Positive = 10
    expected_seconds: Positive = 20
    """Card time of one task, for estimates."""


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
    for scene, rules in policy.scenes.items():
        if rules.pool_id not in policy.pools:
            raise PolicyError(f"scenes.{scene}.pool_id: {rules.pool_id!r} is not in pools")
        price = rules.price
        dearest = price.base_micros + price.card_second_micros * price.card_seconds_max
        if dearest > MICROS_MAX:
            raise PolicyError(f"scenes.{scene}.price: the maximum exceeds {MICROS_MAX} micros")
    for name, tier in policy.tiers.items():
        _check_tier(policy, name, tier)


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
