"""Materials: declared, sent in parts, assembled and probed, and every task that waits is told."""

from collections.abc import Callable
from importlib import resources

import msgspec
import pytest

from commands.materials.states import ATTACHED_MAX
from commands.materials.uploading import AGAIN_MAX_MS
from commands.tasks.states import Created, Queued
from schema import commands as c
from schema import events as e
from schema.ids import CommandId, MaterialId, material_id_of
from schema.policy import CREATED_WAIT_SECONDS_MIN, PolicyError, read_policy
from schema.refusals import MaterialRefusal, Refusal
from schema.replies import Accepted, Refused
from tests.support import material_words as w
from tests.support import task_words as t
from tests.support.spec import Story, a

DAY = w.DAY_SECONDS
T1, T2 = w.task_id("t1"), w.task_id("t2")
KNOWN: list[Callable[[], Story]] = [
    w.registered,
    w.assembling,
    w.ready,
    w.cold,
    w.refused,
    w.aborted,
]


# --- declared, sent, probed -----------------------------------------------------------------------


def test_what_is_sent_as_declared_is_ready() -> None:
    story = w.world()
    story.when(w.register(seconds_max=60)).then(
        a(e.MaterialRegistered, seq=1, size=100, sha256="d1", private=b"sealed", upload_id="u1")
    ).replied(Accepted, seq=1, status="REGISTERED", key=w.CLIP, upload_id="u1")
    story.when(w.complete()).then(
        a(
            e.MaterialAssembling,
            seq=2,
            number=1,
            again=False,
            tenant_id=w.TENANT,
            content_type="video/mp4",
            size=100,
            sha256="d1",
            part_bytes=5,
            seconds_max=60,
            upload_id="u1",
        )
    ).replied(Accepted, seq=2, status="ASSEMBLING")
    story.when(w.conclude()).then(
        a(e.MaterialReady, seq=3, size=100, sha256="d1", content_key=w.KEY, facts=w.facts())
    )
    story.when(w.complete()).nothing().replied(Accepted, seq=3, status="READY")


@pytest.mark.parametrize(
    ("found", "reason"),
    [
        (w.conclude(size=99), "size_mismatch"),
        (w.conclude(size=101), "size_mismatch"),
        (w.conclude(sha256="d2"), "digest_mismatch"),
        (w.conclude(size=0, sha256=""), "size_mismatch"),
        (w.turn_down(reason=MaterialRefusal.NOT_MEDIA), "not_media"),
    ],
)
def test_what_is_found_to_be_something_else_is_refused(
    found: c.ConcludeMaterial, reason: str
) -> None:
    story = w.assembling().given(w.attach())
    story.when(found).then(a(e.MaterialRefused, reason=reason, upload_id="u1")).orders(
        a(c.RejectMaterial, task_id=T1, reason=reason)
    )


def test_parts_that_are_missing_may_still_be_sent() -> None:
    story = w.assembling().given(w.attach())
    story.when(w.miss()).then(a(e.MaterialReopened, number=1, detail="part 3")).orders(
        a(c.ExtendWait, task_id=T1)
    )
    story.when(w.miss()).nothing()
    story.when(w.complete()).then(a(e.MaterialAssembling, number=2, again=False))
    story.when(w.conclude(2)).then(e.MaterialReady).orders(a(c.ConfirmMaterial, task_id=T1))


def test_a_clip_that_is_longer_than_its_caller_said_is_refused() -> None:
    story = w.world().given(w.register(seconds_max=12), w.attach(), w.complete())
    story.when(w.conclude(seconds=13.0)).then(
        a(e.MaterialRefused, reason="material_too_long", detail="13.0 s instead of 12 s at most")
    ).orders(a(c.RejectMaterial, task_id=T1, reason="material_too_long"))
    other = w.world().given(w.register(seconds_max=12), w.complete())
    other.when(w.conclude(seconds=12.99)).then(e.MaterialReady)


