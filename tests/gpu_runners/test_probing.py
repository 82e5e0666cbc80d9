"""The prober as a process, on the real log and the real store."""

import asyncio
import hashlib
import os
import signal
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path

import httpx
import pytest

from cutlog.stack import LocalStack
from gpu_runners.probing.uploads import missing_parts
from schema import commands as c
from schema import events as e
from schema.codec import encode
from schema.ids import NO_TENANT, EventId, MaterialId, TenantId, UserId, material_id_of
from schema.objects import content_key, pieces_key, pieces_of, upload_key
from schema.refusals import MaterialRefusal
from schema.routes import Route
from schema.settings import load, need
from schema.topics import Topic
from schema.wires.objects import ObjectMissingError, ObjectStore, StoredPart
from schema.words import MediaKind
from tests.support.ground import Ground, Process, ground_on
from tests.support.pictures import noise_png

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]

PART = 5 << 20
SHOP = TenantId("shop")


@pytest.fixture
async def ground(stack: LocalStack, tmp_path: Path) -> AsyncIterator[Ground]:
    async with ground_on(stack, tmp_path) as found:
        yield found


@pytest.fixture
async def store(ground: Ground) -> AsyncIterator[ObjectStore]:
    async with ObjectStore(need(load(ground.environ), "objects")) as opened:
        await opened.ensure_bucket()
        yield opened


async def prober(ground: Ground, name: str = "prober", **settings: str) -> Process:
    usual = {
        "CUTLOG_PROBING_GROUP": f"{ground.app_id}-probing",
        "CUTLOG_PROBING_WORK_DIRECTORY": str(ground.directory / f"work-{name}"),
        "CUTLOG_KAFKA_SESSION_TIMEOUT_SECONDS": "6",
    }
    started = await ground.start("gpu_runners.probing", name, **usual | settings)
    await started.ready()
    return started


async def does(*command: str) -> bool:
    return await (await asyncio.create_subprocess_exec(*command)).wait() == 0


class Sent:
    """A material on its way, as the api and the processors would have it."""

    def __init__(
        self,
        ground: Ground,
        store: ObjectStore,
        content: bytes,
        *,
        user: str = "annannannannannannan",
        tenant: TenantId = NO_TENANT,
        sha256: str = "",
        content_type: str = "image/png",
    ) -> None:
        self.ground, self.store, self.content = ground, store, content
        self.user_id = UserId(f"{user}000007")
        self.tenant_id = tenant
        self.sha256 = sha256 or hashlib.sha256(content).hexdigest()
        self.size = len(content)
        self.content_type = content_type
        self.material_id: MaterialId = material_id_of(self.user_id, self.sha256, "name")
        self.key = upload_key(self.user_id, self.material_id)
        self.content_key = content_key(self.tenant_id, self.user_id, self.sha256)
        self.upload_id = ""

    async def upload(self, *, without: tuple[int, ...] = ()) -> "Sent":
        if not self.upload_id:
            self.upload_id = await self.store.create_upload(
                self.key, content_type=self.content_type
            )
        for number, start in enumerate(range(0, len(self.content), PART), 1):
            if number not in without:
                part = self.content[start : start + PART]
                await self.store.put_part(self.key, self.upload_id, number, part)
        return self

    async def complete(self, number: int = 1) -> "Sent":
        """The event that follows from the caller's word."""
        await self.tell(
            e.MaterialAssembling(
                event_id=EventId(f"complete-{number}"),
                seq=number + 1,
                at=datetime(2026, 3, 2, tzinfo=UTC),
                material_id=self.material_id,
                user_id=self.user_id,
                tenant_id=self.tenant_id,
                number=number,
                content_type=self.content_type,
                size=self.size,
                sha256=self.sha256,
                part_bytes=PART,
                upload_id=self.upload_id,
            )
        )
        return self

    async def tell(self, event: e.MaterialEvent) -> None:
        partition = int(self.user_id[-6:]) % self.ground.kafka.partitions
        await self.ground.put(
            Route(Topic.MATERIAL_EVENTS, partition, self.material_id), encode(event)
        )

    async def verdict(self, number: int = 1) -> c.ConcludeMaterial:
        return await self.ground.wait(
            Topic.MATERIAL_COMMANDS,
            c.ConcludeMaterial,
            lambda told: (told.material_id, told.number) == (self.material_id, number),
        )

    async def lay_piece(self, number: int, offset: int) -> None:
        """A piece of a part that nobody joins."""
        key = pieces_key(self.user_id, self.material_id, self.upload_id, number, offset)
        await self.store.put(key, b"a piece", content_type="application/octet-stream")

    async def has_upload(self) -> bool:
        if await self.store.head(self.key) is not None:
            return True
        if await self.store.sizes(pieces_of(self.user_id, self.material_id, self.upload_id)):
            return True
        try:
            await self.store.parts(self.key, self.upload_id)
        except ObjectMissingError:
            return False
        return True

    async def is_forgotten(self) -> None:
        """Once the prober has deleted what is of no use any more."""
        while await self.has_upload():
            pass


