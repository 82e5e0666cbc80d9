"""Stories of quotas: the door, what is held and resolved, refunds, operators, forgetting."""

from datetime import UTC, datetime, timedelta

import msgspec
import pytest

from commands import quotas
from commands.decider import Now, TimerDue
from schema import commands as c
from schema import events as e
from schema.ids import CommandId, EventId, MaterialId, PoolId, TenantId
from schema.policy import EachMaterial, KeepPolicy, Price
from schema.refusals import Refusal
from schema.replies import Accepted, Refused, Remaining
from schema.words import Lane, Scene
from tests.support.quotas import (
    ACME,
    ACMES,
    ANN,
    ANNS,
    BEN,
    CREDIT,
    MAXIMUM,
    PRICE,
    bare_world,
    commit,
    policy,
    publish,
    refund,
    release,
    retry,
    retry_id,
    submit,
    submit_id,
    task,
    top_up,
    world,
)
from tests.support.spec import NOON, Story, a

MINUTE, DAY = 60, 86_400
MARCH = e.Window(start=datetime(2026, 3, 1, tzinfo=UTC), end=datetime(2026, 4, 1, tzinfo=UTC))
SECOND_OF_MARCH = e.Window(
    start=datetime(2026, 3, 2, tzinfo=UTC), end=datetime(2026, 3, 3, tzinfo=UTC)
)
THAT_MINUTE = e.Window(start=NOON, end=NOON + timedelta(minutes=1))


def left(
    minute: int, day: int, credits_micros: int, contract_micros: int | None = None
) -> Remaining:
    """What is left at noon of 2 March."""
    return Remaining(
        minute=minute,
        day=day,
        credits_micros=credits_micros,
        contract_micros=contract_micros,
        minute_window=THAT_MINUTE,
        day_window=SECOND_OF_MARCH,
        month_window=MARCH,
    )


def month(story: Story, scene: Scene = Scene.AUTOCUT) -> quotas.UserMonth:
    """The only month that Ann has in this scene."""
    (row,) = [
        row for key, row in story.rows if isinstance(row, quotas.UserMonth) and f"/{scene}/" in key
    ]
    return row


def contract(story: Story) -> quotas.TenantMonth:
    (row,) = [row for _, row in story.rows if isinstance(row, quotas.TenantMonth)]
    return row


def _timer(key: str) -> TimerDue:
    return TimerDue(CommandId("tick"), key)


# --- the door ------------------------------------------------------------------------------------


def test_a_submission_reserves_its_maximum_and_orders_its_task() -> None:
    story = world()
    told = submit(reply_to=3)
    outcome = story.when(told)
    outcome.then(
        a(
            e.QuotaReserved,
            event_id="submit-one-ann000001.0",
            seq=1,
            account_id=ANNS,
            reservation_id=submit_id("one"),
            task_id=task("one"),
            amount_micros=MAXIMUM,
            month=MARCH,
            day=SECOND_OF_MARCH,
            minute=THAT_MINUTE,
            limit_micros=300 * CREDIT,
            contract_micros=None,
            policy_version=1,
        )
    )
    outcome.orders(
        a(
            c.CreateTask,
            command_id="submit-one-ann000001.0create",
            task_id=task("one"),
            origin=told.origin,
            pool_id="A",
            lane=Lane.P2,
            price=PRICE,
            policy_version=1,
            reservation_id=submit_id("one"),
            reserved_micros=MAXIMUM,
            run_limit_seconds=600,
            created_wait_seconds=900,
        )
    )
    outcome.replied(
        Accepted,
        command_id=submit_id("one"),
        key=task("one"),
        seq=1,
        status="CREATED",
        reserved_micros=MAXIMUM,
        remaining=left(4, 19, 295 * CREDIT),
    )


def test_a_claim_below_the_maximum_reserves_less() -> None:
    world().when(submit(claimed=10.0)).then(a(e.QuotaReserved, amount_micros=2 * CREDIT))


def test_a_submission_told_twice_is_answered_twice_and_counted_once() -> None:
    story = world()
    first = story.when(submit(reply_to=3)).decision.reply
    again = story.when(submit(reply_to=3)).nothing().decision.reply
    assert again == first
    assert month(story).day_count == 1
    story.when(submit()).nothing()


def test_a_submission_told_again_later_hears_what_is_left_by_then() -> None:
    story = world().given(submit(), submit("two"))
    story.when(submit(reply_to=3)).nothing().replied(
        Accepted, reserved_micros=MAXIMUM, remaining=left(3, 18, 290 * CREDIT)
    )


@pytest.mark.parametrize("end", [commit(CREDIT), release(), release(ran=False)])
def test_a_submission_is_remembered_once_its_task_has_ended(
    end: c.CommitReservation | c.ReleaseReservation,
) -> None:
    story = world().given(submit(), end)
    story.when(submit(reply_to=3)).nothing().replied(Accepted, reserved_micros=MAXIMUM)


