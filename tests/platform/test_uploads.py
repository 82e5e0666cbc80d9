"""Uploads over bad lines, after kills, twice at once, by proof: on a real store behind a real line.

The store's public address is a line that counts what is sent over it, and that can be cut or held.
"""

import hashlib
import random
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar
from urllib.parse import urlsplit
from uuid import uuid4

import httpx
import msgspec
import pytest

from cutlog.client import describe
from cutlog.installation import ROOT
from cutlog.uploading import LINES_MAX, PART_BYTES, Plan, Upload, UploadBrokenError, UploadLostError
from tests.support.bad_lines import Shop, open_shop
from tests.support.pictures import noise_png

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]
T = TypeVar("T")
MEGABYTE: Final = 1_000_000
LARGE: Final = (5_000, 4_000)
"""Of a picture of 60 MB."""
MEDIUM: Final = (2_500, 2_000)
"""Of a picture of 15 MB: three parts."""
CUTS: Final = 20
HEAD_BYTES_MAX: Final = 2_000
"""Of one request: its address is signed."""


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    with open_shop(tmp_path_factory.mktemp("uploads")) as found:
        yield found


@pytest.fixture
def sub() -> str:
    return f"ann {uuid4().hex}"


def picture(directory: Path, size: tuple[int, int], name: str = "noise.png") -> Path:
    path = directory / name
    path.write_bytes(noise_png(*size))
    return path


def test_an_upload_over_a_line_that_is_cut_again_and_again_sends_little_again(
    shop: Shop, sub: str, tmp_path: Path
) -> None:
    file = picture(tmp_path, LARGE)
    size, line = file.stat().st_size, shop.line
    before, cuts, requests, lost = line.sent, len(line.lost_by_cuts), line.requests, line.lost
    shop.line.cut_at(*sorted(random.Random(7).sample(range(size), CUTS)))
    through: list[int] = []
    with shop.client(sub) as client:
        material_id = client.upload(file, through.append)
        found = client.await_material(material_id)
    assert found["status"] == "READY", found
    assert found["sha256"] == hashlib.sha256(file.read_bytes()).hexdigest()
    assert sum(through) == size
    by_cuts = line.lost_by_cuts[cuts:]
    assert len(by_cuts) == CUTS
    assert max(by_cuts) <= LINES_MAX * (PART_BYTES + HEAD_BYTES_MAX)
    sent, heads = line.sent - before, (line.requests - requests) * HEAD_BYTES_MAX
    print(f"\n{(sent - size) / size:.1%} was sent again, heads included")
    # What was on its way and nothing else.
    assert size < sent <= size + (line.lost - lost) + heads