def test_completing_what_nobody_declared_is_refused() -> None:
    w.world().when(w.complete()).refused(Refusal.MATERIAL_UNKNOWN).replied(Refused)
    w.world().when(w.conclude()).refused(Refusal.MATERIAL_UNKNOWN)


def test_a_verdict_without_words_is_none() -> None:
    silent = c.ConcludeMaterial(
        command_id=CommandId("silent"),
        material_id=w.CLIP,
        user_id=w.USER,
        tenant_id=w.TENANT,
        number=1,
        size=w.SIZE,
        sha256=w.SHA256,
    )
    w.assembling().when(silent).refused(Refusal.MATERIAL_NOT_ASSEMBLING)
    both = msgspec.structs.replace(w.conclude(), part_missing=True)
    w.assembling().when(both).then(e.MaterialReopened)  # what is missing is not looked at


# --- several tries --------------------------------------------------------------------------------


def test_a_try_that_nothing_is_heard_of_is_followed_by_another_by_itself() -> None:
    story = w.assembling().given(w.attach())
    minutes: list[int] = []
    for minute in range(60):
        for outcome in story.tick():
            outcome.then(a(e.MaterialAssembling, again=True, number=len(minutes) + 2))
            outcome.orders(a(c.ExtendWait, task_id=T1))
            minutes.append(minute)
        story.after(60)
    assert minutes == [2, 6, 14, 24, 34, 44, 54]
    story.when(w.conclude(1)).then(e.MaterialReady)
    assert story.after(DAY).tick() == []


def test_an_upload_that_is_sent_anew_is_looked_at_as_soon_as_the_first() -> None:
    story = w.assembling().after(120)
    story.due().then(a(e.MaterialAssembling, number=2))
    story.given(w.turn_down(2), w.register(upload="u2"), w.complete())
    assert story.after(119).tick() == []
    story.after(1).due().then(a(e.MaterialAssembling, number=4, again=True))


def test_an_outage_asks_no_prober_again() -> None:
    assert w.assembling().after_outage(3 * DAY).tick() == []


def test_no_policy_lets_a_task_expire_between_two_signs() -> None:
    assert CREATED_WAIT_SECONDS_MIN * 1000 >= AGAIN_MAX_MS + 60_000  # a tick may be late
    document = (resources.files("cutlog") / "policies" / "local.json").read_bytes()
    short = document.replace(b'"created_wait_seconds": 900', b'"created_wait_seconds": 719', 1)
    with pytest.raises(PolicyError, match="created_wait_seconds: at least 720"):
        read_policy(short)


@pytest.mark.parametrize("policy", ["local", "production"])
@pytest.mark.parametrize("completed_hours", [0, 0.2, 20])
def test_a_task_whose_upload_is_complete_waits_for_the_verdict_as_long_as_it_takes(
    policy: str, completed_hours: float
) -> None:
    """Nobody looks at it, for the whole day that is the most that a task waits."""
    folder = resources.files("cutlog") / "policies"
    rules = read_policy((folder / f"{policy}.json").read_bytes())
    wait = min(scene.created_wait_seconds for scene in rules.scenes.values())
    upload = w.registered().given(w.attach_of(t.TASK))
    task = t.world().given(t.create(w.CLIP, wait=wait))

    def minute() -> None:
        for order in (order for outcome in upload.tick() for order in outcome.decision.orders):
            task.when(order)
        task.tick()
        for story in (upload, task):
            story.after(60)

    for number in range(round(completed_hours * 60)):
        minute()
        for order in upload.when(w.touch(number)).decision.orders:
            task.when(order)
    for order in upload.when(w.complete()).decision.orders:
        task.when(order)
    for _ in range(24 * 60 - round(completed_hours * 60) - 1):
        minute()
        assert isinstance(task.row_of(t.TASK), Created)
    for order in upload.when(w.conclude()).decision.orders:
        task.when(order)
    assert isinstance(task.row_of(t.TASK), Queued)


