"""Chromium as a person has it: films are played, pictures shown and streams heard in a real one.

`find_chromium` looks for what is installed (or what `CUTLOG_CHROMIUM` names), and tries once to
install Debian's package where we may. The browser is headless, needs no GPU, and nothing of it is
left when its `with` ends. It is driven from a thread of its own, so that tests may be plain
functions and other tests may have event loops of theirs.
"""

import asyncio
import functools
import os
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Coroutine
from concurrent.futures import Future
from contextlib import ExitStack, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from queue import Queue
from typing import Any, Final, NamedTuple, Self, TypeVar
from uuid import uuid4

import msgspec
import psutil
from playwright.async_api import BrowserContext, Page, Playwright, Request, async_playwright

from schema.wires.processes import environ_of

T = TypeVar("T")

NAMES: Final = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
MISSING: Final = (
    "no Chromium here: install Debian's package chromium (apt-get install chromium) or Google "
    "Chrome, or name one in CUTLOG_CHROMIUM"
)
GRID: Final = 32
"""What is seen is told in this many columns and rows of red, green and blue."""

_INSTALL_SECONDS: Final = 240
_PATIENCE_SECONDS: Final = 120
_MARK: Final = "CUTLOG_BROWSER"
_SCRIPT: Final = Path(__file__).with_name("browser.js")
_ARGUMENTS: Final = (
    "--autoplay-policy=no-user-gesture-required",
    "--disable-dev-shm-usage",
    "--disable-gpu",
    "--mute-audio",
)


# --------------------------------------------------------------------------------- where one is


@functools.cache
def find_chromium() -> Path | None:
    """A Chromium that starts, installed first where that is possible; None: there is none."""
    named = os.environ.get("CUTLOG_CHROMIUM")
    if named is not None:
        return Path(named) if Path(named).is_file() else None
    found = _installed()
    if found is None and _may_install():
        _install()
        found = _installed()
    return found


def _installed() -> Path | None:
    for name in NAMES:
        found = shutil.which(name)
        if found is not None:
            return Path(found)
    return None


def _may_install() -> bool:
    """Root on a Debian: others call a package `chromium` that is something else."""
    release = Path("/etc/os-release")
    ours = release.exists() and "ID=debian" in release.read_text().splitlines()
    return ours and os.geteuid() == 0 and shutil.which("apt-get") is not None


def _install() -> None:
    """Install Debian's package, or not: the tests say what is missing."""
    apt = ("apt-get", "-qq", "-o", "Acquire::http::Timeout=20", "-o", "Acquire::Retries=1")
    with suppress(OSError, subprocess.TimeoutExpired):
        for rest in (("update",), ("install", "--yes", "--no-install-recommends", "chromium")):
            subprocess.run(
                [*apt, "-o", "DPkg::Lock::Timeout=60", *rest],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env={**os.environ, "DEBIAN_FRONTEND": "noninteractive"},
                timeout=_INSTALL_SECONDS / 2,
                check=False,
            )


# --------------------------------------------------------------------------------- what is seen


class Seen(msgspec.Struct, frozen=True, kw_only=True):
    """One place of a film, once the browser had gone there."""

    seconds: float
    ready_state: int
    grid: bytes
    """GRID x GRID colours of three bytes: the picture that stood there."""


class FilmSeen(msgspec.Struct, frozen=True, kw_only=True):
    """What a `<video>` told of a film that was played and looked through."""

    width: int
    height: int
    seconds: float
    places: tuple[Seen, ...]
    frames: tuple[int, ...]
    """Decoded so far: at its first picture, after its first moments, and at its end."""
    sound_bytes: int
    """Of decoded sound."""
    ended: bool


class PictureSeen(msgspec.Struct, frozen=True, kw_only=True):
    width: int
    height: int
    grid: bytes
    """GRID x GRID colours of three bytes, over black."""
    alpha: bytes
    """GRID x GRID bytes: how much of it is there."""


