"""Uploads that nobody tells of: what the store has of them is told, once for what is new."""

from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import pytest

from commands import materials
from projections import migrations
from projections.projector import connect
from projections.uploads_sweep import UploadSweep, seen
from schema.commands import CompleteMaterial, TouchUpload
from schema.ids import command_id_of
from schema.objects import upload_key
from schema.settings import need
from schema.wires.objects import ObjectStore, StoredPart
from schema.wires.telemetry import new_registry
from tests.projections.conftest import Ground
from tests.projections.lying import Asked, caught_up, put
from tests.support import material_words as w

MINUTE = timedelta(minutes=1)
PART_BYTES = 5
SIZE = 12
NAME = w.CLIP[:-6]
KEY = upload_key(w.USER, w.CLIP)


@pytest.mark.parametrize(
    ("sizes", "whole"),
    [
        ({1: 5, 2: 5, 3: 2}, True),
        ({1: 5, 2: 5, 3: 2, 4: 9}, True),  # what is beyond is not joined
        ({1: 5, 2: 5}, False),
        ({1: 5, 3: 2}, False),
        ({1: 5, 2: 5, 3: 3}, False),
        ({1: 5, 2: 4, 3: 2}, False),
        ({}, False),
    ],
)
def test_an_upload_is_whole_when_every_part_is_there_and_as_long_as_it_shall_be(
    sizes: dict[int, int], *, whole: bool
) -> None:
    found = seen([StoredPart(*part, "e") for part in sizes.items()], SIZE, PART_BYTES)
    assert found.whole is whole
    assert bool(found.parts) is bool(sizes)


def test_another_part_or_another_content_of_it_is_something_new() -> None:
    one, other, more = (
        seen([StoredPart(1, 5, etag) for etag in etags], SIZE, PART_BYTES)
        for etags in (("a",), ("b",), ("a", "a"))
    )
    assert len({one.parts, other.parts, more.parts}) == 3
    assert seen([StoredPart(1, 5, "a")], SIZE, PART_BYTES) == one


class Shelf:
    """One upload of twelve bytes in parts of five, a table with its row, and a sweep."""

    def __init__(self, ground: Ground, db: Any, store: ObjectStore) -> None:  # noqa: ANN401
        self.db, self.store = db, store
        objects = need(ground.settings, "objects")
        self.sweep = UploadSweep(ground.dsn, objects, ground.kafka, new_registry())
        self.upload_id = ""

    async def announce(self, *, silent: timedelta = 5 * MINUTE) -> None:
        self.upload_id = await self.store.create_upload(KEY, content_type="video/mp4")
        await self.db.execute("DELETE FROM materials")
        await put(
            self.db, NAME, active=silent, size=SIZE, part_bytes=PART_BYTES, upload_id=self.upload_id
        )

    async def send(self, *numbers: int) -> None:
        for number in numbers:
            data = b"x" * min(PART_BYTES, SIZE - (number - 1) * PART_BYTES)
            await self.store.put_part(KEY, self.upload_id, number, data)

    async def later(self, time: timedelta = 30 * MINUTE) -> None:
        """So much time passes, and nothing is heard of it."""
        await self.db.execute("UPDATE uploads_seen SET looked_at = looked_at - $1::interval", time)


@pytest.fixture
async def shelf(ground: Ground) -> AsyncIterator[Shelf]:
    db = await connect(ground.dsn)
    await migrations.migrate(db)
    await caught_up(db)
    async with ObjectStore(need(ground.settings, "objects")) as store:
        await store.delete(KEY)
        found = Shelf(ground, db, store)
        async with found.sweep:
            yield found
        await store.abort_upload(KEY, found.upload_id)
        await store.delete(KEY)
    await db.close()


async def told(asked: Asked) -> list[type]:
    """What was asked for since it was looked last."""
    return [type(one) for one in await asked.all()]


pytestmark = pytest.mark.timeout(300)