def test_a_submission_told_again_is_granted_still_when_its_tier_is_gone() -> None:
    story = world().given(submit(tier="pro"))
    after = policy(2)
    del after.tiers["pro"]
    story.given(publish(after))
    story.when(submit(tier="pro", reply_to=3)).nothing().replied(Accepted, remaining=None)


def test_the_same_key_with_another_body_is_a_conflict() -> None:
    story = world().given(submit())
    story.when(submit(body="other", reply_to=3)).refused(Refusal.IDEMPOTENCY_CONFLICT).replied(
        Refused, reason=Refusal.IDEMPOTENCY_CONFLICT, key=task("one")
    )
    assert month(story).day_count == 1


def test_a_key_that_was_refused_may_ask_again() -> None:
    story = world(per_minute=1).given(submit())
    story.when(submit("two")).refused(Refusal.RATE_EXCEEDED)
    story.after(MINUTE).when(submit("two")).then(a(e.QuotaReserved, seq=2))


def test_without_a_policy_nothing_is_granted() -> None:
    story = bare_world()
    story.when(submit(reply_to=3)).refused(Refusal.POLICY_MISSING).replied(Refused)
    story.when(retry(reply_to=3)).refused(Refusal.POLICY_MISSING).replied(Refused)
    story.when(top_up(CREDIT, reply_to=3)).refused(Refusal.POLICY_MISSING).replied(Refused)
    story.when(commit(CREDIT)).refused(Refusal.RESERVATION_UNKNOWN)
    story.when(release()).refused(Refusal.RESERVATION_UNKNOWN)
    story.when(refund(CREDIT)).refused(Refusal.CHARGE_UNKNOWN)
    assert not story.rows.rows


@pytest.mark.parametrize(
    ("command", "reason"),
    [
        (submit(tier="gold"), Refusal.TIER_UNKNOWN),
        (submit(scene=Scene.GENAI), Refusal.SCENE_NOT_OFFERED),
        (submit(scene=Scene.MATTING, tier="gold"), Refusal.SCENE_NOT_OFFERED),
        (submit(account=ACMES), Refusal.NOT_YOURS),
        (submit(tenant=ACME, account=ANNS), Refusal.NOT_YOURS),
        (submit(user=BEN, account=ANNS), Refusal.NOT_YOURS),
        (retry(tier="gold"), Refusal.TIER_UNKNOWN),
        (retry(scene=Scene.SMART), Refusal.SCENE_NOT_OFFERED),
    ],
)
def test_what_no_policy_offers_is_refused(
    command: c.SubmitTask | c.RetryTask, reason: Refusal
) -> None:
    story = world()
    rows = dict(story.rows.rows)
    story.when(command).refused(reason)
    assert story.rows.rows == rows


@pytest.mark.parametrize(
    ("tier", "scene", "lane", "pool"),
    [
        ("free", Scene.AUTOCUT, Lane.P2, "A"),
        ("free", Scene.REHEARSAL, Lane.P2, "R"),
        ("pro", Scene.AUTOCUT, Lane.P0, "A"),
        ("pro", Scene.GENAI, Lane.P1, "A"),
    ],
)
def test_lane_and_pool_are_what_the_policy_gives_this_tier_and_scene(
    tier: str, scene: Scene, lane: Lane, pool: str
) -> None:
    world().when(submit(tier=tier, scene=scene)).orders(a(c.CreateTask, lane=lane, pool_id=pool))


@pytest.mark.parametrize(("of_pool", "limit"), [(None, 600), (90, 90), (900, 600)])
def test_a_task_runs_no_longer_than_its_scene_and_its_pool_allow(
    of_pool: int | None, limit: int
) -> None:
    published = policy()
    pool = msgspec.structs.replace(published.pools[PoolId("A")], run_limit_seconds=of_pool)
    changed = msgspec.structs.replace(published, pools={**published.pools, PoolId("A"): pool})
    world(changed).when(submit()).orders(a(c.CreateTask, run_limit_seconds=limit))


@pytest.mark.parametrize("materials", [0, 1, 2, 500])
def test_a_batch_is_reserved_priced_and_timed_by_its_size(materials: int) -> None:
    more = max(0, materials - 1)
    each = EachMaterial(base_micros=1_000, card_seconds_max=2, run_limit_seconds=3)
    published = policy()
    scene = msgspec.structs.replace(published.scenes[Scene.AUTOCUT], each_material=each)
    changed = msgspec.structs.replace(published, scenes={**published.scenes, Scene.AUTOCUT: scene})
    price = msgspec.structs.replace(
        PRICE,
        base_micros=PRICE.base_micros + more * 1_000,
        card_seconds_max=PRICE.card_seconds_max + more * 2,
    )
    amount = price.base_micros + price.card_second_micros * price.card_seconds_max
    story = world(changed).when(submit(materials=materials))
    story.orders(
        a(
            c.CreateTask,
            price=price,
            reserved_micros=amount,
            run_limit_seconds=600 + more * 3,
        )
    )
    again = failed(world(changed)).when(retry(materials=materials))
    again.orders(a(c.RequeueTask, price=price, reserved_micros=amount))


