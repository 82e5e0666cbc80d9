"""Materials as a caller sees them: announced, sent in parts, completed, proved, listed."""

import asyncio
import hashlib
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar
from uuid import uuid4

import httpx
import pytest

from api.proofs import WRONG_MAX, Proof, Proofs, answer_of
from api.uploads import PART_BYTES_MIN, part_bytes_of
from schema.commands import TouchUpload
from schema.ids import MaterialId
from schema.objects import content_key, pieces_key, upload_key
from schema.settings import load, need
from schema.wires.objects import PARTS_MAX, ObjectMissingError, ObjectStore
from tests.api.system import Caller, System, material_commands
from tests.support.pictures import noise_png

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]
T = TypeVar("T")


def _small() -> bytes:
    return noise_png(32, 32)


def _large() -> bytes:
    """Three parts that nobody else has."""
    return noise_png(2_500, 1_500)


def _announcement(content: bytes, **changes: Any) -> dict[str, Any]:  # noqa: ANN401
    return {
        "sha256": hashlib.sha256(content).hexdigest(),
        "size": len(content),
        "content_type": "image/png",
        "name": "Ännas Ferien.png",
        **changes,
    }


def _register(caller: Caller, announcement: dict[str, Any]) -> dict[str, Any]:
    answer = caller.http.post("/v1/materials", json=announcement)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def _send(
    parts: Sequence[dict[str, Any]], content: bytes, numbers: Sequence[int] | None = None
) -> list[int]:
    """PUT these parts (all that are listed); the statuses."""
    return [
        httpx.put(
            part["url"],
            content=content[
                (part["number"] - 1) * PART_BYTES_MIN : (part["number"] - 1) * PART_BYTES_MIN
                + part["size"]
            ],
        ).status_code
        for part in parts
        if numbers is None or part["number"] in numbers
    ]


def _parts(caller: Caller, material_id: str, **query: Any) -> dict[str, Any]:  # noqa: ANN401
    answer = caller.http.get(f"/v1/materials/{material_id}/parts", params=query)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def _complete(caller: Caller, material_id: str) -> httpx.Response:
    """Complete it, as often as it takes until somebody has looked at it."""
    while True:
        answer = caller.http.post(f"/v1/materials/{material_id}/complete")
        if answer.status_code != 202:
            return answer
        assert answer.headers["retry-after"] == "1"


def _uploaded(caller: Caller, content: bytes, **changes: Any) -> str:  # noqa: ANN401
    made = _register(caller, _announcement(content, **changes))
    assert set(_send(made["upload"]["parts"], content)) == {200}
    done = _complete(caller, made["material_id"])
    assert done.status_code == 200, done.text
    return str(made["material_id"])


def _in_the_store(caller: Caller, act: Callable[[ObjectStore], Awaitable[T]]) -> T:
    async def acting() -> T:
        settings = need(load(caller.system.installation.environ()), "objects")
        async with ObjectStore(settings) as store:
            return await act(store)

    return asyncio.run(acting())


# --- the way in ----------------------------------------------------------------------------------


def test_a_file_is_announced_sent_completed_and_then_known_at_once(ann: Caller) -> None:
    content = _small()
    made = _register(ann, _announcement(content))
    material_id = made["material_id"]
    assert (made["status"], made["challenge"]) == ("REGISTERED", None)
    upload = made["upload"]
    assert (upload["part_bytes"], upload["parts_count"]) == (PART_BYTES_MIN, 1)
    assert [part["size"] for part in upload["parts"]] == [len(content)]
    again = _register(ann, _announcement(content))
    assert (again["material_id"], again["upload"]["stored_bytes"]) == (material_id, 0)
    assert _send(upload["parts"], content) == [200]
    assert _register(ann, _announcement(content))["upload"]["stored_bytes"] == len(content)
    done = _complete(ann, material_id)
    assert done.status_code == 200, done.text
    assert (done.json()["status"], done.json()["size"]) == ("READY", len(content))
    facts = done.json()["facts"]
    assert (facts["kind"], facts["width"], facts["height"]) == ("picture", 32, 32)
    instant = _register(ann, _announcement(content))
    assert instant == {
        "material_id": material_id,
        "status": "READY",
        "upload": None,
        "challenge": None,
    }