@pytest.mark.integration
async def test_parts_that_come_in_past_us_are_a_sign_and_the_last_one_completes_it(
    ground: Ground, shelf: Shelf
) -> None:
    await shelf.announce()
    story = w.registered().after(300)
    async with Asked(ground) as asked:
        assert await shelf.sweep.turn() == 1  # there is nothing
        await shelf.send(1)
        assert await shelf.sweep.turn() == 0  # it was looked at a moment ago
        await shelf.later()
        assert await shelf.sweep.turn() == 1
        (touch,) = await asked.all()
        assert isinstance(touch, TouchUpload)
        story.given(touch)
        await shelf.later()
        await shelf.sweep.turn()
        assert await told(asked) == []  # nothing came since
        await shelf.send(2, 3)
        await shelf.later()
        await shelf.sweep.turn()
        (complete,) = await asked.all()
        assert isinstance(complete, CompleteMaterial)
        seq = await shelf.db.fetchval("SELECT seq FROM materials")
        assert complete.command_id == command_id_of("complete", w.CLIP, str(seq))  # as the api does
        story.given(complete)
        await shelf.later()
        await shelf.sweep.turn()
        assert await told(asked) == []  # once because of these parts
    assert [type(event).__name__ for event in story.history] == [
        "MaterialRegistered",
        "UploadTouched",
        "MaterialAssembling",
    ]
    assert materials.STATUSES[type(story.row_of(w.CLIP))] == "ASSEMBLING"


@pytest.mark.integration
async def test_what_is_heard_of_otherwise_is_not_looked_at(ground: Ground, shelf: Shelf) -> None:
    await shelf.announce(silent=MINUTE)
    await shelf.send(1, 2, 3)
    async with Asked(ground) as asked:
        assert await shelf.sweep.turn() == 0
        await shelf.db.execute("UPDATE materials SET active_at = now() - interval '3 minutes'")
        await shelf.db.execute("UPDATE projection_log SET caught_up_at = NULL")
        assert await shelf.sweep.turn() == 0  # what looks silent may only be read late
        await caught_up_again(shelf)
        assert await shelf.sweep.turn() == 1
        assert await told(asked) == [CompleteMaterial]


async def caught_up_again(shelf: Shelf) -> None:
    await shelf.db.execute("UPDATE projection_log SET caught_up_at = now()")


@pytest.mark.integration
async def test_the_longer_nothing_came_the_rarer_it_is_looked_at(shelf: Shelf) -> None:
    await shelf.announce(silent=240 * MINUTE)
    assert await shelf.sweep.turn() == 1
    for passed, looked in ((59, 0), (2, 1)):
        await shelf.later(passed * MINUTE)
        assert await shelf.sweep.turn() == looked


@pytest.mark.integration
async def test_an_upload_in_the_place_of_another_is_seen_anew(ground: Ground, shelf: Shelf) -> None:
    async with Asked(ground) as asked:
        for _ in range(2):
            await shelf.announce()
            await shelf.send(1)
            assert await shelf.sweep.turn() == 1
        assert await told(asked) == [TouchUpload] * 2


@pytest.mark.integration
async def test_what_was_joined_before_is_completed_and_what_is_gone_is_left_alone(
    ground: Ground, shelf: Shelf
) -> None:
    async with Asked(ground) as asked:
        await shelf.announce()
        await shelf.store.abort_upload(KEY, shelf.upload_id)
        await shelf.sweep.turn()
        assert await told(asked) == []
        await shelf.store.put(KEY, b"x" * SIZE, content_type="video/mp4")
        await shelf.later()
        await shelf.sweep.turn()
        assert await told(asked) == [CompleteMaterial]


@pytest.mark.integration
async def test_what_was_seen_is_forgotten_after_its_day(shelf: Shelf) -> None:
    await shelf.announce()
    await shelf.sweep.turn()
    await shelf.db.execute("DELETE FROM materials")
    await shelf.later(timedelta(hours=31))
    await shelf.sweep.turn()
    assert await shelf.db.fetchval("SELECT count(*) FROM uploads_seen") == 0