def test_what_tier_scene_and_caller_say_goes_on_to_the_task() -> None:
    published = policy()
    tier = msgspec.structs.replace(published.tiers["free"], weight=4)
    scene = msgspec.structs.replace(published.scenes[Scene.AUTOCUT], lower_spec=True)
    changed = msgspec.structs.replace(
        published,
        tiers={**published.tiers, "free": tier},
        scenes={**published.scenes, Scene.AUTOCUT: scene},
    )
    asked = msgspec.structs.replace(submit(), deadline_seconds=90)
    world(changed).when(asked).orders(
        a(c.CreateTask, weight=4, lower_spec=True, deadline_seconds=90)
    )
    world().when(submit()).orders(
        a(c.CreateTask, weight=0, lower_spec=False, deadline_seconds=None)
    )


def test_what_the_tier_takes_of_a_material_goes_with_a_task_that_needs_one() -> None:
    published = policy()
    tier = msgspec.structs.replace(
        published.tiers["free"], input_seconds_max=90, input_bytes_max=8_000, input_pixels_max=700
    )
    changed = msgspec.structs.replace(published, tiers={**published.tiers, "free": tier})
    asked = submit()
    with_clip = msgspec.structs.replace(
        asked, origin=msgspec.structs.replace(asked.origin, material_ids=(MaterialId("m000001"),))
    )
    limits = c.InputLimits(seconds_max=90, bytes_max=8_000, pixels_max=700)
    world(changed).when(with_clip).orders(a(c.CreateTask, input_limits=limits))
    world(changed).when(asked).orders(a(c.CreateTask, input_limits=None))


# --- limits --------------------------------------------------------------------------------------


def test_the_sixth_of_a_minute_waits_for_the_next_minute() -> None:
    story = world().after(59).given(*(submit(f"task-{number}") for number in range(5)))
    resets_at = NOON + timedelta(minutes=1)
    story.when(submit("six", reply_to=3)).refused(Refusal.RATE_EXCEEDED).replied(
        Refused,
        reason=Refusal.RATE_EXCEEDED,
        remaining=left(0, 15, 275 * CREDIT),
        resets_at=resets_at,
    )
    assert story.refusals[-1].resets_at == resets_at
    assert story.refusals[-1].remaining == left(0, 15, 275 * CREDIT)
    story.after(1).when(submit("six")).then(e.QuotaReserved)


def test_the_last_of_a_day_is_the_last_until_midnight_of_the_zone() -> None:
    story = world(per_day=2, timezone="Asia/Shanghai").given(submit(), submit("two"))
    midnight = datetime(2026, 3, 2, 16, tzinfo=UTC)
    story.when(submit("three", reply_to=3)).refused(Refusal.DAY_EXHAUSTED).replied(
        Refused, resets_at=midnight
    )
    story.at = midnight - timedelta(milliseconds=1)
    story.when(submit("three")).refused(Refusal.DAY_EXHAUSTED)
    story.at = midnight
    story.when(submit("three")).then(e.QuotaReserved)


def test_credits_suffice_to_the_last_micro() -> None:
    story = world(credits=10).given(submit(), submit("two"))
    assert month(story).reserved_micros == 10 * CREDIT
    story.when(submit("three", claimed=0.0, reply_to=3)).refused(Refusal.QUOTA_EXHAUSTED).replied(
        Refused, resets_at=MARCH.end, remaining=left(3, 18, 0)
    )
    story.given(commit(4 * CREDIT))
    story.when(submit("three", claimed=0.0)).then(a(e.QuotaReserved, amount_micros=CREDIT))
    story.when(submit("four", claimed=0.0)).refused(Refusal.QUOTA_EXHAUSTED)


def test_a_new_month_has_its_credits_anew() -> None:
    story = world(credits=5).given(submit(), commit(MAXIMUM))
    story.at = MARCH.end - timedelta(milliseconds=1)
    story.when(submit("two")).refused(Refusal.QUOTA_EXHAUSTED)
    story.at = MARCH.end
    story.when(submit("two")).then(a(e.QuotaReserved, limit_micros=5 * CREDIT))


def test_scenes_and_users_have_limits_of_their_own() -> None:
    story = world(per_minute=1, per_day=1, credits=5)
    for user in (ANN, BEN):
        for scene in (Scene.AUTOCUT, Scene.REHEARSAL):
            command = submit(f"of-{scene}", user=user, tenant=ACME, scene=scene)
            story.when(command).then(e.QuotaReserved)
    story.when(submit()).then(a(e.QuotaReserved, account_id=ANNS, seq=1))


def test_all_users_of_a_tenant_share_its_contract() -> None:
    story = world(contract=12).given(submit(tenant=ACME))
    story.when(submit(user=BEN, tenant=ACME, reply_to=3)).then(
        a(e.QuotaReserved, seq=2, account_id=ACMES, contract_micros=12 * CREDIT)
    ).replied(Accepted, remaining=left(4, 19, 295 * CREDIT, 2 * CREDIT))
    story.when(submit("two", user=BEN, tenant=ACME, reply_to=3)).refused(
        Refusal.CONTRACT_EXHAUSTED
    ).replied(Refused, resets_at=MARCH.end, remaining=left(4, 19, 295 * CREDIT, 2 * CREDIT))
    story.when(submit("two", user=BEN)).then(a(e.QuotaReserved, contract_micros=None))