class Told(msgspec.Struct, frozen=True, kw_only=True):
    """One event as an `EventSource` told it."""

    id: str
    name: str
    data: dict[str, Any]


class StreamHeard(msgspec.Struct, frozen=True, kw_only=True):
    """A stream of events until the browser was told not to come back."""

    events: tuple[Told, ...]


class Fetch(NamedTuple):
    """A request of the browser's that was answered."""

    url: str
    status: int
    asked: str
    """Its header `Range`."""
    got: str
    """The answer's `Content-Range`."""


# --------------------------------------------------------------------------------- the browser


class Browser:
    """A headless Chromium, open for as long as its `with`."""

    def __init__(self, executable: Path) -> None:
        self._executable = executable
        self._mark = uuid4().hex
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, name="browser")
        self._ends = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as ends:
            home = ends.enter_context(tempfile.TemporaryDirectory(prefix="cutlog-browser-"))
            ends.callback(self.loop.close)
            self._thread.start()
            ends.callback(self._thread.join)
            ends.callback(lambda: self.loop.call_soon_threadsafe(self.loop.stop))
            ends.callback(self._end_processes)
            self._playwright: Playwright = self.do(async_playwright().start())
            ends.callback(lambda: self.do(self._playwright.stop()))
            self.chromium = self.do(
                self._playwright.chromium.launch(
                    executable_path=self._executable,
                    args=list(_ARGUMENTS),
                    env={**os.environ, "HOME": home, _MARK: self._mark},
                    handle_sigint=False,
                    handle_sigterm=False,
                    handle_sighup=False,
                )
            )
            ends.callback(lambda: self.do(self.chromium.close()))
            self.host = ends.enter_context(Host())
            self._ends = ends.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._ends.close()

    @property
    def version(self) -> str:
        return self.chromium.version

    def processes(self) -> list[psutil.Process]:
        """Every process of this browser that lives."""
        found: list[psutil.Process] = []
        for process in psutil.process_iter():
            with suppress(psutil.Error, OSError):
                if environ_of(process.pid).get(_MARK) == self._mark:
                    found.append(process)
        return found

    def open(self, address: str = "", headers: dict[str, str] | None = None) -> "Tab":
        """An empty page of another origin than what it shows, or the page at that address.

        `headers` go with each of its requests.
        """
        return Tab(self, address or self.host.url, headers or {})

    def do(self, work: Coroutine[Any, Any, T]) -> T:
        """Wait for something that happens in the browser's thread."""
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(_PATIENCE_SECONDS)

    def _end_processes(self) -> None:
        _, alive = psutil.wait_procs(self.processes(), timeout=10)
        for process in alive:
            with suppress(psutil.NoSuchProcess):
                process.kill()
        psutil.wait_procs(alive, timeout=10)


