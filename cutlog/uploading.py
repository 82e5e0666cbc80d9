"""Sends a file in parts straight to the store, whatever becomes of the line meanwhile.

Several parts go at once. What is there is asked of the api and kept nowhere here, so whoever was
killed goes on where he was. After a part was cut off, parts go one by one in small pieces, so that
the next cut costs little; once the line has held for a while they go whole again.
"""

import random
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from enum import Enum
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final

import httpx
import msgspec

PART_BYTES: Final = 5 << 20
"""Of most uploads; the plan tells."""
LINES_MAX: Final = 4
"""Parts that are sent at once."""
_BLOCK_BYTES: Final = 64 << 10
_PATIENCE_SECONDS = 180.0
"""So long the line may break with nothing stored in between. Not so often: a cut ends what goes on
all lines at once, and cuts come in swarms."""
_PAUSE_SECONDS_MIN: Final = 0.1
_PAUSE_SECONDS_MAX: Final = 10.0
_CALM_PARTS: Final = 8
"""Stored in a row before parts go whole again; twice as many after each time it was too soon."""
_CALM_PARTS_MAX: Final = 128
_TOUCH_SECONDS: Final = 45
"""The api is asked so often, for tasks that wait for the upload."""
_PIECE_TYPE: Final = "application/octet-stream"

_PUT_TIMEOUT: Final = httpx.Timeout(30, read=60)

Ask = Callable[..., dict[str, Any]]
"""`ask(method, path, **options)` of the api; what fails for a moment is asked again in there."""
Tell = Callable[[int], None]
"""Hears how many more bytes are through; less than nothing when they were lost. From any thread."""


class UploadBrokenError(OSError):
    """The line broke for too long. Uploaded again, it goes on where it was."""


class UploadLostError(Exception):
    """The store knows the upload no more: announce the file again."""


class Part(msgspec.Struct, frozen=True, kw_only=True):
    """A part that is missing, and where it goes."""

    number: int
    url: str
    size: int


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """What the api says is to be sent."""

    part_bytes: int
    parts_count: int
    parts: list[Part]
    stored_bytes: int = 0


class _Piece(msgspec.Struct, frozen=True, kw_only=True):
    offset: int
    size: int
    url: str


class _Pieces(msgspec.Struct, frozen=True, kw_only=True):
    size: int
    stored_bytes: int
    missing: list[_Piece]


class _End(Enum):
    """What became of a part that was sent."""

    STORED = "stored"
    CUT = "cut"
    """The line broke."""
    BUSY = "busy"
    """The store did not take it now."""
    STALE = "stale"
    """Its address is not good any more."""


class Pace:
    """How many parts go at once, and whether they go whole."""

    def __init__(self, lines_max: int = LINES_MAX) -> None:
        self._lines_max = lines_max
        self._calm, self._needed = 0, _CALM_PARTS
        self._broke = False
        self.lines = 1
        self.whole = True

    def stored(self) -> None:
        """A part is through: one more at once, or soon whole ones again."""
        self._calm += 1
        if self.whole:
            self.lines = min(self.lines + 1, self._lines_max)
        elif self._calm >= self._needed:
            self.whole, self._calm = True, 0

    def cut(self) -> None:
        """The line broke: one at a time, in pieces."""
        if self._broke and self.whole and self._calm < self._needed:
            self._needed = min(2 * self._needed, _CALM_PARTS_MAX)
        self.whole, self.lines, self._calm, self._broke = False, 1, 0, True


