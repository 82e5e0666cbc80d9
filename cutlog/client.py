"""A small typed client of the HTTP api: submit, watch, fetch.

    with Client("http://127.0.0.1:8000", token) as client:
        clip = client.upload(Path("holiday.mp4"))
        task = client.submit("autocut", materials=[clip], parameters={"target_seconds": 15})
        for event in client.watch(task.task_id):
            print(event.name, event.data)
        client.download(task.task_id, Path("films"))

What is refused raises `Refused` with the problem that the api told: its `code` is stable. A
submission is idempotent by its key: the same key again gives the same task, so an answer that got
lost is asked for again without fear.
"""

import hashlib
import time
from collections.abc import Iterator, Mapping, Sequence
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final, NamedTuple, Self
from uuid import uuid4

import httpx
import msgspec

from cutlog.endings import content_type_of
from cutlog.uploading import LINES_MAX, Plan, Tell, Upload, UploadBrokenError, UploadLostError
from schema.words import Status

_TIMEOUT_SECONDS: Final = 30
_WATCH_SILENCE_SECONDS: Final = 60
_RECONNECT_SECONDS: Final = (0.1, 0.5, 1.0, 2.0, 5.0)
_SERVER_ERROR: Final = HTTPStatus.INTERNAL_SERVER_ERROR
_CHUNK_BYTES: Final = 1 << 20
_RETRY_SECONDS_MAX: Final = 5.0
_PENDING_SECONDS: Final = 0.3
_UPLOADS_MAX: Final = 5
_THROUGH: Final = frozenset({"ASSEMBLING", "READY", "COLD"})
"""What a material is once every byte of it is in the store."""
_SEND_AGAIN: Final = frozenset({"parts_missing", "upload_lost", "pieces_missing"})
_SENTENCE_ENDS: Final = (".", "!", "?")
ENDED: Final = frozenset(status.value for status in Status if status.ended)