def test_what_nobody_could_look_at_for_a_day_is_refused_by_itself() -> None:
    story = w.registered().given(w.attach()).after(DAY - 60).given(w.complete())
    for _ in range(24 * 60 - 1):
        assert all(isinstance(o.events[0], e.MaterialAssembling) for o in story.after(60).tick())
    assert story.after(59).tick() == []
    story.after(1).due().then(a(e.MaterialRefused, reason="not_checked")).orders(
        a(c.RejectMaterial, task_id=T1, reason="not_checked")
    )


def test_only_a_try_that_nothing_was_heard_of_is_followed_by_another() -> None:
    story = w.assembling().given(w.attach())
    story.when(w.sweep(1)).then(a(e.MaterialAssembling, number=2, again=True)).orders(
        a(c.ExtendWait, task_id=T1)
    )
    story.when(w.sweep(1)).nothing()
    story.when(w.complete()).nothing().replied(Accepted, status="ASSEMBLING")
    story.when(w.sweep(2)).then(a(e.MaterialAssembling, number=3, again=True))


@pytest.mark.parametrize("story", [w.registered, w.ready, w.cold, w.refused, w.aborted])
def test_the_sweep_begins_nothing_by_itself(story: Callable[[], Story]) -> None:
    story().when(w.sweep(1)).nothing()


def test_the_first_verdict_counts_of_whichever_try() -> None:
    story = w.assembling().given(w.sweep(1))
    story.when(w.turn_down(1)).then(a(e.MaterialRefused, reason="truncated"))
    story.when(w.conclude(2)).nothing()
    other = w.assembling().given(w.sweep(1), w.sweep(2))
    other.when(w.conclude(1)).then(e.MaterialReady)
    other.when(w.turn_down(3)).nothing()


def test_an_older_try_that_missed_a_part_opens_nothing() -> None:
    """It looked before the rest came in; the newest one tells."""
    story = w.assembling().given(w.sweep(1))
    story.when(w.miss(1)).nothing()
    story.when(w.miss(2)).then(e.MaterialReopened)


def test_a_verdict_on_what_was_uploaded_before_does_not_count() -> None:
    story = w.refused().given(w.register(upload="u2"), w.complete())
    story.when(w.turn_down(1)).refused(Refusal.MATERIAL_NOT_ASSEMBLING)
    story.when(w.miss(1)).refused(Refusal.MATERIAL_NOT_ASSEMBLING)
    story.when(w.conclude(1)).then(e.MaterialReady)  # the digest says it: it is the same content


def test_a_verdict_on_a_try_that_never_was_is_refused() -> None:
    for story in (w.registered(), w.assembling(), w.ready(), w.refused()):
        story.when(w.conclude(9)).refused(Refusal.MATERIAL_NOT_ASSEMBLING)


# --- tasks that wait ------------------------------------------------------------------------------


def test_every_task_that_waits_is_told_once_when_it_is_ready() -> None:
    story = w.registered()
    story.when(w.attach("t1")).then(a(e.MaterialAttached, task_id=T1)).orders()
    story.given(w.complete())
    story.when(w.attach("t2")).then(a(e.MaterialAttached, task_id=T2)).orders()
    story.when(w.attach("t1")).nothing()
    told = {"content_key": w.KEY, "seconds_ms": 12_000, "pixels": 640 * 360, "size": 100}
    story.when(w.conclude()).then(e.MaterialReady).orders(
        a(c.ConfirmMaterial, task_id=T1, material_id=w.CLIP, **told),
        a(c.ConfirmMaterial, task_id=T2, material_id=w.CLIP, **told),
    )


def test_a_task_that_comes_later_is_told_at_once() -> None:
    w.ready().when(w.attach()).then(e.MaterialAttached).orders(
        a(c.ConfirmMaterial, task_id=T1, content_key=w.KEY, seconds_ms=12_000)
    )
    w.refused().when(w.attach()).refused(Refusal.MATERIAL_REFUSED).orders(
        a(c.RejectMaterial, task_id=T1, reason="truncated")
    )
    w.aborted().when(w.attach()).refused(Refusal.MATERIAL_ABORTED).orders(
        a(c.RejectMaterial, task_id=T1, reason="material_aborted")
    )


