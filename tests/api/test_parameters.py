"""No card is ever spent on parameters that no work can be done with: the door tells what is wrong.

The api of most of these tests has neither log nor read model: what it answers with 422 has asked
nobody, used no key and no quota.
"""

import json
import time
from collections.abc import Iterator
from hashlib import sha256
from io import BytesIO
from typing import Any, NamedTuple
from uuid import uuid4

import httpx
import pytest
from PIL import Image

from gpu_runners.pipelines.smart.template import shipped
from schema.scenes.submissions import faults_of, faults_of_kinds
from schema.words import MediaKind, Scene
from tests.api.door import bearer, client
from tests.api.system import PATIENCE_SECONDS, Caller
from tests.gallery.orders import orders

SLOTS = [{"beats": 4}]


class Bad(NamedTuple):
    """A submission that can't be worked on, and what its refusal names and says."""

    scene: str
    parameters: dict[str, Any]
    field: str
    says: str
    materials: int = 1
    prompt: str | None = "a fox"
    """Of genai only."""


def _template(**fields: Any) -> dict[str, Any]:  # noqa: ANN401 - any field
    return {"template": {"slots": SLOTS, **fields}}


SMART = [
    Bad("smart", {}, "materials", "at least one photo or clip", materials=0),
    Bad("smart", {"template": "Post Card"}, "parameters.template", "a name of small letters"),
    Bad("smart", {"template": "../../etc"}, "parameters.template", "a name of small letters"),
    Bad("smart", {"template": 7}, "parameters.template", "given was 7"),
    Bad("smart", {"template": None}, "parameters.template", "given was null"),
    Bad("smart", {"template": {}}, "parameters.template", "missing required field `slots`"),
    Bad("smart", _template(slots=[]), "parameters.template.slots", "length >= 1"),
    Bad("smart", _template(slots=[{}]), "parameters.template", "either `beats` or `seconds`"),
    Bad("smart", _template(look="sepia"), "parameters.template.look", "sepia is none of none"),
    Bad(
        "smart",
        _template(slots=[{"beats": 4, "fit": "wide"}]),
        "parameters.template.slots[0].fit",
        "wide is none of cover, contain, plain",
    ),
    Bad("smart", _template(backdrop={"top": "red"}), "parameters.template.backdrop.top", "#ffffff"),
    Bad("smart", _template(films=1), "parameters.template.films", "there are name, title"),
    Bad(
        "smart", {**_template(), "texts": {"title": "x"}}, "parameters.texts", "has no text `title`"
    ),
    Bad("smart", {"texts": ["x"]}, "parameters.texts", "Expected `object`"),
    Bad("smart", {"texts": {"title": 3}}, "parameters.texts[...]", "Expected `str`"),
    Bad("smart", {"texts": {"title": "x" * 201}}, "parameters.texts[...]", "length <= 200"),
    Bad("smart", {"aspect": "2:1"}, "parameters.aspect", "2:1 is none of 16:9, 9:16, 1:1, 4:5"),
    Bad("smart", {"aspect": 2}, "parameters.aspect", "given was 2"),
    Bad("smart", {"size": "8k"}, "parameters.size", "8k is none of 720p, 1080p"),
    Bad("smart", {"clip_sound": 1.5}, "parameters.clip_sound", "<= 1.0; given was 1.5"),
    Bad("smart", {"clip_sound": True}, "parameters.clip_sound", "given was true"),
    Bad("smart", {"language": "fr"}, "parameters.language", "fr is none of zh, zh-Hant, ja, ko"),
    Bad("smart", {"templates": "story"}, "parameters.templates", "there are template, texts"),
]
GENAI = [
    Bad("genai", {}, "prompt", "say what to make", materials=0, prompt=None),
    Bad("genai", {}, "prompt", "say what to make", materials=0, prompt="  "),
    Bad("genai", {"prompt": " \n"}, "prompt", "say what to make", materials=0, prompt=None),
    Bad("genai", {"prompt": 3}, "parameters.prompt", "given was 3", prompt=None),
    Bad("genai", {"prompt": "x" * 4_001}, "parameters.prompt", "length <= 4000", prompt=None),
    Bad("genai", {"negative_prompt": ["x"]}, "parameters.negative_prompt", "Expected `str`"),
    Bad("genai", {"pictures": 0}, "parameters.pictures", ">= 1; given was 0"),
    Bad("genai", {"pictures": 9}, "parameters.pictures", "<= 8; given was 9"),
    Bad("genai", {"width": 65}, "parameters.width", "multiple of 8; given was 65"),
    Bad("genai", {"height": 2_048}, "parameters.height", "<= 1536; given was 2048"),
    Bad("genai", {"width": 1_536}, "parameters.width", "1536 x 1536 are more pixels"),
    Bad("genai", {"steps": 101}, "parameters.steps", "<= 100; given was 101"),
    Bad("genai", {"steps": "ten"}, "parameters.steps", "Expected `int | null`"),
    Bad("genai", {"guidance": -1}, "parameters.guidance", ">= 0.0; given was -1"),
    Bad("genai", {"strength": 0}, "parameters.strength", "given was 0"),
    Bad("genai", {"seed": -1}, "parameters.seed", "given was -1"),
    Bad("genai", {"scheduler": "eular"}, "parameters.scheduler", "eular is none of default, ddim"),
    Bad("genai", {"seconds": 21}, "parameters.seconds", "<= 20.0; given was 21"),
    Bad("genai", {"frame_rate": 60}, "parameters.frame_rate", "<= 24; given was 60"),
    Bad("genai", {"smoothing": 1}, "parameters.smoothing", "<= 0.95; given was 1"),
    Bad("genai", {"style": "oil"}, "parameters.style", "there are prompt, negative_prompt"),
]
MATTING = [
    Bad("matting", {}, "materials", "1 to 500 pictures; 0 were given", materials=0),
    Bad("matting", {"format": "gif"}, "parameters.format", "gif is none of png, webp, jpeg"),
    Bad("matting", {"format": "PNG"}, "parameters.format", "PNG is none of png, webp, jpeg"),
    Bad("matting", {"quality": 0}, "parameters.quality", ">= 1; given was 0"),
    Bad("matting", {"quality": 88.5}, "parameters.quality", "given was 88.5"),
    Bad("matting", {"refine": 1}, "parameters.refine", "Expected `bool`"),
    Bad("matting", {"size": 8}, "parameters.size", ">= 16; given was 8"),
    Bad("matting", {"size": "600"}, "parameters.size", "Expected `int | null`"),
    Bad("matting", {"size": 600, "margin": 0.5}, "parameters.margin", "<= 0.45; given was 0.5"),
    Bad("matting", {"margin": 0.1}, "parameters.margin", "give its `size`"),
    Bad("matting", {"background": "white"}, "parameters.background", "a colour like #ffffff"),
    Bad("matting", {"shadow": True}, "parameters.shadow", "there are format, quality"),
]
AUTOCUT = [
    Bad("autocut", {}, "materials", "at least 1 item", materials=0),
    Bad("autocut", {}, "materials", "at most 2 items", materials=3),
    Bad("autocut", {"aspect": "2:1"}, "parameters.aspect", "'16:9', '1:1' or '9:16'"),
    Bad("autocut", {"target_seconds": 0}, "parameters.target_seconds", "given was 0"),
    Bad("autocut", {"beats": 1}, "parameters.beats", "valid boolean; given was 1"),
    Bad("autocut", {"speed": 2}, "parameters.speed", "not permitted"),
]
REHEARSAL = [
    Bad("rehearsal", {"steps": 0}, "parameters.steps", "given was 0"),
    Bad("rehearsal", {"fail": "boredom"}, "parameters.fail", "'out_of_memory', "),
    Bad("rehearsal", {"speed": 2}, "parameters.speed", "not permitted"),
]
EVERYTHING = [*SMART, *GENAI, *MATTING, *AUTOCUT, *REHEARSAL]


