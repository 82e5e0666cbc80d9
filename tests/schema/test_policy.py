"""The policy document: what is shipped is readable, and every mistake is named with its field."""

import json
from pathlib import Path

import pytest

from api.contracts import MATERIALS_MAX_OF
from gpu_runners.pipelines.matting.moving import FRAMES_MAX
from schema.codec import encode
from schema.message import Micros
from schema.policy import MICROS_MAX, Policy, PolicyError, read_policy
from schema.words import Lane, Scene

POLICIES = Path(__file__).parents[2] / "cutlog" / "policies"
CREDIT = 1_000_000


def document(name: str = "local") -> bytes:
    return (POLICIES / f"{name}.json").read_bytes()


def shipped(name: str) -> Policy:
    return read_policy(document(name))


@pytest.mark.parametrize("name", ["local", "production"])
def test_what_is_shipped_is_a_policy_and_survives_its_bytes(name: str) -> None:
    policy = shipped(name)
    assert read_policy(encode(policy)) == policy


@pytest.mark.parametrize("name", ["local", "production"])
def test_every_pool_of_the_map_is_there_and_serves_its_scene(name: str) -> None:
    policy = shipped(name)
    assert set(policy.pools) == {"A", "B", "C", "C-spot", "M", "R"}
    assert {scene: rules.pool_id for scene, rules in policy.scenes.items()} == {
        Scene.AUTOCUT: "A",
        Scene.SMART: "B",
        Scene.GENAI: "C",
        Scene.MATTING: "M",
        Scene.REHEARSAL: "R",
    }
    assert Lane.P2 not in policy.pools["B"].lanes  # type: ignore[index]
    assert list(policy.pools["C-spot"].lanes) == [Lane.P2]  # type: ignore[index]


@pytest.mark.parametrize("name", ["local", "production"])
def test_a_task_of_as_much_as_one_may_hold_fits_its_run_limit(name: str) -> None:
    policy = shipped(name)
    matting = policy.scenes[Scene.MATTING]
    pool = policy.pools[matting.pool_id]
    assert pool.run_limit_seconds is not None

    def limit(materials: int) -> int:
        return min(matting.run_limit_of(materials), pool.run_limit_seconds or 0)

    # A second each is three times what two cores take, at full size and refined.
    assert all(limit(count) > count for count in range(1, MATERIALS_MAX_OF["matting"] + 1))
    # A film's frame is like a picture, but small.
    assert all(limit(count) > count * FRAMES_MAX / 3 for count in range(1, 12))
    price = matting.price_of(MATERIALS_MAX_OF["matting"])
    assert price.card_seconds_max >= MATERIALS_MAX_OF["matting"]
    assert price.base_micros == MATERIALS_MAX_OF["matting"] * matting.price.base_micros


@pytest.mark.parametrize("name", ["local", "production"])
def test_every_scene_that_can_be_made_with_less_is_when_memory_is_short(name: str) -> None:
    scenes = shipped(name).scenes
    assert {scene for scene in scenes if scenes[scene].lower_spec} == {
        Scene.AUTOCUT,
        Scene.SMART,
        Scene.GENAI,
        Scene.MATTING,
    }


def test_production_has_the_figures_of_the_owner() -> None:
    policy = shipped("production")
    limits = policy.tiers["free"].limits[Scene.AUTOCUT]
    assert (limits.per_minute, limits.per_day) == (5, 20)
    assert limits.credits_month_micros == 300 * CREDIT
    for pool in policy.pools.values():
        assert (pool.lease_seconds, pool.beat_seconds, pool.accept_seconds) == (120, 15, 10)
    assert policy.retries.delays_ms == (10_000, 30_000)
    assert policy.retries.loss_delay_ms == 120_000
    assert policy.keep.charge_seconds == 40 * 86_400
    assert policy.tiers["free"].lane is Lane.P2
    assert policy.tiers["pro"].lane is Lane.P0


def test_locally_a_free_user_is_over_quota_after_a_few_films() -> None:
    policy = shipped("local")
    price = policy.scenes[Scene.AUTOCUT].price
    film = price.base_micros + price.card_second_micros * price.card_seconds_max
    limits = policy.tiers["free"].limits[Scene.AUTOCUT]
    assert film <= limits.credits_month_micros < 2 * film
    assert shipped("local").tiers["pro"].limits[Scene.AUTOCUT].credits_month_micros > 100 * film


def test_the_tier_load_is_never_refused() -> None:
    for scene, limits in shipped("local").tiers["load"].limits.items():
        assert limits.per_minute == limits.per_day == 10**9, scene
        assert limits.credits_month_micros == MICROS_MAX, scene


def test_the_largest_amount_is_that_of_the_wire() -> None:
    (meta,) = Micros.__metadata__  # type: ignore[attr-defined]
    assert meta.le == MICROS_MAX


GONE = object()
"""Instead of a value: the field is taken out."""
TOO_DEAR = {"base_micros": 0, "card_second_micros": 10**12, "card_seconds_max": 10**9}


@pytest.mark.parametrize(
    ("path", "value", "told"),
    [
        ("timezone", "Mars/Olympus", "timezone"),
        ("timezone", "../etc/passwd", "timezone"),
        ("timezone", "Europe", "timezone"),
        ("timezone", "", "timezone"),
        ("scenes.autocut.pool_id", "Z", "scenes.autocut.pool_id"),
        ("pools.Z", {"lanes": {}}, "pools.Z"),
        ("pools.A.beat_seconds", 30, "a lease must outlast"),
        ("scenes.smart", GONE, "tiers.pro.limits"),
        ("tiers.pro.lanes.smart", "p2", "which its pool lacks"),
        ("scenes.autocut.price", TOO_DEAR, "scenes.autocut.price"),
        ("version", 0, "version"),
        ("vesrion", 1, "vesrion is no field"),
        ("pools.A.lanes.p0.ttl", 3, "pools.A.lanes.p0.ttl is no field"),
        ("tiers.pro.limits.autocut.per_hour", 3, "limits.autocut.per_hour is no field"),
        ("tiers.pro.limits.autocut.per_day", GONE, "per_day"),
        ("tiers.pro.lane", "p3", "p3"),
        ("retries.jitter", 1.5, "jitter"),
        ("retries.losses_max", "5", "losses_max"),
    ],
)
def test_a_mistake_is_named_with_its_field(path: str, value: object, told: str) -> None:
    policy = json.loads(document())
    *parents, last = path.split(".")
    place = policy
    for name in parents:
        place = place[name]
    if value is GONE:
        del place[last]
    else:
        place[last] = value
    with pytest.raises(PolicyError, match=told.replace(".", r"\.")):
        read_policy(json.dumps(policy).encode())


@pytest.mark.parametrize("text", [b"", b"[]", b"{}", b"null", b"\xff", b'{"version": NaN}'])
def test_what_is_no_policy_is_told(text: bytes) -> None:
    with pytest.raises(PolicyError):
        read_policy(text)


def test_a_document_nested_without_end_is_told() -> None:
    with pytest.raises(PolicyError):
        read_policy(b'{"version":' + b"[" * 100_000)