def test_a_material_that_nobody_declared_is_rejected() -> None:
    w.world().when(w.attach()).refused(Refusal.MATERIAL_UNKNOWN).orders(
        a(c.RejectMaterial, task_id=T1, reason="material_unknown")
    )


def test_an_upload_that_goes_on_is_told_about_once_a_minute() -> None:
    story = w.registered().given(w.attach("t1"), w.attach("t2"))
    story.after(49).when(w.touch(1)).nothing()
    story.after(1).when(w.touch(2)).then(e.UploadTouched).orders(
        a(c.ExtendWait, task_id=T1, material_id=w.CLIP), a(c.ExtendWait, task_id=T2)
    )
    story.when(w.touch(2)).nothing()
    story.after(50).when(w.touch(3)).then(e.UploadTouched)


@pytest.mark.parametrize("story", [w.assembling, w.ready, w.cold, w.refused, w.aborted])
def test_only_an_upload_that_is_open_goes_on(story: Callable[[], Story]) -> None:
    story().after(3600).when(w.touch()).nothing()


def test_the_row_of_a_material_that_many_tasks_use_stays_small() -> None:
    story = w.ready().given(*(w.attach(f"t{number}") for number in range(3 * ATTACHED_MAX)))
    assert len(story.row_of(w.CLIP).task_ids) == ATTACHED_MAX
    story.when(w.attach(f"t{3 * ATTACHED_MAX - 1}")).nothing()


# --- declared again -------------------------------------------------------------------------------


@pytest.mark.parametrize("story", KNOWN)
def test_other_content_under_the_same_id_is_refused(story: Callable[[], Story]) -> None:
    for asked in (w.register(size=99), w.register(sha256="d2")):
        story().when(asked).refused(Refusal.IDEMPOTENCY_CONFLICT).replied(Refused)


@pytest.mark.parametrize("story", KNOWN)
def test_nobody_uses_what_is_not_his(story: Callable[[], Story]) -> None:
    story().when(w.attach(user=w.OTHER)).refused(Refusal.NOT_YOURS).orders(
        a(c.RejectMaterial, reason="not_yours")
    )
    for asked in (w.register(user=w.OTHER), w.complete(user=w.OTHER), w.adopt(user=w.OTHER)):
        outcome = story().when(asked).refused(Refusal.NOT_YOURS).orders()
        outcome.replied(Refused, reason=Refusal.NOT_YOURS)
        assert outcome.decision.refusal is not None
        assert outcome.decision.refusal.user_id == w.OTHER
    for silent in (w.touch(user=w.OTHER), w.abandon(user=w.OTHER), w.chill(user=w.OTHER)):
        story().after(31 * DAY).when(silent).refused(Refusal.NOT_YOURS).orders()
    for verdict in (w.conclude(user=w.OTHER), w.turn_down(user=w.OTHER), w.miss(user=w.OTHER)):
        story().when(verdict).refused(Refusal.NOT_YOURS).orders()


def test_of_two_that_declare_it_at_once_the_first_one_is_sent_to() -> None:
    story = w.registered()
    story.when(w.register(upload="u2")).nothing().replied(
        Accepted, status="REGISTERED", seq=1, upload_id="u1"
    )


def test_an_upload_that_the_store_lost_is_replaced_once() -> None:
    story = w.registered().given(w.attach())
    again = w.register(upload="u2", instead_of="u1")
    story.when(again).then(a(e.MaterialRegistered, seq=3, upload_id="u2")).replied(
        Accepted, upload_id="u2"
    ).orders(a(c.ExtendWait, task_id=T1))
    story.when(again).nothing().replied(Accepted, upload_id="u2")
    story.when(w.register(upload="u3", instead_of="u1")).nothing().replied(Accepted, upload_id="u2")
    story.when(w.register(upload="", instead_of="u2")).nothing().replied(Accepted, upload_id="u2")
    story.given(w.complete())
    story.when(w.conclude()).orders(a(c.ConfirmMaterial, task_id=T1))