def _body(bad: Bad) -> dict[str, Any]:
    body: dict[str, Any] = {
        "scene": bad.scene,
        "parameters": bad.parameters,
        "materials": [f"{n:026d}000000" for n in range(bad.materials)],
    }
    if bad.scene == "genai" and bad.prompt is not None:
        body["prompt"] = bad.prompt
    return body


@pytest.fixture(scope="module")
def http(lonely_api: str) -> Iterator[httpx.Client]:
    """A client of the api without parts."""
    with client(lonely_api, bearer(tier="pro")) as found:
        yield found


def _refused(answer: httpx.Response) -> dict[str, str]:
    assert answer.headers["content-type"] == "application/problem+json"
    document = answer.json()
    assert (answer.status_code, document["code"]) == (422, "body_invalid"), document
    return {error["field"]: error["message"] for error in document["errors"]}


@pytest.mark.parametrize("bad", EVERYTHING, ids=lambda bad: f"{bad.scene}-{bad.field}")
def test_bad_parameters_are_refused_at_the_door_by_name_with_what_is_right(
    http: httpx.Client, bad: Bad
) -> None:
    told = [
        _refused(http.post("/v1/tasks", json=_body(bad), headers={"Idempotency-Key": "k"}))
        for _ in range(2)
    ]
    assert told[0] == told[1], "asked again it is the same refusal"
    assert bad.says in told[0][bad.field], told[0]