def test_a_part_is_missing_that_is_not_there_or_not_of_its_size() -> None:
    def parts(*sizes: int) -> list[StoredPart]:
        return [StoredPart(n, size, "") for n, size in enumerate(sizes, 1) if size]

    assert missing_parts(parts(10, 10, 5), 25, 10) == []
    assert missing_parts(parts(10, 0, 5), 25, 10) == [2]
    assert missing_parts(parts(10, 9, 5), 25, 10) == [2]
    assert missing_parts(parts(10, 10, 6), 25, 10) == [3]
    assert missing_parts([], 25, 10) == [1, 2, 3]
    assert missing_parts([], 0, 10) == [1]


async def test_parts_become_a_content_and_the_upload_is_gone(
    ground: Ground, store: ObjectStore
) -> None:
    content = noise_png(1500, 1200)
    assert len(content) > PART
    process = await prober(ground)
    sent = await Sent(ground, store, content).upload()
    await sent.complete()
    told = await sent.verdict()
    assert (told.size, told.sha256) == (len(content), sent.sha256)
    assert told.content_key == sent.content_key
    assert told.facts is not None
    assert (told.facts.kind, told.facts.width) == (MediaKind.PICTURE, 1500)
    assert await store.digest(told.content_key) == (len(content), sent.sha256)
    await sent.is_forgotten()
    assert await process.end(signal.SIGTERM) == 0


async def test_parts_that_are_missing_are_named_and_what_is_there_stays(
    ground: Ground, store: ObjectStore
) -> None:
    await prober(ground)
    sent = await Sent(ground, store, noise_png(2500, 2000)).upload(without=(2,))
    await sent.complete()
    told = await sent.verdict()
    assert told.part_missing
    assert told.detail == "parts 2"
    assert (told.facts, told.reason) == (None, None)
    await sent.upload(without=(1, 3))
    await sent.complete(2)
    assert (await sent.verdict(2)).facts is not None


async def test_what_is_refused_is_told_why_and_stored_nowhere(
    ground: Ground, store: ObjectStore
) -> None:
    await prober(ground)
    words = b"#EXTM3U\n/etc/passwd\n" * 10
    content = noise_png()
    other = "0" * 64
    for sent, reason in (
        (Sent(ground, store, words), MaterialRefusal.NAMES_OTHERS),
        (Sent(ground, store, content, content_type="video/mp4"), MaterialRefusal.OTHER_KIND),
        (Sent(ground, store, content, sha256=other), MaterialRefusal.DIGEST_MISMATCH),
    ):
        await (await sent.upload()).complete()
        told = await sent.verdict()
        assert told.reason is reason
        assert told.detail
        assert told.facts is None
        await sent.is_forgotten()
        assert await store.head(sent.content_key) is None