class Tab:
    """One page, with the requests that it has made."""

    def __init__(self, browser: Browser, address: str, headers: dict[str, str]) -> None:
        self._browser = browser
        self._do = browser.do
        self._address = address
        self._headers = headers
        self.fetched: list[Fetch] = []

    def __enter__(self) -> Self:
        self._do(self._start())
        return self

    async def _start(self) -> None:
        """All of it in the browser's thread: even to listen is to send."""
        self._context: BrowserContext = await self._browser.chromium.new_context(
            extra_http_headers=self._headers
        )
        self._page: Page = await self._context.new_page()
        self._page.on("requestfinished", self._note)
        self._page.on("requestfailed", self._note)
        await self._page.goto(self._address)
        await self._page.evaluate(_SCRIPT.read_text())

    def __exit__(self, *_: object) -> None:
        self._do(self._context.close())

    async def _note(self, request: Request) -> None:
        """A player breaks a request off once it has what it wants; that is an answer too."""
        answer = request.existing_response
        if answer is not None:
            asked = request.headers.get("range", "")
            got = answer.headers.get("content-range", "")
            self.fetched.append(Fetch(request.url, answer.status, asked, got))

    def film(self, address: str, at: tuple[float, ...] = (0.25, 0.5, 0.75)) -> FilmSeen:
        """Play its first moments, look at these parts of its length, and play it to its end."""
        return self._ask("watchFilm", FilmSeen, [address, list(at), GRID])

    def begins(self, address: str) -> "Future[float]":
        """Play a film; its seconds once it runs, while the rest may still be on its way."""
        return asyncio.run_coroutine_threadsafe(
            self._page.evaluate("given => playFirst(...given)", [address]), self._browser.loop
        )

    def picture(self, address: str) -> PictureSeen:
        """Show a picture."""
        return self._ask("showPicture", PictureSeen, [address, GRID])

    def stream(self, path: str, names: tuple[str, ...]) -> StreamHeard:
        """Hear these events of a stream of the page's own origin, until it is over."""
        return self._ask("hearStream", StreamHeard, [path, list(names)])

    def download_name(self, address: str) -> str:
        """Under which name a link to this address is saved."""
        return self._do(self._download_name(address))

    async def _download_name(self, address: str) -> str:
        async with self._page.expect_download() as coming:
            await self._page.evaluate("given => followLink(given)", address)
        download = await coming.value
        await download.cancel()
        return download.suggested_filename

    def _ask(self, name: str, kind: type[T], given: list[Any]) -> T:
        found = self._do(self._page.evaluate(f"given => {name}(...given)", given))
        return msgspec.convert(found, kind)


# --------------------------------------------------------------------------------- a host of pages


class Held:
    """A file of which only the beginning is given out until `rest` is set."""

    def __init__(self, content: bytes, first: int) -> None:
        self.content = content
        self.first = first
        self.rest = threading.Event()
        self.asked: Queue[int] = Queue()
        """Where each request for it began."""


class Host:
    """An empty page for a browser to stand on, and files that are held back."""

    def __init__(self) -> None:
        self._held: dict[str, Held] = {}
        held = self._held

        class Answers(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                self.close_connection = True
                with suppress(OSError):
                    if self.path in held:
                        _give(self, held[self.path])
                    else:
                        _page(self)

            def log_message(self, format: str, *_: object) -> None:  # noqa: A002
                """Say nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Answers)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, name="browser-host")

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        for held in self._held.values():
            held.rest.set()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}/"

    def hold(self, content: bytes, first: int) -> tuple[str, Held]:
        """The address of a file, and what lets the rest of it go."""
        path = f"/{uuid4().hex}.mp4"
        self._held[path] = Held(content, first)
        return self.url.rstrip("/") + path, self._held[path]


def _page(answer: BaseHTTPRequestHandler) -> None:
    body = b"<!doctype html><meta charset=utf-8><title>Cutlog</title><body></body>"
    answer.send_response(200)
    answer.send_header("Content-Type", "text/html; charset=utf-8")
    answer.send_header("Content-Length", str(len(body)))
    answer.end_headers()
    answer.wfile.write(body)


def _give(answer: BaseHTTPRequestHandler, held: Held) -> None:
    """Answer a request with or without a range (`bytes=FROM-` or `bytes=FROM-TO`)."""
    size = len(held.content)
    asked = answer.headers.get("Range", "")
    begin, _, end = asked.removeprefix("bytes=").partition("-")
    first = int(begin or 0)
    held.asked.put(first)
    last = min(int(end or size - 1), size - 1)
    answer.send_response(206 if asked else 200)
    answer.send_header("Content-Type", "video/mp4")
    answer.send_header("Accept-Ranges", "bytes")
    answer.send_header("Access-Control-Allow-Origin", "*")
    answer.send_header("Content-Length", str(last + 1 - first))
    if asked:
        answer.send_header("Content-Range", f"bytes {first}-{last}/{size}")
    answer.end_headers()
    middle = max(first, min(held.first, last + 1))
    answer.wfile.write(held.content[first:middle])
    answer.wfile.flush()
    if middle <= last:
        held.rest.wait(_PATIENCE_SECONDS)
        answer.wfile.write(held.content[middle : last + 1])