def test_there_are_enough_cases() -> None:
    assert len(EVERYTHING) >= 60


def test_every_field_that_is_wrong_is_told_at_once_but_not_without_end(http: httpx.Client) -> None:
    many = Bad("matting", {"format": "gif", "quality": 0, "size": 1}, "", "")
    answer = http.post("/v1/tasks", json=_body(many), headers={"Idempotency-Key": "k"})
    assert set(_refused(answer)) == {f"parameters.{name}" for name in many.parameters}
    endless = Bad("matting", {f"f{n}": n for n in range(1_000)}, "", "")
    answer = http.post("/v1/tasks", json=_body(endless), headers={"Idempotency-Key": "k"})
    assert len(_refused(answer)) == 20


def test_what_people_wrote_is_not_told_back(http: httpx.Client) -> None:
    wrote = {"prompt": "my secret " * 500}
    bad = Bad("genai", wrote, "", "", prompt=None)
    answer = http.post("/v1/tasks", json=_body(bad), headers={"Idempotency-Key": "k"})
    assert "secret" not in json.dumps(_refused(answer))
    word = Bad("matting", {"format": "x" * 10_000}, "", "")
    answer = http.post("/v1/tasks", json=_body(word), headers={"Idempotency-Key": "k"})
    assert len(answer.content) < 1_000


VALID = [
    ("smart", {}, 1),
    ("smart", {"template": "our-own", "texts": {"title": "x"}}, 40),
    ("smart", {"template": "postcard", "texts": {"title": "Wish you were here"}}, 1),
    ("smart", {**_template(texts=[{"key": "title"}]), "texts": {"title": "x"}}, 2),
    ("smart", {"size": "1080p", "aspect": "4:5", "clip_sound": 1, "language": "zh-Hant"}, 3),
    ("genai", {"prompt": "a fox"}, 0),
    ("genai", {"width": 64, "height": 64, "steps": 4, "seed": 7}, 1),
    ("genai", {"prompt": "a fox", "pictures": 8, "scheduler": "euler_ancestral"}, 0),
    ("matting", {}, 500),
    ("matting", {"format": "jpeg", "size": 600, "margin": 0.1, "background": "#FFccee"}, 1),
    ("autocut", {"target_seconds": 3, "aspect": "9:16", "title": "Holiday"}, 2),
    ("rehearsal", {"seconds": 0.5, "fail": "input", "fail_on_attempts": [1]}, 0),
]


@pytest.mark.parametrize(("scene", "parameters", "materials"), VALID)
def test_what_can_be_made_is_not_refused(
    scene: str, parameters: dict[str, Any], materials: int
) -> None:
    assert faults_of(Scene(scene), parameters, materials) == ()


def test_whatever_the_gallery_orders_can_be_ordered() -> None:
    for order in orders():
        said = {} if order.prompt is None else {"prompt": order.prompt}
        asked = {**order.parameters, **said}
        assert faults_of(Scene(order.scene), asked, len(order.inputs)) == (), order.name


def test_every_shipped_template_can_also_be_sent_along() -> None:
    for name in shipped():
        assert faults_of(Scene.SMART, {"template": name}, 1) == ()


VIDEO, PICTURE, AUDIO = MediaKind.VIDEO, MediaKind.PICTURE, MediaKind.AUDIO


