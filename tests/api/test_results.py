"""Results at the door: their names, what is handed out, what became of them, and publishing."""

import asyncio
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import pytest

from api.deliveries import Deliveries
from api.measures import Measures
from api.problems import Door, at_the_door
from api.results import TRIES_MAX, download_names, full_size_of, is_full_size
from cutlog.client import Client
from cutlog.publishing import fetch_published
from schema import commands as c
from schema import events as e
from schema.codec import encode
from schema.ids import (
    NO_TENANT,
    AccountId,
    CommandId,
    EventId,
    IncarnationId,
    PoolId,
    ReservationId,
    RunnerId,
    TaskId,
    user_partition,
)
from schema.routes import Route, Routed, route
from schema.settings import Kafka, load, need
from schema.topics import Topic
from schema.wires.log import LogWriter
from schema.wires.objects import content_disposition
from schema.wires.telemetry import new_registry
from schema.words import Lane, ResultEnd, Scene
from tests.api.system import PATIENCE_SECONDS, Caller
from tests.projections.histories import PRICE

TITLE = 'Café "im Süden": 北京 / 100 %'
NAME = "Café im Süden 北京 100"


# --- names and documents --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("title", "names"),
    [
        ("", ["film.mp4", "poster.jpg"]),
        ("Holidays", ["Holidays.mp4", "Holidays poster.jpg"]),
        (TITLE, [f"{NAME}.mp4", f"{NAME} poster.jpg"]),
        ("../../etc/passwd", ["etc passwd.mp4", "etc passwd poster.jpg"]),
        ("a\r\nSet-Cookie: b", ["a Set-Cookie b.mp4", "a Set-Cookie b poster.jpg"]),
        ("\u202e\x00...", ["film.mp4", "poster.jpg"]),
        ("x" * 300, ["x" * 100 + ".mp4", "x" * 100 + " poster.jpg"]),
    ],
)
def test_files_are_called_by_the_title(title: str, names: list[str]) -> None:
    assert download_names(title, ["film.mp4", "poster.jpg"]) == names


@pytest.mark.parametrize(
    ("filename", "header"),
    [
        ("film.mp4", 'attachment; filename="film.mp4"'),
        ("Süd.mp4", "attachment; filename=\"S_d.mp4\"; filename*=UTF-8''S%C3%BCd.mp4"),
        ('a"b;c.mp4', "attachment; filename=\"a_b_c.mp4\"; filename*=UTF-8''a%22b%3Bc.mp4"),
    ],
)
def test_a_name_stands_in_the_header_whatever_it_is_made_of(filename: str, header: str) -> None:
    assert content_disposition(filename) == header


def row(**fields: Any) -> dict[str, Any]:  # noqa: ANN401
    return {
        "scene": "autocut", "material_ids": ["m"], "parameters": {"target_seconds": 9},
        "files": [{"size": 7}], "tenant_id": "acme", "result_state": None,
    } | fields  # fmt: skip


def test_a_preview_is_asked_for_again_in_full_size_and_what_is_that_already_is_not() -> None:
    assert not is_full_size(row())
    assert not is_full_size(row(scene="smart"))
    assert is_full_size(row(scene="matting"))
    document = full_size_of(row(), {"title": "t"})
    assert document == {
        "scene": "autocut",
        "materials": ["m"],
        "parameters": {"target_seconds": 9, "size": "1080p"},
        "title": "t",
    }
    assert is_full_size(row(parameters=document["parameters"]))


# --- what is handed out ---------------------------------------------------------------------------


class Log:
    """The part of an asker that deliveries need: takes commands, unless it is away."""

    partitions = 2

    def __init__(self) -> None:
        self.told: list[c.CountDeliveries] = []
        self.away = False

    async def tell(self, command: Any, route: Route) -> None:  # noqa: ANN401
        assert route.topic is Topic.MATERIAL_COMMANDS
        if self.away:
            raise at_the_door(Door.LOG_AWAY)
        self.told.append(command)


async def test_what_is_handed_out_is_summed_up_and_told_again_as_the_same_command() -> None:
    log: Any = Log()
    deliveries = Deliveries(log, Measures(new_registry()), 3)
    for found in (row(), row(), row(result_state="cold"), row(tenant_id="")):
        deliveries.count(found)
    log.away = True
    await deliveries.tell()
    deliveries.count(row())
    log.away = False
    await deliveries.tell()
    first, second = log.told
    assert [(one.tenant_id, one.cold, one.reads, one.size) for one in first.deliveries] == [
        ("acme", False, 2, 14),
        ("acme", True, 1, 7),
        ("", False, 1, 7),
    ]
    assert [(one.reads, one.size) for one in second.deliveries] == [(1, 7)]
    assert first.source == second.source == "api-3"
    assert first.command_id != second.command_id
    await deliveries.tell()
    assert len(log.told) == 2


# --- the whole product ----------------------------------------------------------------------------


def made(ann: Caller, title: str | None = None) -> str:
    """A rehearsal with a result."""
    body: dict[str, Any] = {"scene": "rehearsal", "parameters": {"steps": 1}}
    if title is not None:
        body["title"] = title
    task_id = str(ann.post(body).json()["task_id"])
    ann.until(task_id, "SUCCEEDED")
    return task_id