def test_a_part_that_is_missing_is_named_and_may_be_sent_later(ann: Caller) -> None:
    content = _large()
    made = _register(ann, _announcement(content))
    material_id, parts = made["material_id"], made["upload"]["parts"]
    assert [part["number"] for part in parts] == [1, 2, 3]
    assert _send(parts, content, [1, 3]) == [200, 200]
    answer = ann.http.post(f"/v1/materials/{material_id}/complete")
    assert (answer.status_code, answer.json()["code"]) == (409, "parts_missing")
    assert (answer.json()["missing"], answer.json()["missing_count"]) == ([2], 1)
    found = _parts(ann, material_id)
    assert [part["number"] for part in found["stored"]] == [1, 3]
    assert [part["number"] for part in found["missing"]] == [2]
    assert _send(found["missing"], content) == [200]
    assert _complete(ann, material_id).json()["status"] == "READY"


def test_addresses_are_handed_out_as_many_as_are_asked_for(ann: Caller) -> None:
    content = _large()
    material_id = _register(ann, _announcement(content))["material_id"]
    found = _parts(ann, material_id, limit=1)
    assert ([part["number"] for part in found["missing"]], found["missing_count"]) == ([1], 3)
    found = _parts(ann, material_id, missing=False)
    assert (found["missing"], found["missing_count"], found["parts_count"]) == ([], 3, 3)


def test_to_complete_twice_or_at_once_is_to_complete_once(ann: Caller) -> None:
    content = _small()
    made = _register(ann, _announcement(content))
    _send(made["upload"]["parts"], content)
    with ThreadPoolExecutor(4) as together:
        told = [together.submit(_complete, ann, made["material_id"]) for _ in range(4)]
        answers = [one.result() for one in told]
    assert {answer.status_code for answer in answers} == {200}
    seqs = {answer.json()["seq"] for answer in answers}
    later = _complete(ann, made["material_id"])
    assert (later.status_code, {later.json()["seq"]}) == (200, seqs)


def test_an_address_takes_the_length_of_its_part_and_nothing_else(ann: Caller) -> None:
    content = _small()
    made = _register(ann, _announcement(content))
    url = made["upload"]["parts"][0]["url"]
    for wrong in (content + b"x", content[:-1]):
        assert httpx.put(url, content=wrong).status_code == 403
    assert _parts(ann, made["material_id"])["stored"] == []


def test_a_file_that_is_known_is_the_same_for_ever_whoever_still_has_an_address(
    ann: Caller,
) -> None:
    content = _small()
    made = _register(ann, _announcement(content))
    _send(made["upload"]["parts"], content)
    assert _complete(ann, made["material_id"]).status_code == 200
    assert _send(made["upload"]["parts"], content[::-1]) == [404]
    sha256 = hashlib.sha256(content).hexdigest()
    key = content_key(ann.tenant, ann.user_id, sha256)  # type: ignore[arg-type]
    assert _in_the_store(ann, lambda store: store.get(key)) == content
    upload = upload_key(ann.user_id, MaterialId(made["material_id"]))
    assert _in_the_store(ann, lambda store: store.head(upload)) is None, "of no use any more"


def test_an_upload_that_the_store_lost_is_begun_anew(ann: Caller) -> None:
    content = _large()
    made = _register(ann, _announcement(content))
    material_id = made["material_id"]
    _send(made["upload"]["parts"], content)
    lost = _parts(ann, material_id)["upload_id"]
    key = upload_key(ann.user_id, MaterialId(material_id))
    _in_the_store(ann, lambda store: store.abort_upload(key, lost))
    for answer in (
        ann.http.get(f"/v1/materials/{material_id}/parts"),
        ann.http.post(f"/v1/materials/{material_id}/complete"),
    ):
        assert (answer.status_code, answer.json()["code"]) == (409, "upload_lost")
    again = _register(ann, _announcement(content))
    assert (again["material_id"], again["upload"]["stored_bytes"]) == (material_id, 0)
    assert _parts(ann, material_id)["upload_id"] != lost
    _send(again["upload"]["parts"], content)
    assert _complete(ann, material_id).json()["status"] == "READY"