def test_what_a_contract_has_spent_counts_against_it() -> None:
    story = world(contract=7).given(submit(tenant=ACME), commit(3 * CREDIT, account=ACMES))
    story.when(submit(user=BEN, tenant=ACME, reply_to=3)).refused(
        Refusal.CONTRACT_EXHAUSTED
    ).replied(Refused, remaining=left(5, 20, 300 * CREDIT, 4 * CREDIT))


def test_a_tenant_without_a_contract_limit_is_counted_all_the_same() -> None:
    story = world().given(submit(tenant=ACME))
    assert contract(story).reserved_micros == MAXIMUM
    story.given(publish(policy(2, contract=9)))
    story.when(submit("two", user=BEN, tenant=ACME)).refused(Refusal.CONTRACT_EXHAUSTED)


def test_another_tenant_has_the_default_contract() -> None:
    other = TenantId("globex")
    story = world(contract=1)
    story.when(submit(tenant=ACME)).refused(Refusal.CONTRACT_EXHAUSTED)
    story.when(submit(tenant=other)).then(a(e.QuotaReserved, contract_micros=None))


@pytest.mark.parametrize(
    ("limits", "reason"),
    [
        ({"per_minute": 1, "per_day": 1, "credits": 5, "contract": 5}, Refusal.RATE_EXCEEDED),
        ({"per_minute": 9, "per_day": 1, "credits": 5, "contract": 5}, Refusal.DAY_EXHAUSTED),
        ({"per_minute": 9, "per_day": 9, "credits": 5, "contract": 5}, Refusal.QUOTA_EXHAUSTED),
        ({"per_minute": 9, "per_day": 9, "credits": 9, "contract": 5}, Refusal.QUOTA_EXHAUSTED),
        ({"per_minute": 9, "per_day": 9, "credits": 10, "contract": 9}, Refusal.CONTRACT_EXHAUSTED),
    ],
)
def test_the_first_refusal_by_precedence_is_told_and_no_layer_counts(
    limits: dict[str, int], reason: Refusal
) -> None:
    story = world(policy(1, **limits)).given(submit(tenant=ACME))  # type: ignore[arg-type]
    rows = dict(story.rows.rows)
    story.when(submit("two", tenant=ACME)).refused(reason)
    assert story.rows.rows == rows


def test_refusals_of_the_door_are_in_their_order() -> None:
    order = list(Refusal)
    door = [
        Refusal.POLICY_MISSING,
        Refusal.IDEMPOTENCY_CONFLICT,
        Refusal.NOT_YOURS,
        Refusal.SCENE_NOT_OFFERED,
        Refusal.TIER_UNKNOWN,
        Refusal.RATE_EXCEEDED,
        Refusal.DAY_EXHAUSTED,
        Refusal.QUOTA_EXHAUSTED,
        Refusal.CONTRACT_EXHAUSTED,
    ]
    assert sorted(door, key=order.index) == door


def test_a_limit_that_is_lowered_leaves_what_is_held() -> None:
    story = world(credits=10).given(submit(), submit("two"), publish(policy(2, credits=6)))
    assert month(story).reserved_micros == 10 * CREDIT
    story.when(submit("three")).refused(Refusal.QUOTA_EXHAUSTED)
    story.when(commit(5 * CREDIT)).then(a(e.QuotaCommitted, amount_micros=5 * CREDIT))
    story.when(submit("three")).refused(Refusal.QUOTA_EXHAUSTED)
    story.given(release(submit_id("two")))
    story.when(submit("three", claimed=0.0)).then(
        a(e.QuotaReserved, limit_micros=6 * CREDIT, policy_version=2)
    )


def test_a_task_for_nothing_is_refused_while_more_is_held_than_allowed() -> None:
    free = Price(base_micros=0, card_second_micros=0, card_seconds_max=1)
    story = world(credits=5).given(submit(), publish(policy(2, credits=4, price=free)))
    story.when(submit("two")).refused(Refusal.QUOTA_EXHAUSTED)
    story.given(release())
    story.when(submit("two")).then(a(e.QuotaReserved, amount_micros=0))
    story.when(commit(0, submit_id("two"))).then(a(e.QuotaCommitted, amount_micros=0))
    story.when(refund(0, submit_id("two"))).refused(Refusal.CHARGE_UNKNOWN)


def test_a_price_that_changes_leaves_what_was_reserved() -> None:
    dear = Price(base_micros=9 * CREDIT, card_second_micros=0, card_seconds_max=1)
    story = world().given(submit(), publish(policy(2, price=dear)))
    story.when(commit(9 * CREDIT)).then(
        a(e.QuotaCommitted, amount_micros=MAXIMUM, released_micros=0)
    )
    story.when(submit("two")).then(a(e.QuotaReserved, amount_micros=9 * CREDIT)).orders(
        a(c.CreateTask, price=dear, policy_version=2)
    )


