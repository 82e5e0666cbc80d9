"""Hints on the real parts: what the store tells makes somebody look, and decides nothing."""

import asyncio
import hashlib
import json
import signal
import time
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from http import HTTPStatus
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import httpx
import pytest

from api.notifications import PATH
from cutlog.stack import PartName
from schema.commands import CompleteMaterial, DeleteResult
from schema.ids import MaterialId, UserId, command_id_of
from schema.objects import content_key, upload_key
from schema.settings import load, need
from schema.wires.objects import ObjectStore
from schema.words import ResultEnd
from tests.api import store_words as w
from tests.api.store_words import Message
from tests.api.system import PATIENCE_SECONDS, STORE_SECRET, Caller, System, material_commands
from tests.api.test_results import made, result_command, until
from tests.support.pictures import noise_png

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]
T = TypeVar("T")
REMOVED = "ObjectRemoved:Delete"


class Announced(NamedTuple):
    """A file whose upload is under way."""

    content: bytes
    material_id: MaterialId
    key: str
    upload_id: str
    urls: list[str]


def _announced(caller: Caller) -> Announced:
    """A picture in one part."""
    content = noise_png(32, 32)
    body = {
        "sha256": hashlib.sha256(content).hexdigest(),
        "size": len(content),
        "content_type": "image/png",
        "name": "Ferien.png",
    }
    made = caller.http.post("/v1/materials", json=body).json()
    material_id = MaterialId(made["material_id"])
    found = caller.http.get(f"/v1/materials/{material_id}/parts").json()
    return Announced(
        content,
        material_id,
        upload_key(caller.user_id, material_id),
        found["upload_id"],
        [part["url"] for part in found["missing"]],
    )


def _send(upload: Announced) -> None:
    for url in upload.urls:
        assert httpx.put(url, content=upload.content).status_code == 200


def _join(system: System, upload: Announced) -> None:
    """Somebody makes one object of the parts, and tells nobody."""

    async def join(store: ObjectStore) -> None:
        parts = await store.parts(upload.key, upload.upload_id)
        await store.complete_upload(upload.key, upload.upload_id, parts)

    _in_the_store(system, join)


def _in_the_store(system: System, act: Callable[[ObjectStore], Awaitable[T]]) -> T:
    async def acting() -> T:
        async with ObjectStore(need(load(system.installation.environ()), "objects")) as store:
            return await act(store)

    return asyncio.run(acting())


def _tell(system: System, message: Message) -> dict[str, Any]:
    """What the door says to a store."""
    answer = _post(system, message)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def _post(system: System, message: Message) -> httpx.Response:
    return httpx.post(
        f"{system.up.api_url}{PATH}",
        json=message,
        headers={"Authorization": f"Bearer {STORE_SECRET}"},
        timeout=60,
    )


def _taken(count: int, **ignored: int) -> dict[str, Any]:
    return {"taken": count, "ignored": ignored}


def _shown(caller: Caller, material_id: str) -> dict[str, Any]:
    found: dict[str, Any] = caller.http.get(f"/v1/materials/{material_id}").json()
    return found


def _waiting(caller: Caller, upload: Announced) -> str:
    """A task that goes on once the material is READY, which nothing else tells of by itself."""
    answer = caller.post({"scene": "genai", "materials": [upload.material_id]})
    assert answer.status_code == 202, answer.text
    return str(answer.json()["task_id"])


def test_an_upload_whose_caller_vanished_is_completed_because_the_store_tells_of_it(
    ann: Caller, system: System
) -> None:
    upload = _announced(ann)
    task_id = _waiting(ann, upload)
    _send(upload)
    _join(system, upload)
    assert _shown(ann, upload.material_id)["status"] == "REGISTERED"
    assert _tell(system, w.minio(upload.key)) == _taken(1)
    ann.until(task_id, "QUEUED")
    assert _shown(ann, upload.material_id)["status"] == "READY"
    seq = _shown(ann, upload.material_id)["seq"]
    for message in (w.minio(upload.key), w.sns(w.aws(upload.key)), w.seaweedfs(upload.key)):
        assert _tell(system, message) == _taken(0, settled=1)
    assert _shown(ann, upload.material_id)["seq"] == seq