def test_to_ask_for_parts_tells_once_a_minute_that_the_upload_goes_on(ann: Caller) -> None:
    material_id = _register(ann, _announcement(_large()))["material_id"]
    for _ in range(3):
        _parts(ann, material_id)
    touches = asyncio.run(_touches(ann.system, ann.user_id, material_id))
    assert len(touches) == 1
    assert {(touch.user_id, touch.tenant_id) for touch in touches} == {(ann.user_id, "")}


async def _touches(system: System, user_id: str, material_id: str) -> list[TouchUpload]:
    """What the log has of this upload's going on."""
    found = await material_commands(system, user_id, TouchUpload)
    return [touch for touch in found if touch.material_id == material_id]


def test_without_the_store_an_upload_is_put_off_and_goes_on_afterwards(ann: Caller) -> None:
    content = _large()
    made = _register(ann, _announcement(content))
    at = f"/v1/materials/{made['material_id']}"
    stack = ann.system.installation.stack
    stack.kill("s3")
    try:
        for answer in (
            ann.http.post("/v1/materials", json=_announcement(_small())),
            ann.http.post("/v1/materials", json=_announcement(content)),
            ann.http.get(f"{at}/parts"),
            ann.http.get(f"{at}/parts/1/pieces"),
            ann.http.post(f"{at}/parts/1/join"),
            ann.http.post(f"{at}/complete"),
        ):
            assert (answer.status_code, answer.json()["code"]) == (503, "store_away")
            assert int(answer.headers["retry-after"]) > 0
    finally:
        stack.start()
    assert _send(_parts(ann, made["material_id"])["missing"], content) == [200] * 3
    assert _complete(ann, made["material_id"]).json()["status"] == "READY"


def test_a_store_that_says_nothing_holds_no_join_of_pieces_up(ann: Caller) -> None:
    """More callers than parts that are made at once, and all have their answer."""
    content = _large()
    made = _register(ann, _announcement(content))
    at = f"/v1/materials/{made['material_id']}/parts/2"
    _send(made["upload"]["parts"], content, [1, 3])
    _send_pieces(ann.http.get(f"{at}/pieces").json()["missing"], content)
    stack = ann.system.installation.stack
    stack.pause("s3")
    try:
        with ThreadPoolExecutor(4) as callers:
            asked = [callers.submit(ann.http.post, f"{at}/join") for _ in range(4)]
        told = [(one.result().status_code, one.result().json()["code"]) for one in asked]
    finally:
        stack.resume("s3")
    assert told == [(503, "store_away")] * 4
    assert ann.http.post(f"{at}/join").status_code == 200
    assert _complete(ann, made["material_id"]).json()["status"] == "READY"


# --- pieces --------------------------------------------------------------------------------------


def test_a_part_may_come_in_pieces(ann: Caller) -> None:
    content = _large()
    made = _register(ann, _announcement(content))
    material_id = made["material_id"]
    _send(made["upload"]["parts"], content, [1, 3])
    at = f"/v1/materials/{material_id}/parts/2"
    found = ann.http.get(f"{at}/pieces").json()
    assert (found["stored_bytes"], len(found["missing"])) == (0, 20)
    assert sum(piece["size"] for piece in found["missing"]) == PART_BYTES_MIN
    _send_pieces(found["missing"][1:], content)
    early = ann.http.post(f"{at}/join")
    assert (early.status_code, early.json()["code"]) == (409, "pieces_missing")
    rest = ann.http.get(f"{at}/pieces").json()
    assert [piece["offset"] for piece in rest["missing"]] == [0]
    _send_pieces(rest["missing"], content)
    joined = ann.http.post(f"{at}/join")
    assert (joined.status_code, joined.json()["size"]) == (200, PART_BYTES_MIN), joined.text
    assert ann.http.post(f"{at}/join").json() == joined.json()
    prefix = pieces_key(
        ann.user_id, MaterialId(material_id), _parts(ann, material_id)["upload_id"], 2
    )
    assert _in_the_store(ann, lambda store: store.sizes(prefix)) == {}
    assert _complete(ann, material_id).json()["status"] == "READY"