# --- what is held is resolved once ---------------------------------------------------------------


def test_a_commit_spends_what_was_used_and_frees_the_rest() -> None:
    story = world().given(submit(tenant=ACME))
    story.when(commit(2 * CREDIT, account=ACMES)).then(
        a(
            e.QuotaCommitted,
            seq=2,
            charge_id=submit_id("one"),
            task_id=task("one"),
            user_id=ANN,
            amount_micros=2 * CREDIT,
            released_micros=3 * CREDIT,
            month_start=MARCH.start,
        )
    )
    for row in (month(story), contract(story)):
        assert (row.reserved_micros, row.spent_micros, row.open_count) == (0, 2 * CREDIT, 0)


def test_a_commit_never_spends_more_than_was_reserved() -> None:
    story = world().given(submit())
    story.when(commit(99 * CREDIT)).then(
        a(e.QuotaCommitted, amount_micros=MAXIMUM, released_micros=0)
    )


def test_a_commit_told_twice_spends_once() -> None:
    story = world().given(submit())
    story.when(commit(CREDIT)).then(e.QuotaCommitted)
    story.when(commit(CREDIT)).nothing()
    story.when(commit(2 * CREDIT)).nothing()
    assert month(story).spent_micros == CREDIT


def test_a_release_frees_everything_and_the_day_if_nothing_ran() -> None:
    story = world().given(submit(tenant=ACME))
    story.when(release(ran=False, account=ACMES)).then(
        a(e.QuotaReleased, seq=2, amount_micros=MAXIMUM, day_returned=True)
    )
    row = month(story)
    assert (row.reserved_micros, row.open_count, row.day_count) == (0, 0, 0)
    assert row.minute_count == 1, "a minute's count is never returned"
    assert contract(story).reserved_micros == 0


def test_a_release_of_what_ran_keeps_the_day_counted() -> None:
    story = world().given(submit())
    story.when(release(ran=True)).then(a(e.QuotaReleased, day_returned=False))
    assert month(story).day_count == 1


def test_a_release_on_another_day_returns_no_count_to_it() -> None:
    story = world(per_day=1).given(submit()).after(DAY).given(submit("two"))
    story.when(release(ran=False)).then(a(e.QuotaReleased, day_returned=False))
    assert month(story).day_count == 1
    story.after(MINUTE).when(submit("three")).refused(Refusal.DAY_EXHAUSTED)


def test_a_release_told_twice_frees_once() -> None:
    story = world().given(submit(), submit("two"))
    story.when(release(ran=False)).then(e.QuotaReleased)
    story.when(release(ran=False)).nothing()
    assert (month(story).reserved_micros, month(story).day_count) == (MAXIMUM, 1)


def test_what_is_resolved_stays_so() -> None:
    story = world().given(submit(), commit(CREDIT), submit("two"), release(submit_id("two")))
    story.when(release()).refused(Refusal.RESERVATION_RESOLVED, "committed")
    story.when(commit(CREDIT, submit_id("two"))).refused(Refusal.RESERVATION_RESOLVED, "released")
    assert month(story).spent_micros == CREDIT


def test_an_account_knows_its_own_reservations_only() -> None:
    story = world().given(submit(), submit(user=BEN))
    story.when(commit(CREDIT, submit_id("one", BEN))).refused(Refusal.RESERVATION_UNKNOWN)
    story.when(release("submit-never")).refused(Refusal.RESERVATION_UNKNOWN)


def test_credits_go_back_to_the_month_in_which_they_were_reserved() -> None:
    story = world(credits=10).given(submit(), submit("two"))
    story.at = datetime(2026, 4, 1, 0, 0, 1, tzinfo=UTC)
    story.given(submit("three"), submit("four"))
    story.when(commit(2 * CREDIT)).then(a(e.QuotaCommitted, month_start=MARCH.start))
    story.when(release(submit_id("two"), ran=False)).then(
        a(e.QuotaReleased, month_start=MARCH.start, day_returned=True)
    )
    march, april = sorted(
        (row for _, row in story.rows if isinstance(row, quotas.UserMonth)),
        key=lambda row: row.reserved_micros,
    )
    assert (march.reserved_micros, march.spent_micros, march.day_count) == (0, 2 * CREDIT, 1)
    assert (april.reserved_micros, april.spent_micros, april.day_count) == (10 * CREDIT, 0, 2)
    story.when(submit("five", claimed=0.0)).refused(Refusal.QUOTA_EXHAUSTED)


# --- a retry by hand -----------------------------------------------------------------------------


def failed(story: Story) -> Story:
    """The task of Ann has run and failed."""
    return story.given(submit(), release(ran=True))