class Refused(Exception):  # noqa: N818 - it reads better where it is caught
    """The api said no. `code` is for programs, `help` for people."""

    def __init__(self, status: int, problem: Mapping[str, Any]) -> None:
        self.status = status
        self.problem = dict(problem)
        self.code = str(problem.get("code", "unknown"))
        self.help = str(problem.get("help", ""))
        super().__init__(f"{status} {self.code}: {_in_words(self.problem, self.code)}")

    @property
    def retry_after_seconds(self) -> float | None:
        """When asking again makes sense; None: it does not by itself."""
        value = self.problem.get("retry_after_seconds")
        return None if value is None else float(value)


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to a submission, a cancel or a retry."""

    task_id: str
    status: str
    seq: int
    consistency_token: str
    scene: str = ""
    lane: str = ""
    reserved_micros: int | None = None
    remaining: dict[str, Any] | None = None


class StreamEvent(NamedTuple):
    """One event of a stream: `id` only on stored ones; `name` is the wire name or `progress`."""

    id: str
    name: str
    data: dict[str, Any]


class Client:
    """One caller. Not for several threads at once."""

    def __init__(
        self, url: str, token: str, *, transport: httpx.BaseTransport | None = None
    ) -> None:
        self._http = httpx.Client(
            base_url=url,
            headers={"Authorization": f"Bearer {token}"},
            timeout=_TIMEOUT_SECONDS,
            transport=transport,
        )
        self._plain = httpx.Client(timeout=httpx.Timeout(_TIMEOUT_SECONDS, read=300))
        self._consistency: dict[str, str] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self._http.close()
        self._plain.close()

    # --- tasks -----------------------------------------------------------------------------------

    def submit(
        self,
        scene: str,
        *,
        materials: Sequence[str] = (),
        parameters: Mapping[str, Any] | None = None,
        title: str | None = None,
        prompt: str | None = None,
        key: str | None = None,
    ) -> Answer:
        """Ask for a task; raises Refused. Without `key` a new one is made for this call."""
        body: dict[str, Any] = {"scene": scene, "parameters": dict(parameters or {})}
        if materials:
            body["materials"] = list(materials)
        if title is not None:
            body["title"] = title
        if prompt is not None:
            body["prompt"] = prompt
        answer = self._ask(
            "POST", "/v1/tasks", json=body, headers={"Idempotency-Key": key or uuid4().hex}
        )
        return self._answer(answer)

    def cancel(self, task_id: str) -> Answer:
        """End a task; canceled already is no error."""
        path = f"/v1/tasks/{task_id}/cancel"
        return self._answer(self._ask("POST", path, headers={"Idempotency-Key": uuid4().hex}))

    def retry(self, task_id: str, *, key: str | None = None) -> Answer:
        """Queue a FAILED task again, on a new reservation."""
        path = f"/v1/tasks/{task_id}/retry"
        return self._answer(
            self._ask("POST", path, headers={"Idempotency-Key": key or uuid4().hex})
        )

    def publish(self, task_id: str) -> str:
        """Publish a result; the task that makes it in full size, or itself, if it is that."""
        found = self._json("POST", f"/v1/tasks/{task_id}/publish")
        by = str(found["published_by"])
        if found["submission"] is not None:
            self._consistency[by] = found["submission"]["consistency_token"]
        return by

    def task(self, task_id: str) -> dict[str, Any]:
        """A task as it stands; not older than what this client was told of it."""
        token = self._consistency.get(task_id)
        headers = {"Cutlog-Consistency": token} if token else {}
        return self._json("GET", f"/v1/tasks/{task_id}", headers=headers)

    def tasks(self, **filters: str | int) -> Iterator[dict[str, Any]]:
        """The caller's tasks, newest first, page after page."""
        yield from self._pages("/v1/tasks", "tasks", filters)

    def result(self, task_id: str) -> dict[str, Any]:
        """What a SUCCEEDED task made, with addresses to fetch it from."""
        return self._json("GET", f"/v1/tasks/{task_id}/result")

    def download(self, task_id: str, directory: Path) -> list[Path]:
        """Fetch every file of a result; each is checked against its sha256."""
        directory.mkdir(parents=True, exist_ok=True)
        found: list[Path] = []
        for file in self.result(task_id)["files"]:
            path = directory / Path(str(file["name"])).name
            digest = hashlib.sha256()
            with self._plain.stream("GET", file["url"]) as answer, path.open("wb") as out:
                answer.raise_for_status()
                for chunk in answer.iter_bytes(_CHUNK_BYTES):
                    out.write(chunk)
                    digest.update(chunk)
            if digest.hexdigest() != file["sha256"]:
                raise OSError(f"{path.name} is not what was stored; fetch it again")
            found.append(path)
        return found

    # --- streams ---------------------------------------------------------------------------------

    def watch(self, task_id: str, *, after: str | None = None) -> Iterator[StreamEvent]:
        """The events of a task from the beginning (or after an id), until its end.

        Lost connections are taken up again after the last stored event; each comes once, in order.
        """
        yield from self._stream(f"/v1/tasks/{task_id}/events", after)

    def watch_all(self, *, after: str | None = None) -> Iterator[StreamEvent]:
        """The events of all of the caller's tasks, for as long as one listens."""
        yield from self._stream("/v1/events", after)

    def _stream(self, path: str, after: str | None) -> Iterator[StreamEvent]:
        last, failures = after, 0
        while True:
            headers = {"Accept": "text/event-stream"}
            if last:
                headers["Last-Event-ID"] = last
            try:
                timeout = httpx.Timeout(_TIMEOUT_SECONDS, read=_WATCH_SILENCE_SECONDS)
                with self._http.stream("GET", path, headers=headers, timeout=timeout) as answer:
                    if answer.status_code == HTTPStatus.NO_CONTENT:
                        return
                    if answer.is_error:
                        answer.read()
                        raise _refusal(answer)
                    for event in _events(answer.iter_lines()):
                        last, failures = event.id or last, 0
                        yield event
            except (httpx.TransportError, Refused) as error:
                final = isinstance(error, Refused) and error.status < _SERVER_ERROR
                if final or failures >= len(_RECONNECT_SECONDS):
                    raise
                time.sleep(_RECONNECT_SECONDS[failures])
                failures += 1

    # --- materials, quotas, pools ----------------------------------------------------------------

    def upload(
        self,
        path: Path,
        tell: Tell = lambda _: None,
        *,
        seconds: int | None = None,
        lines_max: int = LINES_MAX,
    ) -> str:
        """Upload a file and say that it is complete; its material id.

        What is there already is not sent again: a file that is known, or the parts of an upload
        that was interrupted. `tell` hears bytes that are through, from several threads; `seconds`
        is the longest that it lasts. It may be submitted at once: a task waits until it is checked
        (`await_material` does too). Raises Refused, UploadBrokenError.
        """
        body: dict[str, Any] = describe(path)
        if seconds is not None:
            body["seconds"] = seconds
        for _ in range(_UPLOADS_MAX):
            made = self._announce(path, body)
            material_id = str(made["material_id"])
            if made["upload"] is None:  # nothing is to be sent
                if made["status"] in _THROUGH:
                    tell(body["size"])
                return material_id
            sending = Upload(
                self._insist, self._plain, path, material_id, tell=tell, lines_max=lines_max
            )
            try:
                sending.run(msgspec.convert(made["upload"], Plan))
                self.complete(material_id)
            except UploadLostError:
                continue
            except Refused as refused:
                if refused.code not in _SEND_AGAIN:
                    raise
                sending.forget()
            else:
                return material_id
        raise UploadBrokenError(f"{path} does not stay where it is stored")

    def _announce(self, path: Path, body: Mapping[str, Any]) -> dict[str, Any]:
        """Announce a file, and prove that one holds it where that is asked."""
        until = time.monotonic() + _TIMEOUT_SECONDS
        while True:
            made = self._insist("POST", "/v1/materials", json=dict(body))
            if made["challenge"] is not None:
                at = f"/v1/materials/{made['material_id']}/proof"
                made = self._insist("POST", at, json={"sha256": prove(path, made["challenge"])})
            if made["status"] != "pending" or time.monotonic() > until:
                return made
            time.sleep(_PENDING_SECONDS)

    def complete(self, material_id: str) -> dict[str, Any]:
        """Say that all parts are there; the material as it stands then. Raises Refused."""
        return self._insist("POST", f"/v1/materials/{material_id}/complete")

    def material(self, material_id: str) -> dict[str, Any]:
        """A material as it stands."""
        return self._json("GET", f"/v1/materials/{material_id}")

    def materials(self, **filters: str | int) -> Iterator[dict[str, Any]]:
        """The caller's materials, newest first, page after page."""
        yield from self._pages("/v1/materials", "materials", filters)

    def await_material(self, material_id: str, seconds: float = 600) -> dict[str, Any]:
        """The material once it is READY, or is known not to become so; raises TimeoutError."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            found = self._insist("GET", f"/v1/materials/{material_id}")
            if found["status"] not in {"REGISTERED", "ASSEMBLING"}:
                return found
            time.sleep(_PENDING_SECONDS)
        raise TimeoutError(f"{material_id} is not checked after {seconds:g} s")

    def quotas(self) -> dict[str, Any]:
        """What the caller has left, by scene."""
        return self._json("GET", "/v1/quotas")

    def pools(self) -> dict[str, Any]:
        """How busy the pools are."""
        return self._json("GET", "/v1/pools")

    def operate(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """An operator's command (scope `operate`), e.g. `top-up`."""
        return self._json("POST", f"/v1/operator/{path}", json=dict(body))

    def look(self, path: str, **params: str | int) -> dict[str, Any]:
        """What an operator may read (scope `operate`), e.g. `dead-letters`."""
        return self._json("GET", f"/v1/operator/{path}", params=params)

    # --- the way there ---------------------------------------------------------------------------

    def _ask(self, method: str, path: str, **options: Any) -> httpx.Response:  # noqa: ANN401
        answer = self._http.request(method, path, **options)
        if answer.is_error:
            raise _refusal(answer)
        return answer

    def _pages(
        self, path: str, name: str, filters: Mapping[str, str | int]
    ) -> Iterator[dict[str, Any]]:
        cursor: str | None = None
        while True:
            params = dict(filters) if cursor is None else {**filters, "cursor": cursor}
            page = self._json("GET", path, params=params)
            yield from page[name]
            cursor = page.get("next_cursor")
            if not cursor:
                return

    def _insist(self, method: str, path: str, **options: Any) -> dict[str, Any]:  # noqa: ANN401
        """Ask what may be asked twice, again while the line breaks or the api says that it will."""
        for pause in _RECONNECT_SECONDS:
            try:
                return self._json(method, path, **options)
            except httpx.TransportError:
                time.sleep(pause)
            except Refused as refused:
                if refused.status < _SERVER_ERROR:
                    raise
                time.sleep(max(pause, min(refused.retry_after_seconds or 0, _RETRY_SECONDS_MAX)))
        return self._json(method, path, **options)

    def _json(self, method: str, path: str, **options: Any) -> dict[str, Any]:  # noqa: ANN401
        found: dict[str, Any] = self._ask(method, path, **options).json()
        return found

    def _answer(self, answer: httpx.Response) -> Answer:
        found = msgspec.json.decode(answer.content, type=Answer)
        self._consistency[found.task_id] = found.consistency_token
        return found