def append(ann: Caller, *messages: tuple[Route | None, Any]) -> None:
    """Put commands (where they belong) or facts into the log."""
    kafka: Kafka = need(load(ann.system.installation.environ()), "kafka")

    async def put() -> None:
        async with LogWriter(kafka, client_id="test") as writer:
            for place, message in messages:
                command: Routed = message
                where = place or route(command, kafka.partitions)
                await writer.append(where, encode(message))

    asyncio.run(put())


def result_command(ann: Caller, kind: Callable[..., Any], task_id: str, **fields: Any) -> None:  # noqa: ANN401
    command = kind(
        command_id=CommandId(uuid4().hex),
        task_id=TaskId(task_id),
        user_id=ann.user_id,
        tenant_id=NO_TENANT,
        **fields,
    )
    append(ann, (None, command))


def until(ann: Caller, task_id: str, field: str, value: Any) -> None:  # noqa: ANN401
    """Until the task is shown so. The projection tells of results to nobody, so it is asked."""
    end = time.monotonic() + PATIENCE_SECONDS
    while ann.get(task_id)[field] != value:
        assert time.monotonic() < end
        time.sleep(0.05)


@pytest.mark.integration
def test_a_file_is_fetched_under_its_title_whole_and_by_range(ann: Caller) -> None:
    task_id = made(ann, TITLE)
    answer = ann.http.get(f"/v1/tasks/{task_id}/result")
    assert answer.status_code == 200, answer.text
    (file,) = answer.json()["files"]
    assert file["filename"] == f"{NAME}.json"
    whole = httpx.get(file["url"])
    assert whole.status_code == 200
    assert whole.headers["content-disposition"] == content_disposition(f"{NAME}.json")
    assert len(whole.content) == file["size"]
    part = httpx.get(file["url"], headers={"Range": "bytes=2-5"})
    assert part.status_code == 206
    assert part.content == whole.content[2:6]


@pytest.mark.integration
def test_without_a_result_there_is_nothing_to_fetch_or_publish(ann: Caller, bob: Caller) -> None:
    task_id = ann.submit(seconds=60)
    ann.get(task_id, seq=1)
    for path in ("result", "publish"):
        ask = ann.http.get if path == "result" else ann.http.post
        answer = ask(f"/v1/tasks/{task_id}/{path}")
        assert (answer.status_code, answer.json()["code"]) == (409, "result_not_ready")
        other = bob.http.get if path == "result" else bob.http.post
        assert other(f"/v1/tasks/{task_id}/{path}").status_code == 404
    ann.http.post(f"/v1/tasks/{task_id}/cancel")


@pytest.mark.integration
def test_what_is_withheld_or_deleted_is_gone_with_its_reason(ann: Caller, operator: Caller) -> None:
    task_id = made(ann)
    path = f"/v1/operator/results/{task_id}"
    assert ann.http.post(f"{path}/withhold", json={"why": "mine"}).status_code == 403
    done = operator.http.post(f"{path}/withhold", json={"why": "moderation"})
    assert (done.status_code, done.json()) == (200, {"status": "done"})
    until(ann, task_id, "result", "withheld")
    for answer in (
        ann.http.get(f"/v1/tasks/{task_id}/result"),
        ann.http.post(f"/v1/tasks/{task_id}/publish"),
    ):
        assert answer.status_code == 410
        assert (answer.json()["code"], answer.json()["detail"]) == ("result_withheld", "moderation")
    assert operator.http.post(f"{path}/restore", json={"why": "an error"}).status_code == 200
    until(ann, task_id, "result", "hot")
    assert ann.http.get(f"/v1/tasks/{task_id}/result").status_code == 200
    result_command(ann, c.DeleteResult, task_id, reason=ResultEnd.AGED, seq=2)
    until(ann, task_id, "result", "deleted")
    gone = ann.http.get(f"/v1/tasks/{task_id}/result")
    assert (gone.status_code, gone.json()["code"]) == (410, "result_deleted")
    assert gone.json()["detail"] == "aged"
    late = operator.http.post(f"{path}/restore", json={"why": "too late"})
    assert (late.status_code, late.json()["code"]) == (410, "result_deleted")
    unknown = operator.http.post("/v1/operator/results/nothing/withhold", json={"why": "?"})
    assert unknown.status_code == 404


@pytest.mark.integration
def test_what_is_full_size_already_is_marked_as_published(ann: Caller) -> None:
    task_id = made(ann)
    for _ in range(2):
        answer = ann.http.post(f"/v1/tasks/{task_id}/publish")
        assert answer.status_code == 200, answer.text
        assert answer.json() == {"task_id": task_id, "published_by": task_id, "submission": None}
    until(ann, task_id, "published_by", task_id)