def _send_pieces(pieces: Sequence[dict[str, Any]], content: bytes) -> None:
    """PUT these pieces of the second part."""
    for piece in pieces:
        begin = PART_BYTES_MIN + piece["offset"]
        stored = httpx.put(
            piece["url"],
            content=content[begin : begin + piece["size"]],
            headers={"Content-Type": "application/octet-stream"},
        )
        assert stored.status_code == 200, stored.text


@pytest.mark.parametrize(("number", "status"), [(2, 404), (0, 422), (10_001, 422), ("x", 422)])
def test_a_part_that_the_upload_has_not_is_refused(
    ann: Caller, number: object, status: int
) -> None:
    made = _register(ann, _announcement(_small()))
    at = f"/v1/materials/{made['material_id']}/parts/{number}"
    assert ann.http.get(f"{at}/pieces").status_code == status
    assert ann.http.post(f"{at}/join").status_code == status


# --- what it is ----------------------------------------------------------------------------------


def test_other_bytes_than_were_announced_are_refused_with_advice(ann: Caller) -> None:
    content = _small()
    made = _register(ann, _announcement(content))
    _send(made["upload"]["parts"], bytes(len(content)))
    answer = _complete(ann, made["material_id"])
    assert (answer.status_code, answer.json()["code"]) == (422, "material_refused")
    assert answer.json()["reason"] == "digest_mismatch"
    shown = ann.http.get(f"/v1/materials/{made['material_id']}").json()
    assert (shown["status"], shown["reason"]) == ("REFUSED", "digest_mismatch")
    assert shown["advice"] == answer.json()["advice"]
    over = ann.http.get(f"/v1/materials/{made['material_id']}/parts")
    assert (over.status_code, over.json()["code"]) == (409, "upload_over")
    assert _uploaded(ann, content) == made["material_id"]


def test_what_is_no_film_is_refused_with_advice(ann: Caller) -> None:
    content = b"a text that is called a film\n" * 100 + uuid4().bytes
    made = _register(ann, _announcement(content, content_type="video/mp4", name="film.mp4"))
    _send(made["upload"]["parts"], content)
    answer = _complete(ann, made["material_id"])
    assert (answer.status_code, answer.json()["reason"]) == (422, "not_media"), answer.text
    assert answer.json()["advice"]


def test_a_task_waits_for_its_material_and_goes_on_when_it_is_there(ann: Caller) -> None:
    content = _small()
    made = _register(ann, _announcement(content))
    answer = ann.post({"scene": "genai", "materials": [made["material_id"]]})
    task_id = answer.json()["task_id"]
    assert ann.get(task_id, 1)["status"] == "CREATED"
    _send(made["upload"]["parts"], content)
    assert _complete(ann, made["material_id"]).status_code == 200
    assert ann.until(task_id, "QUEUED")["materials"] == [made["material_id"]]


def test_a_task_whose_material_is_refused_is_canceled_by_the_system(ann: Caller) -> None:
    content = _small()
    made = _register(ann, _announcement(content))
    answer = ann.post({"scene": "genai", "materials": [made["material_id"]]})
    _send(made["upload"]["parts"], bytes(len(content)))
    assert _complete(ann, made["material_id"]).status_code == 422
    task = ann.until(answer.json()["task_id"], "CANCELED")
    assert (task["cause"], task["reason"]) == ("material_refused", "digest_mismatch")


# --- proofs --------------------------------------------------------------------------------------


def test_the_same_content_under_another_name_is_proved_and_not_sent(ann: Caller) -> None:
    content = _large()
    _uploaded(ann, content)
    made = _register(ann, _announcement(content, name="other.png"))
    asked = made["challenge"]
    assert (made["status"], made["upload"]) == ("REGISTERED", None)
    told = answer_of(asked["nonce"], content[asked["offset"] : asked["offset"] + asked["length"]])
    at = f"/v1/materials/{made['material_id']}/proof"
    proved = ann.http.post(at, json={"sha256": told})
    assert proved.status_code == 200, proved.text
    assert (proved.json()["status"], proved.json()["upload"]) == ("READY", None)
    assert ann.http.post(at, json={"sha256": told}).json()["status"] == "READY"