async def test_two_of_a_tenant_with_the_same_content_store_one_object(
    ground: Ground, store: ObjectStore
) -> None:
    await prober(ground)
    content = noise_png()
    ann = await Sent(ground, store, content, tenant=SHOP).upload()
    bob = await Sent(ground, store, content, tenant=SHOP, user="bobbobbobbobbobbobbo").upload()
    await ann.complete()
    await bob.complete()
    keys = {(await ann.verdict()).content_key, (await bob.verdict()).content_key}
    assert keys == {f"contents/t-{SHOP}/{ann.sha256}"}
    await ann.is_forgotten()
    await bob.is_forgotten()
    assert await store.digest(keys.pop()) == (len(content), ann.sha256)


async def test_killed_at_work_its_heir_finishes_what_it_had(
    ground: Ground, store: ObjectStore
) -> None:
    first = await prober(ground, "first")
    sent = await Sent(ground, store, noise_png(2500, 2000)).upload()
    await sent.complete()
    while await store.head(sent.key) is None:  # it has joined the parts, and not told yet
        pass
    first.send(signal.SIGKILL)
    await first.process.wait()
    await prober(ground, "second")
    assert (await sent.verdict()).facts is not None
    await sent.is_forgotten()
    assert await store.digest(sent.content_key) == (len(sent.content), sent.sha256)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount a disk that is full")
async def test_on_a_full_disk_files_wait_in_turn_and_leave_nothing_behind(
    ground: Ground, store: ObjectStore, tmp_path: Path
) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    if not await does("mount", "-t", "tmpfs", "-o", "size=3m", "tmpfs", str(disk)):
        pytest.skip("nothing can be mounted here")
    try:
        sent = [
            await (await Sent(ground, store, noise_png(1_300, 1_300)).upload()).complete()
            for _ in range(2)
        ]
        here = await prober(ground, CUTLOG_PROBING_WORK_DIRECTORY=str(disk / "work"))
        url = await here.url()
        async with httpx.AsyncClient() as client, asyncio.timeout(60):
            while "disk" not in (await client.get(f"{url}/readyz")).text:
                pass
        assert await does("mount", "-o", "remount,size=64m", str(disk))
        for one in sent:
            assert (await one.verdict()).facts is not None
        await here.end()
    finally:
        assert await does("umount", str(disk))


async def test_what_was_concluded_is_not_looked_at_again_after_a_restart(
    ground: Ground, store: ObjectStore
) -> None:
    first = await prober(ground, "first")
    sent = await Sent(ground, store, noise_png()).upload()
    await sent.complete()
    await sent.verdict()
    await sent.is_forgotten()
    assert await first.end(signal.SIGTERM) == 0
    await prober(ground, "second")
    later = await Sent(ground, store, noise_png()).upload()
    await later.complete()
    await later.verdict()
    told = await ground.all(Topic.MATERIAL_COMMANDS)
    assert [one.material_id for one in told] == [sent.material_id, later.material_id]


async def test_an_upload_that_was_left_lying_is_aborted_in_the_store(
    ground: Ground, store: ObjectStore
) -> None:
    await prober(ground)
    sent = await Sent(ground, store, noise_png()).upload()
    for number, offset in ((1, 0), (1, 7), (2, 0)):
        await sent.lay_piece(number, offset)
    other = await Sent(ground, store, noise_png()).upload()
    await other.lay_piece(1, 0)
    assert await other.has_upload()
    await sent.tell(
        e.MaterialAborted(
            event_id=EventId("aborted"),
            seq=2,
            at=datetime(2026, 3, 2, tzinfo=UTC),
            material_id=sent.material_id,
            user_id=sent.user_id,
            upload_id=sent.upload_id,
        )
    )
    await sent.is_forgotten()
    assert len(await store.sizes(pieces_of(other.user_id, other.material_id, other.upload_id))) == 1
    assert await ground.all(Topic.MATERIAL_COMMANDS) == []
