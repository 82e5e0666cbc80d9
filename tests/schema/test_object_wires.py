"""The object store's wires on a real S3."""

import asyncio
import hashlib
from collections.abc import AsyncIterator
from pathlib import Path
from uuid import uuid4

import httpx
import msgspec
import pytest

from cutlog.stack import LocalStack
from schema.settings import Objects, load, need
from schema.wires.objects import (
    ObjectMissingError,
    ObjectStore,
    ObjectStoreUnavailableError,
    PartsRefusedError,
    StoredPart,
)

pytestmark = pytest.mark.integration
DATA = bytes(range(256)) * 8_192
SHA256 = hashlib.sha256(DATA).hexdigest()


@pytest.fixture
def settings(stack: LocalStack) -> Objects:
    found: Objects = need(load(stack.environ()), "objects")
    return found


@pytest.fixture
async def store(settings: Objects) -> AsyncIterator[ObjectStore]:
    async with ObjectStore(settings) as opened:
        await opened.ensure_bucket()
        yield opened


async def test_an_object_is_put_looked_at_fetched_and_deleted(
    store: ObjectStore, tmp_path: Path
) -> None:
    await store.ensure_bucket()
    key = f"tests/{uuid4().hex}/1/film.mp4"
    put = await store.put(key, DATA, content_type="video/mp4")
    assert (put.size, put.sha256) == (len(DATA), SHA256)
    assert await store.head(key) == put
    assert await store.get(key) == DATA
    assert await store.digest(key) == (len(DATA), SHA256)
    assert await store.get_file(key, tmp_path / "fetched") == (len(DATA), SHA256)
    assert (tmp_path / "fetched").read_bytes() == DATA
    await store.delete(key)
    await store.delete(key)
    assert await store.head(key) is None
    with pytest.raises(ObjectMissingError):
        await store.get(key)


async def test_a_file_is_streamed_with_its_digest(store: ObjectStore, tmp_path: Path) -> None:
    path = tmp_path / "poster.jpg"
    path.write_bytes(DATA)
    key = f"tests/{uuid4().hex}"
    put = await store.put_file(key, path, content_type="image/jpeg")
    assert await store.head(key) == put
    assert put.sha256 == SHA256
    await store.delete(key)


async def test_a_copy_says_of_itself_what_its_maker_knows(store: ObjectStore) -> None:
    source, target = f"tests/{uuid4().hex}", f"tests/{uuid4().hex}"
    with pytest.raises(ObjectMissingError):
        await store.copy(source, target, content_type="video/mp4")
    await store.put(source, DATA, content_type="text/plain")
    unread = await store.copy(source, target, content_type="video/mp4")
    assert unread[:2] == (target, len(DATA))
    assert (unread.content_type, unread.sha256) == ("video/mp4", "")
    known = await store.copy(source, target, content_type="video/mp4", sha256=SHA256)
    assert known.sha256 == SHA256
    await store.put(source, b"other", content_type="text/plain")
    assert await store.digest(target) == (len(DATA), SHA256)
    await store.delete(source)
    await store.delete(target)


async def test_callers_upload_and_fetch_by_addresses_that_are_good_for_one_object(
    store: ObjectStore,
) -> None:
    key = f"tests/{uuid4().hex}"
    kind = {"Content-Type": "video/mp4"}
    address = await store.presigned_put(key, content_type="video/mp4", size=len(DATA))
    async with httpx.AsyncClient() as client:
        other = await client.put(address, content=DATA, headers={"Content-Type": "text/html"})
        assert other.status_code == 403
        assert (await client.put(address, content=DATA, headers=kind)).status_code == 200
        fetched = await client.get(await store.presigned_get(key, filename="film.mp4"))
        assert fetched.content == DATA
        assert fetched.headers["Content-Disposition"] == 'attachment; filename="film.mp4"'
        changed = address.replace(key, f"{key}x")
        assert (await client.put(changed, content=DATA, headers=kind)).status_code == 403
    found = await store.head(key)
    assert found is not None
    assert (found.size, found.sha256, found.content_type) == (len(DATA), "", "video/mp4")
    await store.delete(key)


