"""The outermost shell of the app: bodies bounded and read, submissions served, the rest handed on.

`POST /v1/tasks` never enters the framework. Everything else gets its body read whole here
(bounded in size and time, strict JSON or nothing) and goes on to FastAPI. Whatever is raised
becomes a problem; what nobody expected is logged once, here.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from sse_starlette.sse import SendTimeoutError

from api import notifications, strict_json
from api.measures import Measures
from api.problems import Door, Problem, at_the_door
from api.submissions import PATH, Submissions
from schema.wires.telemetry import facts

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

BODY_SECONDS = 10.0
_WITH_BODY = frozenset({"POST", "PUT", "PATCH", "DELETE"})
_JSON = frozenset({b"application/json"})
_FROM_STORES = _JSON | {b"text/plain"}
"""SNS calls its JSON text."""
_UNKNOWN_ROUTE = "none"
_log = logging.getLogger(__name__)


class Gone(Exception):  # noqa: N818 - not an error: the client left
    """The client closed the connection before its request was whole."""


async def read_body(scope: Scope, receive: Receive, bytes_max: int) -> bytes:
    """The whole body; raises Problem (413, 408) or Gone."""
    for name, value in scope["headers"]:
        if name == b"content-length" and (not value.isdigit() or int(value[:12]) > bytes_max):
            raise _too_large()
    parts: list[bytes] = []
    size = 0
    try:
        async with asyncio.timeout(BODY_SECONDS):
            while True:
                message = await receive()
                if message["type"] == "http.disconnect":
                    raise Gone
                part = message.get("body", b"")
                size += len(part)
                if size > bytes_max:
                    raise _too_large()
                parts.append(part)
                if not message.get("more_body"):
                    break
    except TimeoutError:
        raise at_the_door(Door.BODY_TIMEOUT, headers={"connection": "close"}) from None
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _too_large() -> Problem:
    """The rest of the body is not read, so the connection ends with the answer."""
    return at_the_door(Door.BODY_TOO_LARGE, headers={"connection": "close"})


async def send_problem(send: Send, problem: Problem) -> None:
    """Answer with a problem document."""
    body = problem.body()
    headers = [
        (name.encode("latin-1"), value.encode("latin-1", "replace"))
        for name, value in problem.all_headers().items()
    ]
    headers.append((b"content-length", b"%d" % len(body)))
    await send({"type": "http.response.start", "status": problem.status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


class Edge:
    """The app that the server runs."""

    def __init__(
        self,
        rest: App,
        submissions: Submissions,
        measures: Measures,
        *,
        body_bytes_max: int,
        begin_stop: Callable[[], None],
    ) -> None:
        self._begin_stop = begin_stop
        self.rest = rest
        self._submissions = submissions
        self._measures = measures
        self._bytes_max = body_bytes_max
        self._submit_seconds = measures.seconds.labels(f"POST {PATH}")
        self._accepted = measures.requests.labels(f"POST {PATH}", "202")

    def begin_stop(self) -> None:
        """The server stops soon: see `Parts.begin_stop`."""
        self._begin_stop()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One connection's request (or the lifespan of the app)."""
        if scope["type"] == "lifespan":
            await self.rest(scope, receive, send)
        elif scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1000})
        elif scope["path"] == PATH and scope["method"] == "POST":
            await self._submit(scope, receive, send)
        else:
            await self._other(scope, receive, send)

    async def _submit(self, scope: Scope, receive: Receive, send: Send) -> None:
        started = time.perf_counter()
        try:
            body = await read_body(scope, receive, self._bytes_max)
            answer = await self._submissions.submit(dict(scope["headers"]), body)
        except Problem as problem:
            await self._refuse(send, f"POST {PATH}", problem)
        except Gone:
            return
        except Exception:  # noqa: BLE001 - the entry of a request
            _log.exception("request failed", extra=facts(route=f"POST {PATH}"))
            await self._refuse(send, f"POST {PATH}", at_the_door(Door.INTERNAL))
        else:
            await send(
                {
                    "type": "http.response.start",
                    "status": answer.status,
                    "headers": answer.headers,
                }
            )
            await send({"type": "http.response.body", "body": answer.body})
            self._accepted.inc()
        self._submit_seconds.observe(time.perf_counter() - started)

    async def _refuse(self, send: Send, route: str, problem: Problem) -> None:
        self._measures.refusals.labels(problem.code).inc()
        self._measures.requests.labels(route, str(problem.status)).inc()
        await send_problem(send, problem)

    async def _other(self, scope: Scope, receive: Receive, send: Send) -> None:
        started = time.perf_counter()
        status = 0

        async def counted(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            if scope["method"] in _WITH_BODY:
                body = await self._checked_body(scope, receive)
                receive = _replay(body, receive)
            await self.rest(scope, receive, counted)
        except Gone:
            return
        except Problem as problem:
            await self._failed(counted, scope, status, problem)
        except SendTimeoutError:
            _log.info("stream reader too slow", extra=facts(route=_route(scope)))
        except Exception:  # noqa: BLE001 - the entry of a request
            # The framework has answered already, unless it never saw the request.
            _log.exception("request failed", extra=facts(route=_route(scope)))
            if status == 0:
                await send_problem(counted, at_the_door(Door.INTERNAL))
        route = _route(scope)
        self._measures.requests.labels(route, str(status)).inc()
        if not route.endswith("/events"):
            self._measures.seconds.labels(route).observe(time.perf_counter() - started)

    async def _failed(self, send: Send, scope: Scope, status: int, problem: Problem) -> None:
        if status == 0:
            self._measures.refusals.labels(problem.code).inc()
            await send_problem(send, problem)
        else:
            _log.warning("answer cut off", extra=facts(route=_route(scope), code=problem.code))

    async def _checked_body(self, scope: Scope, receive: Receive) -> bytes:
        of_store = scope["path"] == notifications.PATH
        bytes_max = (
            max(self._bytes_max, notifications.BODY_BYTES_MAX) if of_store else self._bytes_max
        )
        decode = notifications.decode if of_store else strict_json.decode
        body = await read_body(scope, receive, bytes_max)
        if body:
            kind = next((value for name, value in scope["headers"] if name == b"content-type"), b"")
            kinds = _FROM_STORES if of_store else _JSON
            if kind.partition(b";")[0].strip().lower() not in kinds:
                raise at_the_door(Door.BODY_NOT_JSON)
            try:
                decode(body)
            except strict_json.NotStrictJsonError as error:
                raise at_the_door(Door.BODY_UNREADABLE, str(error)) from None
        return body


def _route(scope: Scope) -> str:
    """Method and template of the route: never the path itself, which anyone can choose."""
    route = scope.get("route")
    path = getattr(route, "path", None)
    return f"{scope['method']} {path}" if path else _UNKNOWN_ROUTE


def _replay(body: bytes, receive: Receive) -> Receive:
    """The body once more for whoever reads it next, then whatever comes."""
    told = False

    async def replayed() -> Message:
        nonlocal told
        if told:
            return await receive()
        told = True
        return {"type": "http.request", "body": body, "more_body": False}

    return replayed