def test_what_was_refused_or_aborted_can_be_declared_and_sent_anew() -> None:
    for story, reason in (
        (w.refused(), Refusal.MATERIAL_REFUSED),
        (w.aborted(), Refusal.MATERIAL_ABORTED),
    ):
        story.when(w.complete()).refused(reason).replied(Refused)
        story.when(w.register(upload="u2")).then(a(e.MaterialRegistered, upload_id="u2"))
        outcome = story.when(w.complete())
        (again,) = outcome.events
        story.when(w.conclude(again.number)).then(e.MaterialReady).orders()


def test_tries_are_counted_over_the_whole_life_of_a_material() -> None:
    story = w.refused().given(w.register(upload="u2"))
    story.when(w.complete()).then(a(e.MaterialAssembling, number=2, again=False))


# --- known already --------------------------------------------------------------------------------


def test_what_is_known_is_ready_at_once_and_its_upload_is_not_needed() -> None:
    story = w.registered().given(w.attach())
    story.when(w.adopt()).then(
        a(e.MaterialReady, content_key=w.KEY, facts=w.facts(), upload_id="u1")
    ).orders(a(c.ConfirmMaterial, task_id=T1, content_key=w.KEY)).replied(Accepted, status="READY")
    story.when(w.adopt()).nothing().replied(Accepted, status="READY")
    w.assembling().when(w.adopt()).then(e.MaterialReady)


def test_other_content_is_not_adopted() -> None:
    for story in (w.registered(), w.assembling(), w.ready()):
        story.when(w.adopt(size=99)).refused(Refusal.MATERIAL_MISMATCH).replied(Refused)
        story.when(w.adopt(sha256="d2")).refused(Refusal.MATERIAL_MISMATCH).replied(Refused)


def test_what_is_known_to_be_longer_than_was_said_is_refused() -> None:
    story = w.world().given(w.register(seconds_max=5))
    story.when(w.adopt()).then(a(e.MaterialRefused, reason="material_too_long")).replied(
        Refused, reason=Refusal.MATERIAL_REFUSED, detail="12.0 s instead of 5 s at most"
    )


# --- left lying -----------------------------------------------------------------------------------


def test_an_upload_that_is_left_lying_for_a_day_is_aborted() -> None:
    story = w.registered().given(w.attach()).after(DAY - 0.001)
    story.when(w.abandon()).nothing()
    story.after(0.001).when(w.abandon()).then(a(e.MaterialAborted, upload_id="u1")).orders(
        a(c.RejectMaterial, task_id=T1, reason="material_aborted")
    )
    story.when(w.abandon()).nothing()


def test_an_upload_that_goes_on_is_not_left_lying() -> None:
    story = w.registered().after(DAY - 60).given(w.touch()).after(DAY - 1)
    story.when(w.abandon()).nothing()
    reopened = w.assembling().after(DAY - 60).given(w.miss()).after(DAY - 1)
    reopened.when(w.abandon()).nothing()


def test_an_outage_abandons_no_upload() -> None:
    w.registered().after_outage(3 * DAY).when(w.abandon()).nothing()


def test_what_nobody_could_look_at_for_a_day_is_refused_with_that_reason() -> None:
    story = w.registered().given(w.attach()).after(DAY - 60).given(w.complete())
    story.after(DAY - 1).given(w.sweep(1)).when(w.abandon()).nothing()
    story.after(1).when(w.abandon()).then(a(e.MaterialRefused, reason="not_checked")).orders(
        a(c.RejectMaterial, task_id=T1, reason="not_checked")
    )


@pytest.mark.parametrize("story", [w.world, w.ready, w.cold, w.refused, w.aborted])
def test_what_is_no_upload_is_not_abandoned(story: Callable[[], Story]) -> None:
    story().after(2 * DAY).when(w.abandon()).nothing()


# --- forgotten ------------------------------------------------------------------------------------


