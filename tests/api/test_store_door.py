"""The door for the object store: closed unless it is opened, and then for its secret alone."""

import base64
import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from api.notifications import BODY_BYTES_MAX, PATH
from schema.ids import MaterialId, UserId
from schema.objects import upload_key
from schema.settings import SettingsError, load
from tests.api import store_words as w
from tests.api.door import bearer, environ_without_parts, running_api
from tests.api.system import STORE_SECRET

UPLOAD = upload_key(UserId("0123456789abcdefghjk000007"), MaterialId(f"{7:026d}000007"))
KNOWN = {"Authorization": f"Bearer {STORE_SECRET}"}


@pytest.fixture(scope="module")
def open_door(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Address of an api whose door is open, with every part away."""
    environ = environ_without_parts(tmp_path_factory.mktemp("open-door"))
    environ["CUTLOG_API_STORE_NOTIFICATIONS_SECRET"] = STORE_SECRET
    with running_api(environ) as (url, _process):
        yield f"{url}{PATH}"


def basic(user: str, password: str) -> dict[str, str]:
    shown = base64.b64encode(f"{user}:{password}".encode()).decode()
    return {"Authorization": f"Basic {shown}"}


def test_without_a_secret_there_is_no_door(lonely_api: str) -> None:
    for headers in ({}, KNOWN, bearer(scope="operate"), {"Authorization": "Bearer"}):
        answer = httpx.post(f"{lonely_api}{PATH}", json=w.aws(UPLOAD), headers=headers)
        assert (answer.status_code, answer.json()["code"]) == (404, "not_found")


@pytest.mark.parametrize("secret", ["short", "a secret with spaces in it", "ä" * 16, "x" * 600])
def test_a_secret_that_is_none_ends_the_process(secret: str) -> None:
    with pytest.raises(SettingsError, match="store_notifications_secret"):
        load({"CUTLOG_API_STORE_NOTIFICATIONS_SECRET": secret})


@pytest.mark.parametrize(
    "headers",
    [
        {"Authorization": "Bearer"},
        {"Authorization": f"Bearer {STORE_SECRET[:-1]}"},
        {"Authorization": f"Bearer {STORE_SECRET}x"},
        {"Authorization": STORE_SECRET},
        {"Authorization": "Basic %%%"},
        basic(STORE_SECRET, ""),
        basic("cutlog", STORE_SECRET[1:]),
        bearer(scope="operate"),
    ],
)
def test_who_does_not_know_the_secret_is_refused(open_door: str, headers: dict[str, str]) -> None:
    answer = httpx.post(open_door, json=w.aws(UPLOAD), headers=headers)
    assert (answer.status_code, answer.json()["code"]) == (401, "token_invalid")
    assert STORE_SECRET not in answer.text


def test_who_shows_nothing_is_asked_for_it_as_topics_want_to_be(open_door: str) -> None:
    answer = httpx.post(open_door, json=w.aws(UPLOAD))
    assert (answer.status_code, answer.json()["code"]) == (401, "token_missing")
    assert answer.headers["www-authenticate"].startswith("Basic ")


@pytest.mark.parametrize(
    "headers", [KNOWN, {"authorization": f"bearer  {STORE_SECRET}"}, basic("cutlog", STORE_SECRET)]
)
@pytest.mark.parametrize("kind", ["application/json", "text/plain; charset=UTF-8"])
def test_who_knows_it_is_listened_to(open_door: str, headers: dict[str, str], kind: str) -> None:
    content = json.dumps(w.sns(w.aws("elsewhere/cat.png")))
    answer = httpx.post(open_door, content=content, headers=headers | {"Content-Type": kind})
    assert answer.status_code == 200, answer.text
    assert answer.json() == {"taken": 0, "ignored": {"key": 1}}


@pytest.mark.parametrize(
    ("content", "kind", "status", "code"),
    [
        (b"", "application/json", 400, "body_unreadable"),
        (b"Records", "application/json", 400, "body_unreadable"),
        (b'{"Records": [NaN]}', "text/plain", 400, "body_unreadable"),
        (b"\xff", "application/json", 400, "body_unreadable"),
        (b"[" * 100 + b"]" * 100, "application/json", 400, "body_unreadable"),
        (b"Records=1", "application/x-www-form-urlencoded", 415, "body_not_json"),
        (b" " * (BODY_BYTES_MAX + 1), "application/json", 413, "body_too_large"),
    ],
)
def test_what_is_no_message_is_refused(
    open_door: str, content: bytes, kind: str, status: int, code: str
) -> None:
    answer = httpx.post(open_door, content=content, headers=KNOWN | {"Content-Type": kind})
    assert (answer.status_code, answer.json()["code"]) == (status, code)
    assert answer.headers["content-type"] == "application/problem+json"


def test_a_message_may_be_as_long_as_a_topic_takes_it(open_door: str) -> None:
    message: dict[str, Any] = w.seaweedfs("elsewhere/film.mp4")
    message["message"]["new_entry"]["chunks"] *= 1_500
    assert 65_536 < len(json.dumps(message)) < BODY_BYTES_MAX
    answer = httpx.post(open_door, json=message, headers=KNOWN)
    assert answer.json() == {"taken": 0, "ignored": {"key": 1}}


def test_other_routes_take_neither_text_nor_more(open_door: str) -> None:
    at = open_door.removesuffix(PATH) + "/v1/materials"
    answer = httpx.post(at, content="{}", headers=bearer() | {"Content-Type": "text/plain"})
    assert answer.status_code == 415
    assert httpx.post(at, json={"x": "x" * 70_000}, headers=bearer()).status_code == 413


def test_a_subscription_is_refused_with_what_to_do_and_nobody_is_called(open_door: str) -> None:
    answer = httpx.post(open_door, json=w.subscription(), headers=KNOWN)
    assert (answer.status_code, answer.json()["code"]) == (409, "subscription_by_hand")
    assert "confirm-subscription" in answer.json()["help"]


def test_a_hint_that_nobody_can_look_at_is_to_be_told_again(open_door: str) -> None:
    answer = httpx.post(open_door, json=w.aws(UPLOAD), headers=KNOWN)
    assert (answer.status_code, answer.json()["code"]) == (503, "read_model_away")
    assert int(answer.headers["retry-after"]) > 0


def test_what_comes_of_records_is_counted(open_door: str) -> None:
    metrics = f"{open_door.removesuffix(PATH)}/metrics"
    name = 'cutlog_api_store_hints_total{outcome="bucket"}'

    def count() -> float:
        lines = httpx.get(metrics).text.splitlines()
        return sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith(name))

    before = count()
    message = w.seaweedfs(UPLOAD) | {"key": "/etc/passwd"}
    httpx.post(open_door, json=message, headers=KNOWN)
    assert count() == before + 1
