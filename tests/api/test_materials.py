"""Materials: one presigned PUT, checked by what the store has, and nobody else's."""

import asyncio
import hashlib
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar
from uuid import uuid4

import httpx
import pytest

from gpu_runners.objects import AttemptStore
from schema.ids import MaterialId
from schema.objects import material_key, upload_key
from schema.settings import load, need
from schema.wires.objects import ObjectStore, StoredObject
from tests.api.system import Caller, System

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]
T = TypeVar("T")


def _announcement(content: bytes, **changes: Any) -> dict[str, Any]:  # noqa: ANN401
    return {
        "sha256": hashlib.sha256(content).hexdigest(),
        "size": len(content),
        "content_type": "video/mp4",
        "name": "Ännas Ferien.mp4",
        **changes,
    }


def _register(caller: Caller, announcement: dict[str, Any]) -> dict[str, Any]:
    answer = caller.http.post("/v1/materials", json=announcement)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def _put(upload: dict[str, Any], content: bytes) -> httpx.Response:
    return httpx.request(
        upload["method"], upload["url"], content=content, headers=upload["headers"]
    )


def _complete(caller: Caller, material_id: str) -> httpx.Response:
    return caller.http.post(f"/v1/materials/{material_id}/complete")


def test_a_file_is_announced_sent_completed_and_then_known_at_once(ann: Caller) -> None:
    content = uuid4().bytes * 100
    made = _register(ann, _announcement(content))
    material_id = made["material_id"]
    assert made["status"] == "REGISTERED"
    assert _register(ann, _announcement(content))["material_id"] == material_id
    early = _complete(ann, material_id)
    assert (early.status_code, early.json()["code"]) == (409, "object_missing")
    assert _put(made["upload"], content).status_code == 200
    done = _complete(ann, material_id)
    assert done.status_code == 200, done.text
    assert (done.json()["status"], done.json()["size"]) == ("READY", len(content))
    assert _complete(ann, material_id).json()["status"] == "READY"
    instant = _register(ann, _announcement(content))
    assert (instant["status"], instant["upload"]) == ("READY", None)


def test_a_material_is_read_by_its_owner_only(ann: Caller, bob: Caller) -> None:
    content = uuid4().bytes
    made = _register(ann, _announcement(content))
    _put(made["upload"], content)
    _complete(ann, made["material_id"])
    path = f"/v1/materials/{made['material_id']}"
    shown = _eventually(ann, path)
    assert shown["name"] == "Ännas Ferien.mp4"
    assert shown["sha256"] == hashlib.sha256(content).hexdigest()
    neighbours = made["material_id"][:-6] + bob.user_id[-6:]
    for one in (made["material_id"], neighbours):
        assert bob.http.get(f"/v1/materials/{one}").json()["code"] == "material_unknown"
        assert _complete(bob, one).json()["code"] == "material_unknown"


def _eventually(caller: Caller, path: str) -> dict[str, Any]:
    """A material once the read model has heard of its end."""
    for _ in range(100):
        answer = caller.http.get(path)
        found: dict[str, Any] = answer.json()
        if answer.status_code == 200 and found["status"] != "REGISTERED":
            return found
        _complete(caller, path.rsplit("/", 1)[1])  # the next answer of the decider takes its time
    raise AssertionError(path)


def test_what_is_stored_must_be_what_was_announced(ann: Caller) -> None:
    content = uuid4().bytes * 4
    made = _register(ann, _announcement(content))
    other = bytes(len(content))
    assert _put(made["upload"], other).status_code == 200
    answer = _complete(ann, made["material_id"])
    assert (answer.status_code, answer.json()["code"]) == (422, "material_mismatch")
    shown = _eventually(ann, f"/v1/materials/{made['material_id']}")
    assert shown["status"] == "REFUSED"
    again = _register(ann, _announcement(content))
    assert again["material_id"] == made["material_id"]
    assert _put(again["upload"], content).status_code == 200
    assert _complete(ann, made["material_id"]).json()["status"] == "READY"


def test_a_file_of_another_size_does_not_even_get_in(ann: Caller) -> None:
    content = uuid4().bytes
    upload = _register(ann, _announcement(content))["upload"]
    longer = {**upload, "headers": {**upload["headers"], "Content-Length": "17"}}
    assert _put(longer, content + b"x").status_code in {400, 403}


def test_a_file_beyond_the_tier_is_refused_before_it_is_sent(system: System) -> None:
    caller = system.caller(tier="free")
    answer = caller.http.post("/v1/materials", json=_announcement(b"x", size=200_000_001))
    assert (answer.status_code, answer.json()["code"]) == (413, "material_too_large")