def test_a_retry_reserves_anew_and_asks_the_task_which_answers() -> None:
    story = failed(world(price=PRICE))
    decision = story.handle(story.rows, retry(reply_to=3), story.now)
    assert decision.reply is None
    (reserved,) = decision.events
    a(
        e.QuotaReserved,
        seq=3,
        reservation_id=retry_id("one"),
        task_id=task("one"),
        amount_micros=MAXIMUM,
    ).check(reserved)
    (order,) = decision.orders
    a(
        c.RequeueTask,
        command_id=f"{retry_id('one')}.0requeue",
        task_id=task("one"),
        user_id=ANN,
        tenant_id="",
        account_id=ANNS,
        price=PRICE,
        policy_version=1,
        reservation_id=retry_id("one"),
        reserved_micros=MAXIMUM,
        reply_to=3,
    ).check(order)
    assert month(story).day_count == 2


def test_a_retry_told_twice_reserves_once_and_asks_once() -> None:
    story = failed(world())
    story.when(retry()).then(e.QuotaReserved)
    story.when(retry()).nothing()
    story.when(retry(reply_to=3)).nothing().replied(
        Accepted, key=task("one"), seq=0, status="QUEUED", reserved_micros=MAXIMUM
    )
    story.given(commit(CREDIT, retry_id("one")))
    story.when(retry(reply_to=3)).nothing().replied(Accepted, reserved_micros=MAXIMUM)


def test_a_retry_that_came_to_nothing_does_not_ask_again() -> None:
    story = failed(world()).given(retry(), release(retry_id("one"), ran=False))
    story.when(retry(reply_to=3)).refused(Refusal.RESERVATION_RESOLVED).replied(Refused)
    story.when(retry(attempt=2)).then(e.QuotaReserved).orders(c.RequeueTask)


def test_a_retry_is_limited_like_a_submission() -> None:
    story = failed(world(per_day=1))
    story.when(retry(reply_to=3)).refused(Refusal.DAY_EXHAUSTED).replied(Refused, key=task("one"))


def test_a_retry_under_the_id_of_a_submission_is_a_conflict() -> None:
    story = world().given(submit())
    command = c.RetryTask(
        command_id=submit_id("one"),
        task_id=task("one"),
        user_id=ANN,
        tenant_id=TenantId(""),
        account_id=ANNS,
        scene=Scene.AUTOCUT,
        tier="free",
    )
    story.when(command).refused(Refusal.IDEMPOTENCY_CONFLICT)


# --- refunds -------------------------------------------------------------------------------------


def test_a_refund_gives_back_at_most_the_charge_to_its_month() -> None:
    story = world().given(submit(tenant=ACME), commit(3 * CREDIT, account=ACMES)).after(35 * DAY)
    story.when(refund(99 * CREDIT, account=ACMES)).then(
        a(
            e.ChargeRefunded,
            seq=3,
            charge_id=submit_id("one"),
            user_id=ANN,
            scene=Scene.AUTOCUT,
            amount_micros=3 * CREDIT,
            month_start=MARCH.start,
            reason="object lost",
            who="olga",
        )
    )
    assert month(story).spent_micros == contract(story).spent_micros == 0


def test_a_refund_told_twice_gives_back_once() -> None:
    story = world().given(submit(), commit(3 * CREDIT))
    story.when(refund(CREDIT)).then(e.ChargeRefunded)
    story.when(refund(CREDIT)).nothing()
    assert month(story).spent_micros == 2 * CREDIT


def test_a_charge_is_refunded_by_one_command_only() -> None:
    story = world().given(submit(), commit(3 * CREDIT), refund(CREDIT))
    story.when(refund(CREDIT, number=2)).refused(Refusal.CHARGE_REFUNDED)
    assert month(story).spent_micros == 2 * CREDIT


def test_what_was_never_charged_is_not_refunded() -> None:
    story = world().given(submit())
    story.when(refund(CREDIT)).refused(Refusal.CHARGE_UNKNOWN)
    story.given(release())
    story.when(refund(CREDIT)).refused(Refusal.CHARGE_UNKNOWN)


def test_a_charge_can_be_refunded_for_forty_days() -> None:
    story = world().given(submit(), commit(CREDIT), submit("two"), commit(CREDIT, submit_id("two")))
    story.after(40 * DAY - 0.001).when(refund(CREDIT)).then(e.ChargeRefunded)
    story.after(0.001).when(refund(CREDIT, submit_id("two"))).refused(Refusal.CHARGE_UNKNOWN)
    story.when(refund(CREDIT)).refused(Refusal.CHARGE_UNKNOWN)


def test_the_month_of_a_late_charge_stays_as_long_as_the_charge() -> None:
    story = world().given(submit()).after(100 * DAY)
    assert not story.tick(), "an open reservation holds its month"
    story.given(commit(CREDIT)).after(40 * DAY - 0.001)
    story.tick()
    story.when(refund(CREDIT)).then(a(e.ChargeRefunded, month_start=MARCH.start))
    assert month(story).spent_micros == 0


# --- top-ups -------------------------------------------------------------------------------------


