"""Materials: nobody's word counts but that of who reads what was sent."""

from pathlib import Path
from uuid import uuid4

import httpx
import pytest

from tests.platform.installed import PRICE_MICROS, Platform
from tests.platform.people import Json, Person, eventually, refused, told
from tests.platform.test_lanes import cutlog
from tests.support.pictures import noise_png

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]


def new_content() -> bytes:
    return noise_png(16, 16)


def put(upload: Json, content: bytes) -> httpx.Response:
    """Store bytes of one part as the answer to a registration says."""
    (part,) = upload["parts"]
    return httpx.put(part["url"], content=content, timeout=30)


def completed(person: Person, material_id: str) -> httpx.Response:
    """The answer to a completion once somebody has looked at what was sent."""
    return eventually(lambda: person.complete(material_id), lambda told: told.status_code != 202)


def uploaded(person: Person, content: bytes, name: str = "clip.png") -> str:
    """A material that is stored and complete."""
    made = person.register(content, name, "image/png")
    put(made["upload"], content).raise_for_status()
    told(completed(person, made["material_id"]), 200)
    material_id: str = made["material_id"]
    return material_id


def material(person: Person, material_id: str, status: str) -> Json:
    """The material once the read model shows it so."""
    return eventually(
        lambda: person.http.get(f"/v1/materials/{material_id}").json(),
        lambda found: found.get("status") == status,
    )


def test_a_file_is_uploaded_once(platform: Platform) -> None:
    with platform.person() as ann:
        content = new_content()
        made = ann.register(content, "holiday.png", "image/png")
        assert made["status"] == "REGISTERED"
        assert put(made["upload"], content).status_code == 200
        done = told(completed(ann, made["material_id"]), 200)
        assert (done["status"], done["size"]) == ("READY", len(content))
        shown = material(ann, made["material_id"], "READY")
        assert (shown["name"], shown["content_type"]) == ("holiday.png", "image/png")
        assert told(completed(ann, made["material_id"]), 200)["status"] == "READY"
        again = ann.register(content, "holiday.png", "image/png")
        assert again == {
            "material_id": made["material_id"],
            "status": "READY",
            "upload": None,
            "challenge": None,
        }


def test_nothing_that_was_not_uploaded_is_complete(platform: Platform) -> None:
    with platform.person() as ann:
        made = ann.register(new_content(), "clip.png", "image/png")
        material(ann, made["material_id"], "REGISTERED")
        refused(ann.complete(made["material_id"]), 409, "parts_missing")


def test_another_content_than_was_declared_is_refused(platform: Platform) -> None:
    with platform.person() as ann:
        content = new_content()
        made = ann.register(content, "clip.png", "image/png")
        put(made["upload"], content[::-1]).raise_for_status()
        refused(completed(ann, made["material_id"]), 422, "material_refused")
        assert material(ann, made["material_id"], "REFUSED")["reason"] == "digest_mismatch"
        # Declared and uploaded anew, it is as good as any.
        again = ann.register(content, "clip.png", "image/png")
        assert (again["material_id"], again["status"]) == (made["material_id"], "REGISTERED")
        put(again["upload"], content).raise_for_status()
        assert told(completed(ann, made["material_id"]), 200)["status"] == "READY"


def test_another_size_than_was_declared_is_not_taken(platform: Platform) -> None:
    with platform.person() as ann:
        content = new_content()
        made = ann.register(content, "clip.png", "image/png")
        assert put(made["upload"], content + b"more").status_code == 403
        refused(ann.complete(made["material_id"]), 409, "parts_missing")


def test_a_task_waits_for_its_material_and_runs_when_it_is_there(platform: Platform) -> None:
    with platform.person() as ann:
        content = new_content()
        made = ann.register(content, "clip.png", "image/png")
        answer = ann.submitted({"seconds": 0.1}, materials=[made["material_id"]])
        assert answer["status"] == "CREATED"
        events = ann.await_event(answer["task_id"], "task.created.v1")
        assert [event["event"] for event in events] == ["task.created.v1"]
        put(made["upload"], content).raise_for_status()
        # It is the word that counts, not the bytes: nothing moves before it.
        assert ann.task(answer["task_id"])["status"] == "CREATED"
        told(completed(ann, made["material_id"]), 200)
        task = ann.await_end(answer["task_id"])
        assert (task["status"], task["materials"]) == ("SUCCEEDED", [made["material_id"]])