def test_a_task_waits_for_its_material_and_goes_on_when_it_is_there(ann: Caller) -> None:
    content = uuid4().bytes * 10
    made = _register(ann, _announcement(content))
    answer = ann.post({"scene": "genai", "materials": [made["material_id"]]})
    task_id = answer.json()["task_id"]
    assert ann.get(task_id, 1)["status"] == "CREATED"
    _put(made["upload"], content)
    assert _complete(ann, made["material_id"]).status_code == 200
    assert ann.until(task_id, "QUEUED")["materials"] == [made["material_id"]]


def test_a_task_whose_material_is_refused_is_canceled_by_the_system(ann: Caller) -> None:
    content = uuid4().bytes * 10
    made = _register(ann, _announcement(content))
    answer = ann.post({"scene": "genai", "materials": [made["material_id"]]})
    _put(made["upload"], bytes(len(content)))
    assert _complete(ann, made["material_id"]).status_code == 422
    task = ann.until(answer.json()["task_id"], "CANCELED")
    assert task["cause"] == "material_refused"


def _in_the_store(caller: Caller, act: Callable[[ObjectStore], Awaitable[T]]) -> T:
    async def acting() -> T:
        settings = need(load(caller.system.installation.environ()), "objects")
        async with ObjectStore(settings) as store:
            return await act(store)

    return asyncio.run(acting())


def _fetched(caller: Caller, material_id: str, directory: Path) -> bytes:
    """The material as a runner gets it for an attempt."""
    key, path = material_key(caller.user_id, MaterialId(material_id)), directory / "fetched"
    _in_the_store(caller, lambda store: AttemptStore(store).fetch(key, path))
    return path.read_bytes()


def test_a_material_stays_what_was_verified_while_its_address_is_still_good(
    ann: Caller, tmp_path: Path
) -> None:
    content = uuid4().bytes * 100
    made = _register(ann, _announcement(content))
    material_id = made["material_id"]
    assert _put(made["upload"], content).status_code == 200
    assert _complete(ann, material_id).json()["status"] == "READY"
    upload = upload_key(ann.user_id, MaterialId(material_id))
    assert _in_the_store(ann, lambda store: store.head(upload)) is None, "of no use any more"

    assert _put(made["upload"], content[::-1]).status_code == 200  # an hour lasts long
    assert _fetched(ann, material_id, tmp_path) == content
    assert _complete(ann, material_id).json()["status"] == "READY"
    assert _fetched(ann, material_id, tmp_path) == content
    answer = ann.post({"scene": "rehearsal", "materials": [material_id]})
    ann.until(answer.json()["task_id"], "SUCCEEDED")
    assert _fetched(ann, material_id, tmp_path) == content


def test_an_upload_that_is_exchanged_between_two_completions_changes_nothing(
    ann: Caller, tmp_path: Path
) -> None:
    content = uuid4().bytes * 50_000
    made = _register(ann, _announcement(content))
    material_id = made["material_id"]
    _put(made["upload"], content)
    with ThreadPoolExecutor(5) as together:
        answers = [together.submit(_complete, ann, material_id) for _ in range(4)]
        together.submit(_put, made["upload"], bytes(len(content)))
    seen = {answer.result().status_code for answer in answers}
    assert seen <= {200, 409, 422}
    if _eventually(ann, f"/v1/materials/{material_id}")["status"] == "READY":
        assert _fetched(ann, material_id, tmp_path) == content
    else:  # the exchange came first: refused, and nothing else ever stands under the name
        assert 422 in seen


def test_a_completion_that_broke_off_before_its_word_is_done_again(
    ann: Caller, tmp_path: Path
) -> None:
    content = uuid4().bytes * 100
    made = _register(ann, _announcement(content))
    material_id = MaterialId(made["material_id"])
    upload, kept = upload_key(ann.user_id, material_id), material_key(ann.user_id, material_id)
    _put(made["upload"], content)
    sha256 = hashlib.sha256(content).hexdigest()

    async def copy_and_break_off(store: ObjectStore) -> StoredObject:
        return await store.copy(upload, kept, content_type="video/mp4", sha256=sha256)

    copied = _in_the_store(ann, copy_and_break_off)
    assert (copied.size, copied.sha256) == (len(content), sha256)
    assert _put(made["upload"], bytes(len(content))).status_code == 200
    assert _complete(ann, material_id).json()["status"] == "READY"
    assert _fetched(ann, material_id, tmp_path) == content