def test_a_swarm_of_cuts_does_not_end_an_upload(
    shop: Shop, sub: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cutlog.uploading._PAUSE_SECONDS_MAX", 0.2)
    file = picture(tmp_path, MEDIUM)
    # Each ends what goes on all lines: more broken parts in a row than anybody would count.
    shop.line.cut_at(*range(MEGABYTE, MEGABYTE + 40 * 1_000, 1_000))
    with shop.client(sub) as client:
        assert client.await_material(client.upload(file))["status"] == "READY"


def test_a_line_that_is_dead_ends_the_upload_with_a_word(
    shop: Shop, sub: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cutlog.uploading._PATIENCE_SECONDS", 0.5)
    file = picture(tmp_path, MEDIUM)
    shop.line.cut_at(*range(0, 1_000_000, 1_000))  # far more than there is patience for
    through: list[int] = []
    with shop.client(sub) as client, pytest.raises(UploadBrokenError, match="goes on where it was"):
        client.upload(file, through.append)
    assert sum(through) == 0
    shop.line.cut_at()
    with shop.client(sub) as client:
        assert client.await_material(client.upload(file))["status"] == "READY"


class Announced(NamedTuple):
    """A file whose parts may be sent."""

    material_id: str
    plan: Plan
    ask: Callable[..., dict[str, Any]]


@pytest.fixture
def announced(shop: Shop, sub: str, tmp_path: Path) -> Iterator[Announced]:
    token = shop.installation.token(sub, tier="load")
    file = picture(tmp_path, MEDIUM)
    with httpx.Client(
        base_url=shop.up.api_url, headers={"Authorization": f"Bearer {token}"}
    ) as http:

        def ask(method: str, path: str, **options: Any) -> dict[str, Any]:  # noqa: ANN401
            answer = http.request(method, path, **options)
            assert answer.is_success, answer.text
            found: dict[str, Any] = answer.json()
            return found

        made = ask("POST", "/v1/materials", json=describe(file))
        yield Announced(made["material_id"], msgspec.convert(made["upload"], Plan), ask)


def test_addresses_that_are_not_good_any_more_are_asked_for_anew(
    announced: Announced, tmp_path: Path
) -> None:
    plan = announced.plan
    old = [msgspec.structs.replace(part, url=f"{part.url[:-4]}0000") for part in plan.parts]
    plan = msgspec.structs.replace(plan, parts=old)
    through: list[int] = []
    with httpx.Client() as store:
        Upload(
            announced.ask,
            store,
            tmp_path / "noise.png",
            announced.material_id,
            tell=through.append,
        ).run(plan)
    found = announced.ask("GET", f"/v1/materials/{announced.material_id}/parts")
    assert [part["number"] for part in found["stored"]] == [1, 2, 3]
    assert sum(through) == (tmp_path / "noise.png").stat().st_size


def test_an_upload_that_the_store_forgets_on_the_way_is_begun_anew(
    shop: Shop, sub: str, announced: Announced, tmp_path: Path
) -> None:
    at = f"/v1/materials/{announced.material_id}"
    lost = announced.ask("GET", f"{at}/parts")["upload_id"]
    key = urlsplit(announced.plan.parts[0].url).path.partition("/cutlog/")[2]
    shop.in_the_store(lambda store: store.abort_upload(key, lost))
    file = tmp_path / "noise.png"
    with httpx.Client() as store, pytest.raises(UploadLostError):
        Upload(announced.ask, store, file, announced.material_id, tell=print).run(announced.plan)
    with shop.client(sub) as client:
        assert client.upload(file) == announced.material_id
        assert client.await_material(announced.material_id)["status"] == "READY"


def test_an_upload_that_was_killed_goes_on_where_it_was(
    shop: Shop, sub: str, tmp_path: Path
) -> None:
    file = picture(tmp_path, LARGE)
    size, before = file.stat().st_size, shop.line.sent
    asked = [sys.executable, "-m", "cutlog", "materials", "upload", str(file)]
    asked += ["-d", str(shop.installation.directory), "--as", sub, "--tier", "load"]
    shop.line.hold_at(size // 2)
    with subprocess.Popen(asked, cwd=ROOT, stdout=subprocess.PIPE) as first:
        assert shop.line.held.wait(60)
        first.kill()
    shop.line.release()
    again = subprocess.run(asked, cwd=ROOT, capture_output=True, text=True, check=False)
    assert again.returncode == 0, again.stderr + again.stdout
    assert "READY" in again.stdout
    # What was on its way when it was killed is lost: at most a part a line.
    assert size < shop.line.sent - before < size + LINES_MAX * PART_BYTES + MEGABYTE


def test_two_at_once_with_the_same_content_store_one_object(shop: Shop, tmp_path: Path) -> None:
    file, tenant = picture(tmp_path, MEDIUM), f"acme{uuid4().hex[:8]}"
    subs = [f"{name} {uuid4().hex}" for name in ("ann", "bob")]

    def upload(sub: str) -> str:
        with shop.client(sub, tenant) as client:
            found = client.await_material(client.upload(file))
            assert found["status"] == "READY", found
            return str(found["material_id"])

    with ThreadPoolExecutor(2) as together:
        ids = set(together.map(upload, subs))
    assert len(ids) == 2
    key = shop.content_key(subs[0], tenant, file)
    assert key == shop.content_key(subs[1], tenant, file)
    folder = key.rpartition("/")[0]
    stored = shop.in_the_store(lambda store: store.sizes(f"{folder}/"))
    assert stored == {key: file.stat().st_size}


def test_the_same_caller_twice_at_once_uploads_one_material(
    shop: Shop, sub: str, tmp_path: Path
) -> None:
    file = picture(tmp_path, MEDIUM)

    def upload(_: int) -> str:
        with shop.client(sub) as client:
            return str(client.await_material(client.upload(file))["status"])

    with ThreadPoolExecutor(2) as together:
        assert list(together.map(upload, range(2))) == ["READY", "READY"]
    with shop.client(sub) as client:
        assert len(list(client.materials())) == 1


def test_who_proves_to_hold_a_file_that_is_known_need_not_send_it(
    shop: Shop, tmp_path: Path
) -> None:
    file, tenant = picture(tmp_path, MEDIUM), f"acme{uuid4().hex[:8]}"
    with shop.client("ann", tenant) as ann:
        ann.await_material(ann.upload(file))
    before = shop.line.sent
    with shop.client("bob", tenant) as bob:
        material_id = bob.upload(file)
        found = bob.await_material(material_id)
        assert (found["status"], found["facts"]["kind"]) == ("READY", "picture")
        task = bob.submit("rehearsal", materials=[material_id], parameters={"no_op": True})
        assert [event.name for event in bob.watch(task.task_id)][-1] == "task.succeeded.v1"
    assert shop.line.sent == before


def test_a_wrong_proof_gets_an_ordinary_plan(shop: Shop, tmp_path: Path) -> None:
    file, tenant = picture(tmp_path, MEDIUM), f"acme{uuid4().hex[:8]}"
    with shop.client("ann", tenant) as ann:
        ann.await_material(ann.upload(file))
    token = shop.installation.token("bob", tenant=tenant, tier="load")
    with httpx.Client(
        base_url=shop.up.api_url, headers={"Authorization": f"Bearer {token}"}
    ) as http:
        made = http.post("/v1/materials", json=describe(file)).json()
        assert made["upload"] is None
        assert made["challenge"]["length"] == 1 << 20
        # He knows the digest, and the file has that one: it proves nothing.
        guess = {"sha256": describe(file)["sha256"]}
        answer = http.post(f"/v1/materials/{made['material_id']}/proof", json=guess)
        assert answer.status_code == 200, answer.text
        planned = answer.json()
        assert (planned["status"], planned["challenge"]) == ("REGISTERED", None)
        assert [part["number"] for part in planned["upload"]["parts"]] == [1, 2, 3]


def test_the_same_digest_in_another_tenant_gets_no_challenge(shop: Shop, tmp_path: Path) -> None:
    file = picture(tmp_path, (64, 64))
    with shop.client("ann", f"acme{uuid4().hex[:8]}") as ann:
        ann.await_material(ann.upload(file))
    for tenant in ("", f"other{uuid4().hex[:8]}"):
        token = shop.installation.token("ann", tenant=tenant, tier="load")
        headers = {"Authorization": f"Bearer {token}"}
        answer = httpx.post(f"{shop.up.api_url}/v1/materials", json=describe(file), headers=headers)
        made = answer.json()
        assert made["status"] == "REGISTERED"
        assert (made["challenge"], len(made["upload"]["parts"])) == (None, 1)