def test_a_task_with_two_materials_waits_for_both(platform: Platform) -> None:
    with platform.person() as ann:
        contents = [new_content() for _ in range(2)]
        made = [ann.register(content, "clip.png", "image/png") for content in contents]
        task_id = ann.submitted({}, materials=[one["material_id"] for one in made])["task_id"]
        for number, (one, content) in enumerate(zip(made, contents, strict=True)):
            assert ann.http.get(f"/v1/tasks/{task_id}/wait").json()["task"]["status"] == "CREATED"
            put(one["upload"], content).raise_for_status()
            told(completed(ann, one["material_id"]), 200)
            if number == 0:
                ann.await_event(task_id, "task.material_confirmed.v1")
        assert ann.await_end(task_id)["status"] == "SUCCEEDED"


def test_a_material_that_is_refused_ends_the_tasks_that_wait_for_it(platform: Platform) -> None:
    with platform.person() as ann:
        content = new_content()
        made = ann.register(content, "clip.png", "image/png")
        tasks = [
            ann.submitted({"seconds": number}, materials=[made["material_id"]])["task_id"]
            for number in range(2)
        ]
        eventually(ann.quota, lambda quota: quota["month"]["reserved_micros"] == 2 * PRICE_MICROS)
        put(made["upload"], content[::-1]).raise_for_status()
        refused(completed(ann, made["material_id"]), 422, "material_refused")
        for task_id in tasks:
            task = ann.await_end(task_id)
            assert (task["status"], task["cause"]) == ("CANCELED", "material_refused")
            assert task["charge_micros"] == 0
            assert task["reason"]
        month = ann.await_resolved()["month"]
        assert (month["reserved_micros"], month["spent_micros"]) == (0, 0)


def test_who_submits_what_is_no_media_reads_why_and_what_to_do(
    platform: Platform, tmp_path: Path
) -> None:
    words = tmp_path / "clip.mp4"
    words.write_text(f"Dear editor {uuid4()}, the clip comes later.\n")
    asked = ["submit", str(words), "--scene", "rehearsal", "--as", uuid4().hex]
    done = cutlog(platform, *asked)
    assert done.returncode == 1
    said = " ".join((done.stdout + done.stderr).split())
    assert "Choose another file." in said


def test_a_task_with_a_material_that_is_not_there_ends_with_a_refund(platform: Platform) -> None:
    with platform.person() as ann, platform.person() as bob:
        of_bob = uploaded(bob, new_content())
        of_ann = ann.register(new_content(), "clip.png", "image/png")["material_id"]
        unknown = of_bob[:-6] + of_ann[-6:]
        for material_id in (unknown, of_bob):
            answer = ann.submit({}, materials=[material_id])
            task = ann.await_end(told(answer, 202)["task_id"])
            assert (task["status"], task["cause"]) == ("CANCELED", "material_refused")
        assert ann.await_resolved()["month"]["spent_micros"] == 0


def test_nobody_sees_the_materials_of_another(platform: Platform) -> None:
    sub = uuid4().hex
    with (
        platform.person_of(sub, tenant="acme") as ann,
        platform.person_of(sub, tenant="other") as namesake,
        platform.person() as bob,
    ):
        material_id = uploaded(ann, new_content())
        material(ann, material_id, "READY")
        for stranger in (namesake, bob):
            refused(stranger.http.get(f"/v1/materials/{material_id}"), 404, "material_unknown")
            refused(stranger.complete(material_id), 404, "material_unknown")


def test_a_file_that_is_too_large_for_the_tier_is_refused(platform: Platform) -> None:
    with platform.person(tier="free") as ann:
        body = {
            "sha256": "0" * 64,
            "size": 200_000_001,
            "content_type": "video/mp4",
            "name": "long.mp4",
        }
        refused(ann.http.post("/v1/materials", json=body), 413, "material_too_large")
