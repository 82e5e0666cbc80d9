"""Somebody who uses the platform over HTTP, and nothing else: a token, requests, streams."""

import json
import threading
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from hashlib import sha256
from typing import Any, Final, NamedTuple, Self, TypeVar
from uuid import uuid4

import httpx

Json = dict[str, Any]
Found = TypeVar("Found")

ENDED: Final = frozenset({"SUCCEEDED", "FAILED", "CANCELED", "EXPIRED"})
PATIENCE_SECONDS: Final = 90
"""A machine with other work to do is slow; what hangs is caught all the same."""
_SILENCE_SECONDS: Final = 45
"""Longer than three pings of a stream."""


class Event(NamedTuple):
    """One event of a stream as it came: `id` only where the server sent one."""

    id: str
    name: str
    data: Json


class Stream:
    """One connection to a stream: its status, and its events until the server closes it."""

    def __init__(self, answer: httpx.Response) -> None:
        self.answer = answer
        self.status = answer.status_code

    def events(self) -> Iterator[Event]:
        """Fields until an empty line, as the standard of server-sent events says."""
        event_id, name, data = "", "message", list[str]()
        for line in self.answer.iter_lines():
            if not line:
                if data:
                    yield Event(event_id, name, json.loads("\n".join(data)))
                event_id, name, data = "", "message", []
                continue
            field, _, value = line.partition(":")
            value = value.removeprefix(" ")
            if field == "id":
                event_id = value
            elif field == "event":
                name = value
            elif field == "data":
                data.append(value)

    def stored(self) -> Iterator[Event]:
        """Only the events that have an id: those stand in the log."""
        return (event for event in self.events() if event.id)