def test_who_cannot_prove_it_sends_it_and_meets_the_one_object(ann: Caller) -> None:
    content = _small()
    _uploaded(ann, content)
    made = _register(ann, _announcement(content, name="other.png"))
    at = f"/v1/materials/{made['material_id']}"
    wrong = ann.http.post(f"{at}/proof", json={"sha256": "0" * 64}).json()
    assert (wrong["status"], wrong["challenge"]) == ("REGISTERED", None)
    _send(wrong["upload"]["parts"], content)
    assert _complete(ann, made["material_id"]).json()["status"] == "READY"


def test_who_answers_wrong_again_and_again_is_asked_nothing_more_and_sends_it(
    ann: Caller,
) -> None:
    content = _small()
    _uploaded(ann, content)
    made = _register(ann, _announcement(content, name="other.png"))
    asked = made["challenge"]
    at = f"/v1/materials/{made['material_id']}/proof"
    before = _proofs(ann)
    for _ in range(WRONG_MAX):
        assert ann.http.post(at, json={"sha256": "0" * 64}).json()["status"] == "REGISTERED"
    right = answer_of(asked["nonce"], content[asked["offset"] : asked["offset"] + asked["length"]])
    late = ann.http.post(at, json={"sha256": right}).json()
    assert (late["status"], len(late["upload"]["parts"])) == ("REGISTERED", 1)
    # It is the content that he is asked nothing more of, whatever he calls it.
    third = _register(ann, _announcement(content, name="third.png"))
    assert (third["challenge"], len(third["upload"]["parts"])) == (None, 1)
    after = _proofs(ann)
    assert after["wrong"] - before["wrong"] == WRONG_MAX
    assert after["spent"] - before["spent"] == 1
    _send(late["upload"]["parts"], content)
    assert _complete(ann, made["material_id"]).json()["status"] == "READY"


def _proofs(caller: Caller) -> dict[str, float]:
    """Answers to challenges so far, by what they were."""
    found = dict.fromkeys(Proof, 0.0)
    for line in caller.http.get("/metrics").text.splitlines():
        if line.startswith("cutlog_api_proofs_total{"):
            found[Proof(line.split('"')[1])] = float(line.rpartition(" ")[2])
    return {proof.value: count for proof, count in found.items()}


def test_wrong_answers_are_forgotten_in_time_and_those_that_nobody_looked_at_are_none(
    ann: Caller,
) -> None:
    content, now = _small(), 0.0
    _uploaded(ann, content)
    key = content_key(ann.tenant, ann.user_id, hashlib.sha256(content).hexdigest())  # type: ignore[arg-type]
    proofs = Proofs("a secret", lambda: now)

    def answer(told: str, of: str = key) -> Proof:
        return _in_the_store(
            ann, lambda store: proofs.check(store, of, ann.user_id, len(content), told)
        )

    def right() -> str:
        asked = proofs.challenge(ann.user_id, key, len(content))
        return answer_of(asked.nonce, content)

    for _ in range(WRONG_MAX):
        with pytest.raises(ObjectMissingError):
            answer("0" * 64, f"{key}0")
    assert proofs.may_try(ann.user_id, f"{key}0")
    told = [answer("0" * 64) for _ in range(WRONG_MAX - 1)]
    assert (told, answer(right())) == ([Proof.WRONG] * (WRONG_MAX - 1), Proof.RIGHT)
    told = [answer("0" * 64) for _ in range(WRONG_MAX)]  # from the first again
    assert (told, answer(right())) == ([Proof.WRONG] * WRONG_MAX, Proof.SPENT)
    assert not proofs.may_try(ann.user_id, key)
    now = 3_600.0
    assert proofs.may_try(ann.user_id, key)
    assert answer(right()) is Proof.RIGHT


def test_what_is_known_as_a_picture_is_not_taken_for_a_film(ann: Caller) -> None:
    content = _small()
    _uploaded(ann, content)
    film = _announcement(content, name="film.mp4", content_type="video/mp4")
    made = _register(ann, film)
    assert made["challenge"] is None
    _send(made["upload"]["parts"], content)
    assert _complete(ann, made["material_id"]).json()["reason"] == "other_kind"