def test_hints_that_come_at_once_with_their_caller_are_once(ann: Caller, system: System) -> None:
    upload = _announced(ann)
    _send(upload)
    _join(system, upload)

    def complete(_: int) -> int:
        return ann.http.post(f"/v1/materials/{upload.material_id}/complete").status_code

    with ThreadPoolExecutor(8) as together:
        hints = [together.submit(_tell, system, w.aws(upload.key)) for _ in range(6)]
        assert set(together.map(complete, range(2))) <= {200, 202}
        for one in hints:
            found = one.result()
            assert found["taken"] + found["ignored"].get("settled", 0) == 1
    while complete(0) == 202:
        pass
    found = _shown(ann, upload.material_id)
    assert (found["status"], found["seq"]) == ("READY", 3), "announced, looked at, found good"
    asked = asyncio.run(_completions(system, upload.material_id))
    # The upload sweep derives it alike: see tests/projections/test_uploads_sweep.py.
    assert {one.command_id for one in asked} == {command_id_of("complete", upload.material_id, "1")}


async def _completions(system: System, material_id: MaterialId) -> list[CompleteMaterial]:
    """What the log has of its being complete."""
    found = await material_commands(system, material_id, CompleteMaterial)
    return [one for one in found if one.material_id == material_id]


def test_the_log_is_told_once_of_what_a_store_tells_twice(ann: Caller, system: System) -> None:
    upload = _announced(ann)
    task_id = _waiting(ann, upload)
    _send(upload)
    system.up.send("processor-1", signal.SIGSTOP)  # nobody decides meanwhile
    try:
        assert _tell(system, w.aws(upload.key)) == _taken(1)
        assert _tell(system, w.ceph(upload.key)) == _taken(0, settled=1)
    finally:
        system.up.send("processor-1", signal.SIGCONT)
    ann.until(task_id, "QUEUED")
    assert len(asyncio.run(_completions(system, upload.material_id))) == 1


def test_a_hint_of_what_is_not_there_changes_nothing(
    ann: Caller, bob: Caller, system: System
) -> None:
    upload = _announced(ann)
    before = _shown(ann, upload.material_id)
    strange = upload_key(bob.user_id, upload.material_id)
    nobodys = upload_key(UserId("0123456789abcdefghjk000007"), MaterialId(f"{7:026d}000007"))
    told = [w.aws(key) for key in (upload.key, strange, nobodys, f"{upload.key}/x")]
    forged = {"Records": [record for one in told for record in one["Records"]]}
    assert _tell(system, forged) == _taken(0, incomplete=1, unknown=2, key=1)
    # Who joins something else there has not sent it.
    _in_the_store(system, lambda store: store.put(upload.key, b"x", content_type="image/png"))
    _in_the_store(system, lambda store: store.abort_upload(upload.key, upload.upload_id))
    assert _tell(system, w.aws(upload.key)) == _taken(0, incomplete=1)
    assert _shown(ann, upload.material_id) == before


def test_a_hint_before_the_last_part_is_looked_at_again_with_the_next_one(
    ann: Caller, system: System
) -> None:
    upload = _announced(ann)
    task_id = _waiting(ann, upload)
    assert _tell(system, w.aws(upload.key)) == _taken(0, incomplete=1)
    _send(upload)
    assert _tell(system, w.aws(upload.key)) == _taken(1)  # nobody has joined it: the prober does
    ann.until(task_id, "QUEUED")


def test_without_the_store_or_the_log_a_hint_is_to_be_told_again(
    ann: Caller, system: System
) -> None:
    upload = _announced(ann)
    task_id = _waiting(ann, upload)
    _send(upload)
    stack = system.installation.stack
    away: list[tuple[PartName, str]] = [("s3", "store_away"), ("kafka", "log_away")]
    for part, code in away:
        stack.pause(part)
        try:
            answer = _post(system, w.aws(upload.key))
        finally:
            stack.resume(part)
        assert (answer.status_code, answer.json()["code"]) == (503, code), answer.text
    end = time.monotonic() + PATIENCE_SECONDS
    while (
        answer := _post(system, w.aws(upload.key))
    ).status_code == HTTPStatus.SERVICE_UNAVAILABLE:
        assert time.monotonic() < end  # a broker that was away is asked again, as a store does it
    assert answer.status_code == HTTPStatus.OK, answer.text
    # What it was told while the log stood still may have been taken: it is once all the same.
    assert answer.json()["ignored"].keys() <= {"settled"}
    ann.until(task_id, "QUEUED")