class Person:
    """One caller with a token of his own."""

    def __init__(self, url: str, token: str) -> None:
        self.url = url
        self.token = token
        self.http = httpx.Client(
            base_url=url, headers={"Authorization": f"Bearer {token}"}, timeout=30
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.http.close()

    # --- tasks -----------------------------------------------------------------------------------

    def submit(
        self,
        parameters: Mapping[str, Any] | None = None,
        *,
        scene: str = "rehearsal",
        key: str | None = None,
        materials: Sequence[str] = (),
        title: str | None = None,
    ) -> httpx.Response:
        """POST a submission; without parameters it is work that takes no time."""
        asked = {"no_op": True} if parameters is None and scene == "rehearsal" else parameters or {}
        body: Json = {"scene": scene, "parameters": dict(asked)}
        if materials:
            body["materials"] = list(materials)
        if title is not None:
            body["title"] = title
        return self.http.post(
            "/v1/tasks", json=body, headers={"Idempotency-Key": key or uuid4().hex}
        )

    def submitted(self, parameters: Mapping[str, Any] | None = None, **more: Any) -> Json:  # noqa: ANN401
        """The same, for a submission that must be taken."""
        return told(self.submit(parameters, **more), 202)

    def task(self, task_id: str, **headers: str) -> Json:
        """The task as it stands."""
        return told(self.http.get(f"/v1/tasks/{task_id}", headers=headers), 200)

    def cancel(self, task_id: str) -> httpx.Response:
        return self.http.post(f"/v1/tasks/{task_id}/cancel")

    def retry(self, task_id: str) -> httpx.Response:
        return self.http.post(f"/v1/tasks/{task_id}/retry")

    def wait(self, task_id: str, after: int = 0) -> Json:
        """One long poll."""
        asked = self.http.get(f"/v1/tasks/{task_id}/wait", params={"after": after}, timeout=60)
        return told(asked, 200)

    def await_event(
        self, task_id: str, name: str, *, seconds: float = PATIENCE_SECONDS
    ) -> list[Json]:
        """The stored events of a task up to the first of that name, by long polls."""
        events: list[Json] = []
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            after = events[-1]["seq"] if events else 0
            answer = self.wait(task_id, after)
            events += answer["events"]
            for number, event in enumerate(events):
                if event["event"] == name:
                    return events[: number + 1]
            if answer["ended"]:
                time.sleep(0.2)  # a retry that was answered a moment ago is not shown yet
        raise AssertionError(f"no {name} of {task_id}: {[event['event'] for event in events]}")

    def await_end(self, task_id: str, *, seconds: float = PATIENCE_SECONDS) -> Json:
        """The task once it has ended, by long polls."""
        after, until = 0, time.monotonic() + seconds
        while time.monotonic() < until:
            answer = self.wait(task_id, after)
            task: Json = answer["task"]
            if task["status"] in ENDED:
                return task
            after = answer["events"][-1]["seq"] if answer["events"] else after
        raise AssertionError(f"{task_id} has not ended in {seconds} s: {self.task(task_id)}")

    def events(self, task_id: str) -> list[Json]:
        """All stored events of a task that has ended."""
        return list(self.wait(task_id)["events"])

    # --- streams ---------------------------------------------------------------------------------

    @contextmanager
    def stream(self, path: str, last: str | None = None) -> Generator[Stream]:
        """A connection of its own to a stream."""
        headers = {"Authorization": f"Bearer {self.token}"}
        if last is not None:
            headers["Last-Event-ID"] = last
        timeout = httpx.Timeout(30, read=_SILENCE_SECONDS)
        with (
            httpx.Client(base_url=self.url, headers=headers, timeout=timeout) as http,
            http.stream("GET", path) as answer,
        ):
            yield Stream(answer)

    def heard(self, path: str, last: str | None = None) -> list[Event]:
        """Everything that a stream tells until the server ends it."""
        with self.stream(path, last) as stream:
            assert stream.status == 200
            return list(stream.events())

    # --- the rest --------------------------------------------------------------------------------

    def quota(self, scene: str = "rehearsal") -> Json:
        """What is used and left in one scene."""
        scenes = told(self.http.get("/v1/quotas"), 200)["scenes"]
        return next(one for one in scenes if one["scene"] == scene)

    def await_resolved(self, scene: str = "rehearsal") -> Json:
        """The quota once nothing is reserved any more (a read model follows the log)."""
        return eventually(
            lambda: self.quota(scene), lambda quota: quota["month"]["reserved_micros"] == 0
        )

    def register(self, content: bytes, name: str, kind: str = "video/mp4") -> Json:
        """Announce a file."""
        body = {
            "sha256": sha256(content).hexdigest(),
            "size": len(content),
            "content_type": kind,
            "name": name,
        }
        return told(self.http.post("/v1/materials", json=body), 200)

    def send(self, made: Json, content: bytes) -> Json:
        """Store the parts of what was announced; the material once it was looked at."""
        upload = made["upload"]
        for part in upload["parts"]:
            begin = (part["number"] - 1) * upload["part_bytes"]
            stored = httpx.put(part["url"], content=content[begin : begin + part["size"]])
            assert stored.status_code == 200, stored.text
        answer = eventually(
            lambda: self.complete(made["material_id"]), lambda found: found.status_code != 202
        )
        return told(answer, 200)

    def complete(self, material_id: str) -> httpx.Response:
        return self.http.post(f"/v1/materials/{material_id}/complete")


class Watcher:
    """A stream that is listened to from a thread, and taken up again when it breaks."""

    def __init__(self, person: Person, path: str, last: str | None = None) -> None:
        self.stored: list[Event] = []
        self.snapshots: list[Event] = []
        self.connections = 0
        self._person = person
        self._path = path
        self._last = last
        self._thread = threading.Thread(target=self._listen, daemon=True)
        self._thread.start()

    def result(self, seconds: float = PATIENCE_SECONDS) -> list[Event]:
        """Every stored event that came, once the server has said that there are no more."""
        self._thread.join(seconds)
        assert not self._thread.is_alive(), f"{self._path} never ended: {self.stored}"
        return self.stored

    def _listen(self) -> None:
        while True:
            self.connections += 1
            try:
                with self._person.stream(self._path, self._last) as stream:
                    if stream.status == 204:
                        return
                    if stream.status == 200:
                        for event in stream.events():
                            if event.id:
                                self._last = event.id
                                self.stored.append(event)
                            elif event.name == "snapshot":
                                self.snapshots.append(event)
            except httpx.TransportError:
                pass
            time.sleep(0.2)  # what `retry:` of a stream asks of its clients


def told(answer: httpx.Response, status: int) -> Json:
    """The document of an answer that must have this status."""
    assert answer.status_code == status, f"{answer.status_code} {answer.text}"
    found: Json = answer.json()
    return found


def refused(answer: httpx.Response, status: int, code: str) -> Json:
    """The problem of an answer that must be this refusal."""
    assert answer.headers["content-type"] == "application/problem+json", answer.text
    problem: Json = answer.json()
    assert (answer.status_code, problem["code"]) == (status, code), problem
    assert problem["status"] == status
    assert problem["title"]
    assert problem["help"]
    return problem


def eventually(
    look: Callable[[], Found],
    wanted: Callable[[Found], bool],
    seconds: float = PATIENCE_SECONDS,
) -> Found:
    """Look until it is as wanted: what has no other way to tell is asked again."""
    until = time.monotonic() + seconds
    while True:
        found = look()
        if wanted(found):
            return found
        assert time.monotonic() < until, f"still {found!r} after {seconds} s"
        time.sleep(0.1)