def test_a_proof_for_what_nobody_has_gets_a_plan(ann: Caller, bob: Caller) -> None:
    content = _small()
    _uploaded(bob, content)
    made = _register(ann, _announcement(content))
    assert made["challenge"] is None
    told = hashlib.sha256(content).hexdigest()
    answer = ann.http.post(f"/v1/materials/{made['material_id']}/proof", json={"sha256": told})
    assert (answer.status_code, len(answer.json()["upload"]["parts"])) == (200, 1)


# --- whose, and what is let in ---------------------------------------------------------------


def test_a_material_is_its_owners_only(ann: Caller, bob: Caller) -> None:
    material_id = _uploaded(ann, _small())
    shown = ann.http.get(f"/v1/materials/{material_id}").json()
    assert shown["name"] == "Ännas Ferien.png"
    neighbours = material_id[:-6] + bob.user_id[-6:]
    for one in (material_id, neighbours):
        at = f"/v1/materials/{one}"
        for answer in (
            bob.http.get(at),
            bob.http.get(f"{at}/parts"),
            bob.http.get(f"{at}/parts/1/pieces"),
            bob.http.post(f"{at}/parts/1/join"),
            bob.http.post(f"{at}/proof", json={"sha256": "0" * 64}),
            bob.http.post(f"{at}/complete"),
        ):
            assert (answer.status_code, answer.json()["code"]) == (404, "material_unknown")
    assert bob.http.get("/v1/materials").json()["materials"] == []


def test_materials_are_listed_newest_first_page_after_page(ann: Caller) -> None:
    ids = [_register(ann, _announcement(_small()))["material_id"] for _ in range(3)]
    first = ann.http.get("/v1/materials", params={"limit": 2}).json()
    assert [one["material_id"] for one in first["materials"]] == [ids[2], ids[1]]
    second = ann.http.get(
        "/v1/materials", params={"limit": 2, "cursor": first["next_cursor"]}
    ).json()
    assert [one["material_id"] for one in second["materials"]] == [ids[0]]
    assert second["next_cursor"] is None
    ready = ann.http.get("/v1/materials", params={"status": "READY"}).json()
    assert ready["materials"] == []


@pytest.mark.parametrize(
    "name",
    [
        "",
        " .. ",
        ".",
        "../../etc/passwd",
        "C:\\film.mp4",
        "film\n.mp4",
        "film\x7f.mp4",
        "4pm.\u202eknab",
        "a" * 256,
    ],
)
def test_a_hostile_name_is_refused(ann: Caller, name: str) -> None:
    answer = ann.http.post("/v1/materials", json=_announcement(b"x", name=name))
    assert (answer.status_code, answer.json()["code"]) == (422, "body_invalid"), answer.text


@pytest.mark.parametrize(
    "changes",
    [
        {"size": 0},
        {"size": -1},
        {"size": 1.5},
        {"size": True},
        {"size": "12"},
        {"size": 500_000_000_001},
        {"size": 10**30},
        {"sha256": "f" * 63},
        {"sha256": "F" * 64},
        {"sha256": "f" * 64 + "\n"},
        {"content_type": "video/mp4; charset=x"},
        {"content_type": "video/mp4\r\nx: y"},
        {"seconds": 0},
        {"seconds": 1.5},
        {"part_bytes": 1},
    ],
)
def test_a_hostile_announcement_is_refused(ann: Caller, changes: dict[str, Any]) -> None:
    answer = ann.http.post("/v1/materials", json=_announcement(b"x", **changes))
    assert answer.status_code in {400, 422}, answer.text


def test_a_file_beyond_the_tier_is_refused_before_it_is_sent(system: System) -> None:
    caller = system.caller(tier="free")
    answer = caller.http.post("/v1/materials", json=_announcement(b"x", size=200_000_001))
    assert (answer.status_code, answer.json()["code"]) == (413, "material_too_large")
    answer = caller.http.post("/v1/materials", json=_announcement(b"x", seconds=86_400))
    assert (answer.status_code, answer.json()["code"]) == (413, "material_too_long")


@pytest.mark.parametrize("size", [1, PART_BYTES_MIN, 50_000_000_000, 60_000_000_000, 5 * 10**11])
def test_no_file_has_more_parts_than_a_store_takes(size: int) -> None:
    part_bytes = part_bytes_of(size)
    assert part_bytes >= PART_BYTES_MIN
    assert -(-size // part_bytes) <= PARTS_MAX