async def test_addresses_name_the_endpoint_that_callers_reach(settings: Objects) -> None:
    public = msgspec.structs.replace(settings, public_endpoint="https://media.example.org")
    async with ObjectStore(public) as store:
        address = await store.presigned_get("k")
    assert address.startswith("https://media.example.org/cutlog/k?")


async def test_a_store_that_is_away_is_an_error_to_try_again() -> None:
    nowhere = Objects(endpoint="http://127.0.0.1:9", access_key="a", secret_key="b")
    async with ObjectStore(nowhere, timeout_seconds=1) as store:
        with pytest.raises(ObjectStoreUnavailableError):
            await store.put("k", b"1", content_type="text/plain")
        with pytest.raises(ObjectStoreUnavailableError):
            await store.head("k")
        with pytest.raises(ObjectStoreUnavailableError):
            await store.get("k")


PART_BYTES = 5 << 20


async def test_parts_in_any_order_become_one_object(store: ObjectStore) -> None:
    key = f"tests/{uuid4().hex}"
    upload_id = await store.create_upload(key, content_type="video/mp4")
    assert await store.parts(key, upload_id) == []
    first, last = b"a" * PART_BYTES, b"the end"
    await store.put_part(key, upload_id, 2, last)
    url = await store.presigned_part(key, upload_id, 1, size=PART_BYTES)
    async with httpx.AsyncClient() as http:
        assert (await http.put(url, content=first + b"x")).status_code == 403
        assert (await http.put(url, content=first)).status_code == 200
    parts = await store.parts(key, upload_id)
    assert [(part.number, part.size) for part in parts] == [(1, PART_BYTES), (2, len(last))]
    made = await store.complete_upload(key, upload_id, parts)
    assert (made.size, made.content_type) == (PART_BYTES + len(last), "video/mp4")
    assert await store.read_range(key, PART_BYTES - 1, 4) == b"athe"
    async with httpx.AsyncClient() as http:  # its address is still good, and leads nowhere
        assert (await http.put(url, content=first)).status_code == 404
    await store.delete(key)


async def test_parts_that_are_not_as_named_are_refused(store: ObjectStore) -> None:
    key = f"tests/{uuid4().hex}"
    upload_id = await store.create_upload(key, content_type="video/mp4")
    for number in (1, 2):
        await store.put_part(key, upload_id, number, b"small")
    parts = await store.parts(key, upload_id)
    with pytest.raises(PartsRefusedError):
        await store.complete_upload(key, upload_id, parts)
    with pytest.raises(PartsRefusedError):
        await store.complete_upload(key, upload_id, [StoredPart(3, 5, parts[0].etag)])
    await store.abort_upload(key, upload_id)
    await store.abort_upload(key, upload_id)
    with pytest.raises(ObjectMissingError):
        await store.parts(key, upload_id)


async def test_more_parts_than_one_page_are_all_listed(store: ObjectStore) -> None:
    key = f"tests/{uuid4().hex}"
    upload_id = await store.create_upload(key, content_type="video/mp4")
    for first in range(1, 1_101, 100):
        await asyncio.gather(
            *(store.put_part(key, upload_id, number, b"x") for number in range(first, first + 100))
        )
    assert [part.number for part in await store.parts(key, upload_id)] == list(range(1, 1_101))
    await store.abort_upload(key, upload_id)


async def test_a_large_object_is_copied_in_parts(
    store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("schema.wires.objects.COPY_BYTES_MAX", PART_BYTES)
    source, target = f"tests/{uuid4().hex}", f"tests/{uuid4().hex}"
    content = bytes(range(256)) * (2 * PART_BYTES // 256) + b"the end"
    put = await store.put(source, content, content_type="video/mp4")
    copied = await store.copy(source, target, content_type="image/png", sha256=put.sha256)
    assert (copied.size, copied.content_type, copied.sha256) == (
        len(content),
        "image/png",
        put.sha256,
    )
    assert await store.digest(target) == (len(content), put.sha256)
    assert await store.sizes(source) == {source: len(content)}
    for key in (source, target):
        await store.delete(key)