@pytest.mark.integration
def test_the_command_line_publishes_and_fetches_what_is_there(ann: Caller, tmp_path: Path) -> None:
    task_id = made(ann)
    token = ann.http.headers["Authorization"].removeprefix("Bearer ")
    with Client(ann.system.up.api_url, token) as client:
        assert fetch_published(client, task_id, tmp_path, follow=True)
        preview = _forge_preview(ann)
        until(ann, preview, "status", "SUCCEEDED")
        assert fetch_published(client, preview, tmp_path, follow=False)
        by = client.publish(preview)
        assert client.task(by)["publishes"] == preview
        client.cancel(by)
    (fetched,) = (tmp_path / task_id).iterdir()
    assert fetched.name == "rehearsal.json"


@pytest.mark.integration
def test_a_preview_is_published_by_one_task_that_makes_it_in_full_size(ann: Caller) -> None:
    preview = _forge_preview(ann)
    until(ann, preview, "status", "SUCCEEDED")
    first, again = (ann.http.post(f"/v1/tasks/{preview}/publish") for _ in range(2))
    assert first.status_code == again.status_code == 202, first.text
    by = first.json()["published_by"]
    assert again.json()["published_by"] == by != preview
    assert first.json()["submission"]["reserved_micros"] > 0
    task = ann.get(by, seq=1)
    assert (task["publishes"], task["scene"]) == (preview, "smart")
    assert task["parameters"] == {"template": "travel", "size": "1080p"}
    until(ann, preview, "published_by", by)
    ann.http.post(f"/v1/tasks/{by}/cancel")
    ann.until(by, "CANCELED")
    anew = ann.http.post(f"/v1/tasks/{preview}/publish").json()["published_by"]
    assert anew not in {by, preview}
    ann.http.post(f"/v1/tasks/{anew}/cancel")


@pytest.mark.integration
@pytest.mark.parametrize("asked", ["preview", "full"])
def test_a_preview_and_its_full_size_are_withheld_and_restored_together(
    ann: Caller, operator: Caller, asked: str
) -> None:
    preview = _forge_preview(ann)
    full = _forge_preview(ann, publishes=preview)
    for task_id in (preview, full):
        until(ann, task_id, "status", "SUCCEEDED")
    result_command(ann, c.PublishResult, preview, by=TaskId(full))
    until(ann, preview, "published_by", full)
    path = f"/v1/operator/results/{preview if asked == 'preview' else full}"
    assert operator.http.post(f"{path}/withhold", json={"why": "moderation"}).status_code == 200
    for task_id in (preview, full):
        until(ann, task_id, "result", "withheld")
        gone = ann.http.get(f"/v1/tasks/{task_id}/result")
        assert (gone.status_code, gone.json()["detail"]) == (410, "moderation")
    assert operator.http.post(f"{path}/restore", json={"why": "an error"}).status_code == 200
    for task_id in (preview, full):
        until(ann, task_id, "result", "hot")


@pytest.mark.integration
def test_what_came_to_nothing_each_time_is_not_published_once_more(ann: Caller) -> None:
    preview = _forge_preview(ann)
    until(ann, preview, "status", "SUCCEEDED")
    by = ""
    for _ in range(TRIES_MAX):
        by = ann.http.post(f"/v1/tasks/{preview}/publish").json()["published_by"]
        ann.get(by, seq=1)
        ann.http.post(f"/v1/tasks/{by}/cancel")
        ann.until(by, "CANCELED")
    answer = ann.http.post(f"/v1/tasks/{preview}/publish")
    assert (answer.status_code, answer.json()["code"]) == (409, "published_in_vain")
    assert answer.json()["task_id"] == by
    assert "CANCELED" in answer.json()["detail"]


def _forge_preview(ann: Caller, publishes: str | None = None) -> str:
    """A smart film that succeeded, by its facts alone: no runner here makes one."""
    task_id = ann.task_id(uuid4().hex)
    account = AccountId(f"u-{ann.user_id}")
    origin = c.Origin(
        user_id=ann.user_id,
        tenant_id=NO_TENANT,
        account_id=account,
        scene=Scene.SMART,
        tier="load",
        fingerprint="f",
        parameters={"template": "travel"},
        publishes=None if publishes is None else TaskId(publishes),
    )
    at = datetime.now(UTC)

    def of(seq: int) -> dict[str, Any]:
        return {
            "event_id": EventId(f"{task_id}-{seq}"), "seq": seq, "at": at, "task_id": task_id,
            "user_id": ann.user_id,
        }  # fmt: skip

    events: list[e.TaskEvent] = [
        e.TaskCreated(
            **of(1), origin=origin, pool_id=PoolId("B"), lane=Lane.P1, price=PRICE,
            policy_version=1, reservation_id=ReservationId("r"), reserved_micros=1,
            run_limit_seconds=600, created_wait_seconds=900,
        ),
        e.TaskStarted(
            **of(2), token=1, pool_id=PoolId("B"), lease_seconds=9, runner_id=RunnerId("r"),
            incarnation_id=IncarnationId("r.1"),
        ),
        e.TaskSucceeded(**of(3), token=1, card_ms=1, charge_micros=1),
    ]  # fmt: skip
    partition = user_partition(task_id, ann.system.partitions)
    place = Route(Topic.TASK_EVENTS, partition, task_id)
    append(ann, *((place, event) for event in events))
    return task_id