def test_a_top_up_raises_the_limit_of_this_month_and_scene() -> None:
    story = world(credits=5).given(submit())
    story.when(top_up(5 * CREDIT, reply_to=3)).then(
        a(e.QuotaToppedUp, seq=2, user_id=ANN, amount_micros=5 * CREDIT, month=MARCH, who="olga")
    ).replied(Accepted, key=ANNS, seq=2)
    story.when(submit("two")).then(a(e.QuotaReserved, limit_micros=10 * CREDIT))
    story.when(submit("three")).refused(Refusal.QUOTA_EXHAUSTED)
    story.at = MARCH.end
    story.when(submit("three")).then(a(e.QuotaReserved, limit_micros=5 * CREDIT))
    story.when(submit("one", scene=Scene.REHEARSAL, body="r")).refused(Refusal.IDEMPOTENCY_CONFLICT)


def test_a_top_up_told_twice_counts_once() -> None:
    story = world()
    story.when(top_up(CREDIT, reply_to=3)).then(e.QuotaToppedUp)
    story.when(top_up(CREDIT)).nothing()
    story.when(top_up(CREDIT, reply_to=3)).nothing().replied(Accepted, key=ANNS, seq=1)
    story.when(top_up(2 * CREDIT)).refused(Refusal.IDEMPOTENCY_CONFLICT)
    story.when(top_up(CREDIT, number=2)).then(a(e.QuotaToppedUp, seq=2))
    assert month(story).topped_up_micros == 2 * CREDIT


def test_a_contract_is_topped_up_for_all_its_users() -> None:
    story = world(contract=5).given(submit(tenant=ACME))
    story.when(top_up(5 * CREDIT, user=None, account=ACMES)).then(
        a(e.QuotaToppedUp, user_id=None, account_id=ACMES)
    )
    story.when(submit(user=BEN, tenant=ACME)).then(
        a(e.QuotaReserved, contract_micros=10 * CREDIT, limit_micros=300 * CREDIT)
    )


def test_a_user_of_a_tenant_is_topped_up_without_touching_the_contract() -> None:
    story = world(credits=5, contract=10).given(submit(tenant=ACME))
    story.given(top_up(9 * CREDIT, account=ACMES), submit("two", tenant=ACME))
    story.when(submit("three", tenant=ACME, claimed=0.0)).refused(Refusal.CONTRACT_EXHAUSTED)


def test_a_top_up_of_what_is_not_there_is_refused() -> None:
    story = world()
    story.when(top_up(CREDIT, user=None)).refused(Refusal.CONTRACT_UNKNOWN)
    story.when(top_up(CREDIT, user=BEN)).refused(Refusal.NOT_YOURS)


def test_no_top_up_makes_a_limit_that_the_wire_cannot_carry() -> None:
    story = world().given(top_up(10**15), top_up(10**15, number=2))
    story.when(submit(reply_to=3)).then(a(e.QuotaReserved, limit_micros=10**15))


# --- policies ------------------------------------------------------------------------------------


def test_a_policy_is_adopted_and_counts_its_own_events() -> None:
    story = bare_world()
    story.when(publish(policy(1), reply_to=3)).then(
        a(e.PolicyAdopted, seq=1, policy=policy(1), who="olga", why="spring")
    ).replied(Accepted, key="policy", seq=1)
    story.when(publish(policy(4))).then(a(e.PolicyAdopted, seq=2, policy=policy(4)))
    story.when(submit()).then(a(e.QuotaReserved, seq=1, policy_version=4))


def test_a_policy_told_twice_is_adopted_once() -> None:
    story = bare_world()
    story.when(publish(policy(1))).then(e.PolicyAdopted)
    story.when(publish(policy(1))).nothing()
    story.when(publish(policy(1), reply_to=3)).nothing().replied(Accepted, seq=1)


def test_versions_only_rise() -> None:
    story = world(policy(7))
    story.when(publish(policy(6), reply_to=3)).refused(
        Refusal.POLICY_OUTDATED, "version 7 is in force"
    ).replied(Refused, key="policy")
    story.when(publish(policy(7, credits=1))).refused(Refusal.IDEMPOTENCY_CONFLICT)


def test_a_policy_that_no_rule_could_apply_is_refused() -> None:
    story = world()
    story.when(publish(policy(2, timezone="Mars/Olympus"))).refused(Refusal.POLICY_INVALID)
    astray = policy(2)
    del astray.pools[PoolId("R")]
    story.when(publish(astray, reply_to=3)).refused(
        Refusal.POLICY_INVALID, "scenes.rehearsal.pool_id: 'R' is not in pools"
    ).replied(Refused, key="policy")
    story.when(submit()).then(a(e.QuotaReserved, policy_version=1))


def test_the_zone_of_the_first_policy_is_kept_as_another_would_begin_the_month_anew() -> None:
    story = world()
    story.when(publish(policy(2, timezone="Asia/Tokyo"))).refused(
        Refusal.POLICY_INVALID, "timezone: UTC is fixed"
    )