@pytest.mark.parametrize("story", [w.refused, w.aborted])
def test_what_came_to_nothing_is_forgotten_after_a_week(story: Callable[[], Story]) -> None:
    told = story().after(7 * DAY - 1)
    assert told.tick() == []
    told.after(1).due().nothing()
    assert told.rows.get(w.CLIP) is None
    assert told.tick() == []
    told.when(w.attach()).refused(Refusal.MATERIAL_UNKNOWN).orders(
        a(c.RejectMaterial, task_id=T1, reason="material_unknown")
    )
    told.when(w.complete()).refused(Refusal.MATERIAL_UNKNOWN).replied(Refused)
    for late in (w.touch(), w.conclude()):
        told.when(late).refused(Refusal.MATERIAL_UNKNOWN)
    for sweep in (w.abandon(), w.chill()):
        told.when(sweep).nothing()


@pytest.mark.parametrize("story", [w.refused, w.aborted])
def test_declared_again_what_is_forgotten_is_numbered_on(story: Callable[[], Story]) -> None:
    told = story()
    last = told.row_of(w.CLIP).seq
    told.after(7 * DAY).due()
    again = w.register(upload="u2", after=last)
    told.when(again).then(a(e.MaterialRegistered, seq=last + 1, upload_id="u2")).replied(
        Accepted, seq=last + 1, status="REGISTERED"
    )
    told.when(again).nothing().replied(Accepted, seq=last + 1)
    told.given(w.complete()).when(w.conclude()).then(a(e.MaterialReady, seq=last + 3))


def test_what_is_remembered_knows_its_number_better_than_who_asks() -> None:
    story = w.refused()
    last = story.row_of(w.CLIP).seq
    story.when(w.register(upload="u2", after=1)).then(a(e.MaterialRegistered, seq=last + 1))


def test_what_is_declared_again_is_not_forgotten() -> None:
    story = w.refused().after(6 * DAY).given(w.register(upload="u2")).after(DAY)
    assert story.tick() == []
    assert story.row_of(w.CLIP).upload.upload_id == "u2"


def test_an_outage_makes_nobody_forget() -> None:
    assert w.refused().after_outage(30 * DAY).tick() == []


# --- cold -----------------------------------------------------------------------------------------


def test_what_no_task_has_used_for_thirty_days_goes_cold_and_is_ready_when_one_does() -> None:
    story = w.ready().after(29 * DAY).given(w.attach()).after(30 * DAY - 1)
    story.when(w.chill()).nothing()
    story.after(1).when(w.chill()).then(e.MaterialChilled)
    story.when(w.chill()).nothing()
    story.when(w.register()).nothing().replied(Accepted, status="COLD")
    story.when(w.attach("t2")).then(a(e.MaterialAttached, task_id=T2)).orders(
        a(c.ConfirmMaterial, task_id=T2, content_key=w.KEY, seconds_ms=12_000)
    )
    story.when(w.complete()).nothing().replied(Accepted, status="READY")
    story.after(29 * DAY).when(w.chill()).nothing()


def test_a_task_that_used_it_before_it_went_cold_is_answered_again() -> None:
    story = w.ready().given(w.attach()).after(30 * DAY).given(w.chill())
    story.when(w.attach()).then(e.MaterialAttached).orders(a(c.ConfirmMaterial, task_id=T1))


@pytest.mark.parametrize(
    "story", [w.world, w.registered, w.assembling, w.cold, w.refused, w.aborted]
)
def test_only_what_is_ready_goes_cold(story: Callable[[], Story]) -> None:
    story().after(31 * DAY).when(w.chill()).nothing()


@pytest.mark.parametrize("story", [w.registered, w.ready, w.cold])
def test_nothing_else_happens_to_a_material_by_itself(story: Callable[[], Story]) -> None:
    assert story().after(10**7).tick() == []


def test_a_material_id_is_the_content_and_the_name_of_a_user() -> None:
    ids: set[MaterialId] = {
        material_id_of(user, sha256, name)
        for user in (w.USER, w.OTHER)
        for sha256 in ("d1", "d2")
        for name in ("a", "b")
    }
    assert len(ids) == 8