@pytest.mark.parametrize(
    ("scene", "parameters", "kinds", "field"),
    [
        ("autocut", {}, [PICTURE], "materials.0"),
        ("autocut", {}, [VIDEO, PICTURE], "materials.1"),
        ("autocut", {}, [AUDIO], "materials"),
        ("autocut", {}, [AUDIO, AUDIO], "materials"),
        ("autocut", {}, [VIDEO, VIDEO], "materials"),
        ("autocut", {}, [VIDEO, AUDIO], None),
        ("autocut", {}, [None], None),
        ("autocut", {}, [None, AUDIO], None),
        ("smart", {}, [AUDIO], "materials"),
        ("smart", {}, [AUDIO, None], None),
        ("smart", {}, [AUDIO, PICTURE], None),
        ("matting", {}, [AUDIO], "materials"),
        ("matting", {}, [AUDIO, PICTURE], None),
        ("genai", {}, [AUDIO], "materials"),
        ("genai", {"pictures": 2}, [VIDEO], "parameters.pictures"),
        ("genai", {"pictures": 2}, [PICTURE], None),
        ("genai", {"seconds": 20, "frame_rate": 24}, [VIDEO], "parameters.seconds"),
        ("rehearsal", {}, [AUDIO], None),
    ],
)
def test_what_is_known_of_the_materials_is_held_against_the_scene(
    scene: str, parameters: dict[str, Any], kinds: list[MediaKind | None], field: str | None
) -> None:
    told = faults_of_kinds(Scene(scene), parameters, kinds)
    assert [fault.field for fault in told] == ([] if field is None else [field])


# --- against the whole product -------------------------------------------------------------------


def _uploaded(ann: Caller, content: bytes, name: str, kind: str) -> str:
    announced = {
        "sha256": sha256(content).hexdigest(),
        "size": len(content),
        "content_type": kind,
        "name": name,
    }
    made = ann.http.post("/v1/materials", json=announced).json()
    (part,) = made["upload"]["parts"]
    assert httpx.put(part["url"], content=content, timeout=60).status_code == 200
    material_id = str(made["material_id"])
    answer = ann.http.post(f"/v1/materials/{material_id}/complete")
    assert answer.status_code == 200, answer.text
    until = time.monotonic() + PATIENCE_SECONDS
    while ann.http.get(f"/v1/materials/{material_id}").json()["status"] != "READY":
        assert time.monotonic() < until
        time.sleep(0.05)  # the read model has no way to tell
    return material_id


def _standing(ann: Caller) -> Any:  # noqa: ANN401 - JSON
    """What tells of tasks and of reservations."""
    scenes = ann.http.get("/v1/quotas").json()["scenes"]
    held = [(one["scene"], one["day"], one["month"]) for one in scenes]
    return held, ann.http.get("/v1/tasks").json()["tasks"]


@pytest.mark.integration
@pytest.mark.timeout(300)
def test_what_is_refused_makes_no_task_reserves_nothing_and_uses_no_key(ann: Caller) -> None:
    before = _standing(ann)
    key = uuid4().hex
    for bad in EVERYTHING:
        assert ann.post(_body(bad), key).status_code == 422, bad
        assert ann.http.get(f"/v1/tasks/{ann.task_id(key)}").status_code == 404
    assert _standing(ann) == before
    taken = ann.post({"scene": "rehearsal", "parameters": {"no_op": True}}, key)
    assert (taken.status_code, taken.json()["task_id"]) == (202, ann.task_id(key))


@pytest.mark.integration
@pytest.mark.timeout(300)
def test_a_picture_given_to_autocut_is_refused_with_advice_and_another_scene_takes_it(
    ann: Caller, bob: Caller
) -> None:
    picture = BytesIO()
    Image.effect_noise((320, 240), 60).save(picture, "PNG")
    material = _uploaded(ann, picture.getvalue(), "a.png", "image/png")
    before = _standing(ann)
    asked = {"scene": "autocut", "materials": [material]}
    told = _refused(ann.post(asked))
    assert "This is a picture" in told["materials.0"]
    assert "`smart`" in told["materials.0"]
    assert _standing(ann) == before
    assert ann.post({"scene": "matting", "materials": [material]}).status_code == 202
    # Of others' materials nothing is told, neither that they are there nor what they are.
    answer = bob.post(asked)
    assert "picture" not in answer.text
