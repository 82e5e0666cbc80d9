"""The object store's wires on a real S3."""

import hashlib
from collections.abc import AsyncIterator
from pathlib import Path
from uuid import uuid4

import httpx
import msgspec
import pytest

from cutlog.stack import LocalStack
from schema.settings import Objects, load, need
from schema.wires.objects import ObjectMissingError, ObjectStore, ObjectStoreUnavailableError

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