def test_a_result_that_is_gone_is_alerted_once_and_one_that_is_there_is_not(
    ann: Caller, system: System
) -> None:
    task_id = made(ann)
    stored = _in_the_store(system, lambda store: store.sizes(f"results/{task_id}/"))
    (key,) = stored
    others = f"results/{task_id}/9/{key.rpartition('/')[2]}"
    assert _tell(system, w.aws(key)) == _taken(0, no_matter=1)
    assert _tell(system, w.aws(key, REMOVED)) == _taken(0, there=1)
    content = _in_the_store(system, lambda store: store.get(key))
    _in_the_store(system, lambda store: store.delete(key))
    assert _tell(system, w.aws(others, REMOVED)) == _taken(0, settled=1)
    assert _tell(system, w.aws(key, REMOVED)) == _taken(1)
    assert _tell(system, w.event_bridge(key, "Object Deleted")) == _taken(0, settled=1)
    assert _alerts(system, key) == [("result_missing", task_id)]
    # Somebody brought it back, and it is lost again.
    _in_the_store(system, lambda store: store.put(key, content, content_type="application/json"))
    assert _tell(system, w.aws(key, REMOVED)) == _taken(0, there=1)
    _in_the_store(system, lambda store: store.delete(key))
    assert _tell(system, w.aws(key, REMOVED)) == _taken(1)
    assert ann.get(task_id)["status"] == "SUCCEEDED"
    unknown = key.replace(task_id, f"{7:026d}{task_id[-6:]}")
    assert _tell(system, w.aws(unknown, REMOVED)) == _taken(0, unknown=1)


def test_a_result_with_a_tombstone_is_gone_as_it_should_be(ann: Caller, system: System) -> None:
    task_id = made(ann)
    stored = _in_the_store(system, lambda store: store.sizes(f"results/{task_id}/"))
    result_command(ann, DeleteResult, task_id, reason=ResultEnd.AGED, seq=0)
    until(ann, task_id, "result", "deleted")
    (key,) = stored
    _in_the_store(system, lambda store: store.delete(key))  # as the sweep does, if it has not yet
    assert _tell(system, w.aws(key, REMOVED)) == _taken(0, settled=1)
    assert _alerts(system, key) == []


def test_a_content_that_is_gone_is_alerted(ann: Caller, system: System) -> None:
    upload = _announced(ann)
    task_id = _waiting(ann, upload)
    _send(upload)
    _tell(system, w.aws(upload.key))
    ann.until(task_id, "QUEUED")
    sha256 = hashlib.sha256(upload.content).hexdigest()
    key = content_key(ann.tenant, ann.user_id, sha256)  # type: ignore[arg-type]
    assert _tell(system, w.aws(key, REMOVED)) == _taken(0, there=1)
    assert _tell(system, w.aws(key[:-64] + "0" * 64, REMOVED)) == _taken(0, unknown=1)
    _in_the_store(system, lambda store: store.delete(key))
    assert _tell(system, w.seaweedfs(key, "delete")) == _taken(1)
    assert _alerts(system, key) == [("content_missing", None)]


def _alerts(system: System, key: str) -> list[tuple[str, str | None]]:
    """What the api has told of an object, and of which task."""
    found = []
    for line in (system.installation.directory / "logs" / "api.log").read_text().splitlines():
        if line.startswith("{") and key in line:
            told = json.loads(line)
            if told["message"] == "alert":
                found.append((told["alert"], told.get("task_id")))
    return found


# --- the store's own word ------------------------------------------------------------------------


@pytest.fixture
def telling_store(system: System) -> Iterator[None]:
    """The local store tells the api of what happens in its buckets, as its manual says."""
    stack = system.installation.stack
    path: Path = stack.directory / "s3" / ".seaweedfs" / "notification.toml"
    path.parent.mkdir(exist_ok=True)
    path.write_text(
        "[notification.webhook]\n"
        "enabled = true\n"
        f'endpoint = "{system.up.api_url}{PATH}"\n'
        f'bearer_token = "{STORE_SECRET}"\n'
        'path_prefixes = ["/buckets/cutlog/uploads/", "/buckets/cutlog/results/"]\n'
    )
    stack.restart("s3")
    yield
    path.unlink()
    stack.restart("s3")


@pytest.mark.usefixtures("telling_store")
def test_the_local_store_itself_tells_of_an_upload(ann: Caller, system: System) -> None:
    upload = _announced(ann)
    task_id = _waiting(ann, upload)
    before = _counted(ann, "completed")
    _send(upload)
    _join(system, upload)
    ann.until(task_id, "QUEUED")
    assert _counted(ann, "completed") == before + 1


def _counted(caller: Caller, outcome: str) -> float:
    """How many hints led to this."""
    name = f'cutlog_api_store_hints_total{{outcome="{outcome}"}}'
    lines = caller.http.get("/metrics").text.splitlines()
    return sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith(name))