class Upload:
    """One file on its way. `run` returns when every part is stored."""

    def __init__(
        self,
        ask: Ask,
        store: httpx.Client,
        path: Path,
        material_id: str,
        *,
        tell: Tell,
        lines_max: int = LINES_MAX,
    ) -> None:
        self._ask = ask
        self._store = store
        self._path = path
        self._at = f"/v1/materials/{material_id}/parts"
        self._tell = tell
        self._telling = threading.Lock()
        self._said = 0
        self._pace = Pace(lines_max)
        self._lines_max = lines_max
        self._broken_since: float | None = None
        self._asked_at = time.monotonic()
        self._ending = threading.Event()

    def run(self, plan: Plan) -> None:
        """Send what is missing.

        Raises UploadBrokenError, UploadLostError, httpx.HTTPStatusError; nothing is said to be
        through then.
        """
        self._through(plan.stored_bytes)
        try:
            with ThreadPoolExecutor(self._lines_max) as pool:
                try:
                    while plan.parts:
                        self._send(pool, plan)
                        plan = self._missing()
                finally:
                    self._ending.set()  # what still goes is given up: the pool waits for its end
        except BaseException:
            self.forget()
            raise

    def forget(self) -> None:
        """Take back what was said to be through."""
        self._through(-self._said)

    def _missing(self) -> Plan:
        self._asked_at = time.monotonic()
        found = self._ask("GET", self._at)
        parts = msgspec.convert(found["missing"], list[Part])
        return Plan(part_bytes=found["part_bytes"], parts_count=found["parts_count"], parts=parts)

    def _send(self, pool: ThreadPoolExecutor, plan: Plan) -> None:
        """Every part of the plan once, and those that were cut off again."""
        waiting = deque(plan.parts)
        running: dict[Future[_End], Part] = {}
        while waiting or running:
            while waiting and len(running) < self._pace.lines:
                part = waiting.popleft()
                send = self._whole if self._pace.whole else self._in_pieces
                running[pool.submit(send, part, plan.part_bytes)] = part
            done, _ = wait(running, _TOUCH_SECONDS, FIRST_COMPLETED)
            stale = False
            for future in done:
                part, end = running.pop(future), future.result()
                stale |= end is _End.STALE
                if self._ended(end):
                    waiting.appendleft(part)
            if stale:
                waiting.clear()  # every address is as old: new ones come with the next plan
            elif time.monotonic() - self._asked_at > _TOUCH_SECONDS:
                self._asked_at = time.monotonic()
                self._ask("GET", self._at, params={"missing": False, "limit": 1})

    def _ended(self, end: _End) -> bool:
        """What follows from it; whether the part is to be sent again."""
        match end:
            case _End.STORED:
                self._broken_since = None
                self._pace.stored()
                return False
            case _End.STALE:
                self._failed("the store takes none of its own addresses")
                return False
            case _End.CUT:
                self._pace.cut()
                self._failed("the line to the store breaks")
            case _End.BUSY:
                self._failed("the store takes nothing")
        return True

    def _failed(self, why: str) -> None:
        """Wait, longer each time; raises UploadBrokenError when that has gone on for long."""
        now = time.monotonic()
        since = self._broken_since = self._broken_since or now
        broken = now - since
        if broken > _PATIENCE_SECONDS:
            raise UploadBrokenError(f"{why}; upload it again, it goes on where it was")
        longest = min(max(broken, _PAUSE_SECONDS_MIN), _PAUSE_SECONDS_MAX)
        self._ending.wait(longest * random.uniform(0.5, 1.0))  # noqa: S311 - not a secret

    # --- one part --------------------------------------------------------------------------------

    def _whole(self, part: Part, part_bytes: int) -> _End:
        return self._put(part.url, (part.number - 1) * part_bytes, part.size, {})

    def _in_pieces(self, part: Part, part_bytes: int) -> _End:
        """Piece by piece, each as often as it takes; then the api makes the part of them."""
        at, begin = f"{self._at}/{part.number}", (part.number - 1) * part_bytes
        found = msgspec.convert(self._ask("GET", f"{at}/pieces"), _Pieces)
        through = found.stored_bytes
        self._through(through)
        for piece in found.missing:
            while True:
                end = self._put(
                    piece.url, begin + piece.offset, piece.size, {"Content-Type": _PIECE_TYPE}
                )
                if end is _End.STORED:
                    through += piece.size
                    self._broken_since = None
                    break
                if end is _End.STALE or self._ending.is_set():
                    self._through(-through)
                    return end
                if end is _End.CUT:
                    self._pace.cut()
                self._failed("the line to the store breaks")
        self._ask("POST", f"{at}/join")
        return _End.STORED

    def _put(self, url: str, begin: int, size: int, headers: Mapping[str, str]) -> _End:
        """Send these bytes of the file; raises UploadLostError, httpx.HTTPStatusError."""
        sent = 0

        def content() -> Iterator[bytes]:
            nonlocal sent
            with self._path.open("rb") as file:
                file.seek(begin)
                while sent < size and not self._ending.is_set():
                    block = file.read(min(_BLOCK_BYTES, size - sent))
                    if not block:
                        raise OSError(f"{self._path} became shorter while it was sent")
                    yield block
                    sent += len(block)
                    self._through(len(block))

        end = _End.BUSY
        try:
            answer = self._store.put(
                url,
                content=content(),
                headers={**headers, "Content-Length": str(size)},
                timeout=_PUT_TIMEOUT,
            )
            end = _end_of(answer)
        except httpx.TransportError:
            end = _End.CUT if sent else _End.BUSY  # a line that is down loses nothing
        finally:
            if end is not _End.STORED:
                self._through(-sent)
        return end

    def _through(self, count: int) -> None:
        if count:
            with self._telling:
                self._said += count
                self._tell(count)


def _end_of(answer: httpx.Response) -> _End:
    """What the store says of what was sent to it."""
    match answer.status_code:
        case HTTPStatus.OK:
            return _End.STORED
        case HTTPStatus.FORBIDDEN:
            return _End.STALE
        case HTTPStatus.NOT_FOUND:
            raise UploadLostError(answer.text[:200])
        case HTTPStatus.BAD_REQUEST | HTTPStatus.REQUEST_TIMEOUT | HTTPStatus.TOO_MANY_REQUESTS:
            return _End.BUSY  # S3 says 400 of a body that came too slowly
        case status if status >= HTTPStatus.INTERNAL_SERVER_ERROR:
            return _End.BUSY
        case _:
            answer.raise_for_status()
            return _End.BUSY
