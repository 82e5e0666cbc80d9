"""What waits for the store beside the slots: bounded room, and files that go up side by side."""

import asyncio
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

import pytest

from gpu_runners.objects import AttemptStore
from gpu_runners.storing import Parcel, StoreError, StoringRoom, Uploads
from schema.settings import Objects
from schema.wires.objects import ObjectStore, StoredObject
from tests.support.bad_stores import BadStore, Manner


class Stored(NamedTuple):
    size: int
    sha256: str


class Store:
    """Takes a file when it is let, and counts how many it is offered at once."""

    def __init__(self) -> None:
        self.at_once = 0
        self.most = 0
        self.tries: dict[str, int] = {}
        self.away_for: dict[str, int] = {}
        self.opens = asyncio.Event()
        self.opens.set()

    async def keep(self, key: str, path: Path, content_type: str) -> Stored:
        del content_type
        self.tries[key] = self.tries.get(key, 0) + 1
        self.at_once += 1
        self.most = max(self.most, self.at_once)
        try:
            await self.opens.wait()
            await asyncio.sleep(0)
        finally:
            self.at_once -= 1
        if self.tries[key] <= self.away_for.get(key, 0):
            raise StoreError("away")
        data = path.read_bytes()  # noqa: ASYNC240 - a test may wait for a disk
        return Stored(len(data), sha256(data).hexdigest())


def parcels(directory: Path, count: int) -> list[Parcel]:
    found: list[Parcel] = []
    for number in range(count):
        path = directory / f"{number}.png"
        path.write_bytes(b"x" * number)
        found.append(Parcel(f"results/t/1/{number}.png", path, "image/png"))
    return found


async def test_files_go_up_side_by_side_but_so_many_at_once(tmp_path: Path) -> None:
    store = Store()
    stored = await Uploads(store, seconds=5, parallel_max=3).keep_all(parcels(tmp_path, 10))
    assert [one.size for one in stored] == list(range(10))
    assert store.most == 3


async def test_only_what_the_store_did_not_take_is_offered_again(tmp_path: Path) -> None:
    store = Store()
    store.away_for = {"results/t/1/1.png": 1}
    await Uploads(store, seconds=5, parallel_max=3).keep_all(parcels(tmp_path, 3))
    assert list(store.tries.values()) == [1, 2, 1]


async def test_one_file_that_stays_out_ends_the_rest(tmp_path: Path) -> None:
    store = Store()
    store.away_for = {"results/t/1/0.png": 99}
    with pytest.raises(StoreError):
        await Uploads(store, seconds=0.1, parallel_max=1).keep_all(parcels(tmp_path, 4))
    assert store.at_once == 0
    assert store.tries.get("results/t/1/3.png") is None


async def test_the_time_for_storing_ends_whatever_the_store_does(tmp_path: Path) -> None:
    store = Store()
    store.opens.clear()
    uploads = Uploads(store, seconds=0.1, parallel_max=1)
    with pytest.raises(StoreError, match="time to store it is over"):
        await uploads.keep_all(parcels(tmp_path, 3))
    with pytest.raises(StoreError, match="time to store it is over"):
        await uploads.keep_one(parcels(tmp_path, 1)[0])
    assert store.at_once == 0


def objects(url: str) -> Objects:
    return Objects(endpoint=url, access_key="a", secret_key="b")


class Asked(ObjectStore):
    """A store that counts how often it is asked to take a file."""

    asked = 0

    async def put_file(self, key: str, path: Path, *, content_type: str) -> StoredObject:
        self.asked += 1
        return await super().put_file(key, path, content_type=content_type)


@pytest.mark.parametrize("manner", [Manner.NEVER_ACCEPTS, Manner.CONTINUES, Manner.FAILS])
async def test_a_store_that_does_not_do_its_part_keeps_no_file_from_the_next_endpoint(
    manner: Manner, tmp_path: Path
) -> None:
    parcel = parcels(tmp_path, 1)[0]
    async with (
        BadStore(manner) as bad,
        BadStore(Manner.FAILS) as other,
        Asked(objects(bad.url), timeout_seconds=1) as first,
        Asked(objects(other.url), timeout_seconds=1) as second,
    ):
        store = AttemptStore(first, second)
        async with asyncio.timeout(60):
            with pytest.raises(StoreError):
                await store.keep(*parcel)
            assert (first.asked, second.asked) == (1, 1)
            with pytest.raises(StoreError):
                await Uploads(store, seconds=3, parallel_max=2).keep_all([parcel])


async def test_the_room_is_bounded_by_results_and_by_bytes() -> None:
    room = StoringRoom(2, 100)
    await room.enter(60)
    waiting = [asyncio.create_task(room.enter(size)) for size in (50, 30)]
    await asyncio.sleep(0)
    assert [one.done() for one in waiting] == [False, False]  # first come, first in
    room.leave(60)
    await asyncio.gather(*waiting)
    assert (room.results, room.bytes) == (2, 80)
    third = asyncio.create_task(room.enter(1))
    await asyncio.sleep(0)
    assert not third.done()
    room.leave(30)
    await third
    assert (room.results, room.bytes) == (2, 51)


async def test_who_waits_no_longer_keeps_nobody_out() -> None:
    room = StoringRoom(1, 100)
    await room.enter(10)
    first, second = (asyncio.create_task(room.enter(20)) for _ in range(2))
    await asyncio.sleep(0)
    first.cancel()
    await asyncio.wait([first])
    room.leave(10)
    await second
    assert (room.results, room.bytes) == (1, 20)


async def test_a_result_larger_than_the_room_keeps_its_slot_and_nobody_out() -> None:
    room = StoringRoom(2, 100)
    large = asyncio.create_task(room.enter(101))
    await asyncio.sleep(0)
    await room.enter(100)
    assert not large.done()
    large.cancel()
    await asyncio.wait([large])
    assert (room.results, room.bytes) == (1, 100)


async def test_let_in_and_canceled_in_one_moment_it_takes_no_room() -> None:
    room = StoringRoom(1, 100)
    await room.enter(10)
    waiting = asyncio.create_task(room.enter(20))
    await asyncio.sleep(0)
    room.leave(10)
    waiting.cancel()
    await asyncio.wait([waiting])
    assert (room.results, room.bytes) == (0, 0)