def test_a_day_is_that_of_the_zone_also_when_it_has_an_hour_less() -> None:
    story = world(per_day=1, timezone="Europe/Berlin")
    story.at = datetime(2026, 3, 29, 21, 59, tzinfo=UTC)
    start, end = datetime(2026, 3, 28, 23, tzinfo=UTC), datetime(2026, 3, 29, 22, tzinfo=UTC)
    story.when(submit()).then(a(e.QuotaReserved, day=e.Window(start=start, end=end)))
    story.when(submit("two")).refused(Refusal.DAY_EXHAUSTED)
    story.after(MINUTE).when(submit("two")).then(e.QuotaReserved)


def test_a_parked_key_is_the_business_of_the_shell() -> None:
    story = world()
    command = c.ReleaseKey(command_id=CommandId("free"), key="k", who="olga", why="fixed")
    story.when(command).nothing()


# --- forgetting ----------------------------------------------------------------------------------


@pytest.mark.parametrize(("end", "days"), [(commit(CREDIT), 1), (release(), 7)])
def test_a_resolved_reservation_counts_as_absent_as_long_after_as_its_task(
    end: c.CommitReservation | c.ReleaseReservation, days: int
) -> None:
    story = world().given(submit(), end).after(days * DAY - 0.001)
    story.when(end).nothing()
    story.after(0.001).when(end).refused(Refusal.RESERVATION_UNKNOWN)
    # The api asks the read model before it appends: no id is used twice in truth.
    (reserved,) = story.handle(story.rows, submit(), story.now).events
    a(e.QuotaReserved, seq=3, reservation_id=submit_id("one")).check(reserved)


def test_what_was_released_is_known_as_long_as_anything_that_has_ended() -> None:
    keep = KeepPolicy(ended_seconds=50, failed_seconds=20)
    story = world(keep=keep).given(submit(), release()).after(49)
    story.when(release()).nothing()
    story.after(1).when(release()).refused(Refusal.RESERVATION_UNKNOWN)


def test_an_outage_brings_no_forgetting_nearer() -> None:
    story = world().given(submit(), commit(CREDIT)).after_outage(3 * DAY)
    assert not story.tick()
    story.when(commit(CREDIT)).nothing()


def test_an_open_reservation_never_goes() -> None:
    story = world().given(submit(tenant=ACME)).after(400 * DAY)
    assert not story.tick()
    story.when(commit(CREDIT, account=ACMES)).then(e.QuotaCommitted)


def test_ticks_leave_nothing_but_the_account_and_the_policy() -> None:
    story = world().given(
        submit(tenant=ACME),
        commit(CREDIT, account=ACMES),
        refund(CREDIT, account=ACMES),
        submit("two", tenant=ACME),
        release(submit_id("two"), account=ACMES),
        submit("three", tenant=ACME),
        commit(CREDIT, submit_id("three"), account=ACMES),
        top_up(CREDIT, user=None, account=ACMES),
        top_up(CREDIT, account=ACMES, number=2),
    )
    seq = story.history[-1].seq
    for days in (2, 30, 40, 1):
        for outcome in story.after(days * DAY).tick():
            outcome.nothing()
    kinds = {type(row) for _, row in story.rows}
    assert kinds == {quotas.AccountRow, quotas.PolicyRow}
    story.when(submit("four", tenant=ACME)).then(a(e.QuotaReserved, seq=seq + 1))


def test_a_month_stays_until_it_is_over_however_short_charges_are_kept() -> None:
    story = world(keep=KeepPolicy(charge_seconds=1, ended_seconds=1))
    story.given(submit(), commit(CREDIT))
    story.at = MARCH.end
    story.tick()
    assert month(story).spent_micros == CREDIT
    story.after(1).tick()
    assert not [row for _, row in story.rows if isinstance(row, quotas.UserMonth)]


def test_a_tick_that_comes_early_forgets_nothing() -> None:
    story = world().given(submit(), release())
    rows = dict(story.rows.rows)
    for key in rows:
        quotas.on_due(story.rows, _timer(key), story.now)
    assert story.rows.rows == rows


def test_a_tick_for_a_row_that_has_a_new_life_does_nothing() -> None:
    story = world().given(submit(), release()).after(7 * DAY)
    keys = [key for key, row in story.rows if isinstance(row, quotas.Released)]
    story.handle(story.rows, submit(), story.now)
    (key,) = keys
    quotas.on_due(story.rows, _timer(key), story.now)
    assert isinstance(story.rows.get(key), quotas.Open)
    quotas.on_due(story.rows, _timer("nowhere"), Now(story.at, 0))


def test_event_ids_are_of_the_command() -> None:
    story = world().given(submit(), commit(CREDIT), refund(CREDIT), top_up(CREDIT))
    ids = [event.event_id for event in story.history[1:]]
    assert ids == [
        EventId(f"{submit_id('one')}.0"),
        EventId(f"{submit_id('one')}.commit.0"),
        EventId(f"refund-{submit_id('one')}-1.0"),
        EventId("top-up-1.0"),
    ]