def describe(path: Path) -> dict[str, Any]:
    """What is announced of a file: reads it once. Raises OSError, also where nothing is in it."""
    with path.open("rb") as file:
        sha256, size = hashlib.file_digest(file, "sha256").hexdigest(), file.tell()
    if not size:
        raise OSError(f"{path} is empty: there is nothing to upload")
    kind = content_type_of(path)
    return {"sha256": sha256, "size": size, "content_type": kind, "name": path.name}


def prove(path: Path, challenge: Mapping[str, Any]) -> str:
    """The answer to a challenge, from the file."""
    digest = hashlib.sha256(str(challenge["nonce"]).encode())
    with path.open("rb") as file:
        file.seek(int(challenge["offset"]))
        digest.update(file.read(int(challenge["length"])))
    return digest.hexdigest()


def _in_words(problem: Mapping[str, Any], code: str) -> str:
    """A problem as sentences: what is wrong, then what to do about it.

    A detail that is a sentence says it better than the title; a word or two only add to it. Where
    the help names a member, a person reads its value.
    """
    title, detail = str(problem.get("title") or code), str(problem.get("detail") or "")
    first = (
        detail if detail.endswith(_SENTENCE_ENDS) else f"{title} ({detail})" if detail else title
    )
    errors = "; ".join(
        f"{one.get('field')}: {one.get('message')}" for one in problem.get("errors") or ()
    )
    then = errors or str(problem.get("advice") or problem.get("help") or "")
    for name, value in {
        "`resets_at`": problem.get("resets_at"),
        "Retry-After": problem.get("retry_after_seconds"),
    }.items():
        if value is not None:
            then = then.replace(name, f"{value} s" if name == "Retry-After" else str(value))
    sentences = [
        told if told.endswith(_SENTENCE_ENDS) else f"{told}." for told in (first, then) if told
    ]
    return " ".join(sentences)


def _refusal(answer: httpx.Response) -> Refused:
    try:
        problem = answer.json()
    except ValueError:
        problem = {"title": answer.text[:200]}
    return Refused(answer.status_code, problem)


def _events(lines: Iterator[str]) -> Iterator[StreamEvent]:
    """The events of a stream, as its standard says: fields until an empty line."""
    event_id, name, data = "", "message", list[str]()
    for line in lines:
        if not line:
            if data:
                yield StreamEvent(event_id, name, msgspec.json.decode("\n".join(data)))
            event_id, name, data = "", "message", []
        elif not line.startswith(":"):
            field, _, value = line.partition(":")
            value = value.removeprefix(" ")
            match field:
                case "id":
                    event_id = value
                case "event":
                    name = value
                case "data":
                    data.append(value)
                case _:
                    pass
