"""What a test says to a material: every command with sensible fields, and a world."""

from commands import materials
from schema import commands as c
from schema.ids import CommandId, TaskId, TenantId, UserId, material_id_of
from schema.objects import content_key
from schema.refusals import MaterialRefusal
from schema.words import MediaKind
from tests.support.spec import Story

USER = UserId("alicealicealicealice000007")
OTHER = UserId("mallorymallorymallor000007")
TENANT = TenantId("acme")
CLIP = material_id_of(USER, "d1", "clip.mp4")
SIZE = 100
SHA256 = "d1"
KEY = content_key(TENANT, USER, SHA256)
DAY_SECONDS = 24 * 3600


def world() -> Story:
    return Story(
        handle=materials.handle,
        row=materials.ROW,
        on_due=materials.on_due,
        due_ms=materials.due_ms,
        key_of=lambda event: event.material_id,
    )


def facts(*, seconds: float = 12.0, pixels: int = 640 * 360) -> c.MediaFacts:
    return c.MediaFacts(
        kind=MediaKind.VIDEO,
        container="mov,mp4",
        video_codec="h264",
        width=640,
        height=360,
        frames=round(seconds * 25),
        duration_ms=round(seconds * 1000),
        frame_rate="25/1",
        pixels=pixels,
        bit_rate=900_000,
    )


def register(  # noqa: PLR0913 - what a story changes
    *,
    user: UserId = USER,
    size: int = SIZE,
    sha256: str = SHA256,
    seconds_max: int = 0,
    upload: str = "u1",
    instead_of: str = "",
    after: int = 0,
    reply_to: int | None = 0,
) -> c.RegisterMaterial:
    return c.RegisterMaterial(
        command_id=CommandId(f"register-{user}-{size}-{sha256}-{upload}"),
        material_id=CLIP,
        user_id=user,
        tenant_id=TENANT,
        content_type="video/mp4",
        size=size,
        sha256=sha256,
        private=b"sealed",
        part_bytes=5,
        seconds_max=seconds_max,
        upload_id=upload,
        instead_of=instead_of,
        after=after,
        reply_to=reply_to,
    )


def touch(number: int = 1, *, user: UserId = USER) -> c.TouchUpload:
    return c.TouchUpload(
        command_id=CommandId(f"touch-{number}-{user}"),
        material_id=CLIP,
        user_id=user,
        tenant_id=TENANT,
    )


def complete(*, user: UserId = USER, reply_to: int | None = 0) -> c.CompleteMaterial:
    return c.CompleteMaterial(
        command_id=CommandId(f"complete-{user}"),
        material_id=CLIP,
        user_id=user,
        tenant_id=TENANT,
        reply_to=reply_to,
    )


def sweep(number: int = 1, *, user: UserId = USER) -> c.CompleteMaterial:
    """The sweep has heard nothing of this try."""
    return c.CompleteMaterial(
        command_id=CommandId(f"sweep-{number}-{user}"),
        material_id=CLIP,
        user_id=user,
        tenant_id=TENANT,
        again_after=number,
    )


def conclude(
    number: int = 1,
    *,
    user: UserId = USER,
    size: int = SIZE,
    sha256: str = SHA256,
    seconds: float = 12.0,
) -> c.ConcludeMaterial:
    """It was read to its end, and is this."""
    return c.ConcludeMaterial(
        command_id=CommandId(f"conclude-{number}-{user}-{size}-{sha256}-{seconds}"),
        material_id=CLIP,
        user_id=user,
        tenant_id=TENANT,
        number=number,
        size=size,
        sha256=sha256,
        content_key=content_key(TENANT, user, sha256),
        facts=facts(seconds=seconds),
    )


def turn_down(
    number: int = 1, reason: MaterialRefusal = MaterialRefusal.TRUNCATED, *, user: UserId = USER
) -> c.ConcludeMaterial:
    """It cannot be used."""
    return c.ConcludeMaterial(
        command_id=CommandId(f"turn-down-{number}-{user}"),
        material_id=CLIP,
        user_id=user,
        tenant_id=TENANT,
        number=number,
        reason=reason,
        detail="42 of 75 pictures",
    )


def miss(number: int = 1, *, user: UserId = USER) -> c.ConcludeMaterial:
    """Not all parts are there."""
    return c.ConcludeMaterial(
        command_id=CommandId(f"miss-{number}-{user}"),
        material_id=CLIP,
        user_id=user,
        tenant_id=TENANT,
        number=number,
        part_missing=True,
        detail="part 3",
    )


def adopt(
    *,
    user: UserId = USER,
    size: int = SIZE,
    sha256: str = SHA256,
    seconds: float = 12.0,
    reply_to: int | None = 0,
) -> c.AdoptMaterial:
    return c.AdoptMaterial(
        command_id=CommandId(f"adopt-{user}-{size}-{sha256}"),
        material_id=CLIP,
        user_id=user,
        tenant_id=TENANT,
        size=size,
        sha256=sha256,
        content_key=content_key(TENANT, user, sha256),
        facts=facts(seconds=seconds),
        reply_to=reply_to,
    )


def abandon(*, user: UserId = USER) -> c.AbandonMaterial:
    return c.AbandonMaterial(
        command_id=CommandId(f"abandon-{user}"),
        material_id=CLIP,
        user_id=user,
        tenant_id=TENANT,
    )


def chill(*, user: UserId = USER) -> c.ChillMaterial:
    return c.ChillMaterial(
        command_id=CommandId(f"chill-{user}"),
        material_id=CLIP,
        user_id=user,
        tenant_id=TENANT,
    )


def task_id(name: str) -> TaskId:
    return TaskId(f"{name}000007")


def attach(task: str = "t1", *, user: UserId = USER) -> c.AttachMaterial:
    return attach_of(task_id(task), user=user)


def attach_of(task: TaskId, *, user: UserId = USER) -> c.AttachMaterial:
    return c.AttachMaterial(
        command_id=CommandId(f"attach-{task}-{user}"),
        material_id=CLIP,
        task_id=task,
        user_id=user,
        tenant_id=TENANT,
    )


# --- how far it came ------------------------------------------------------------------------------


def registered() -> Story:
    return world().given(register())


def assembling() -> Story:
    return registered().given(complete())


def ready() -> Story:
    return assembling().given(conclude())


def cold() -> Story:
    return ready().after(30 * DAY_SECONDS).given(chill())


def refused() -> Story:
    return assembling().given(turn_down())


def aborted() -> Story:
    return registered().after(DAY_SECONDS).given(abandon())
