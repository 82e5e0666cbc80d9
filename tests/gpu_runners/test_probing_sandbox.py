"""The process that looks at a stranger's file: what it may not, and what becomes of its end."""

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from PIL import Image

from gpu_runners.probing.limits import MaterialLimits, ProcessLimits
from gpu_runners.probing.sandbox import ProbeUnavailableError, Sandbox
from gpu_runners.probing.verdicts import Verdict
from schema.refusals import MaterialRefusal
from tests.gpu_runners.corpus import Forge

pytestmark = pytest.mark.media

ROOT = Path(__file__).parents[2]
INSIDE = """
import ctypes, os, platform, resource, signal, socket, sys
from pathlib import Path
from gpu_runners.probing.limits import ProcessLimits
from gpu_runners.probing.seal import seal

source, folder, other = (Path(one) for one in sys.argv[1:])
missing = seal(source, folder, ProcessLimits(file_bytes=1000, memory_bytes=1 << 30))
libc = ctypes.CDLL(None, use_errno=True)
# By the numbers of the kernel, as who has taken the process over would call.
names = ("tkill", "tgkill", "rt_sigqueueinfo", "pidfd_open", "unshare", "shmget", "keyctl")
numbers = {
    "x86_64": (200, 234, 129, 434, 272, 29, 250),
    "aarch64": (130, 131, 138, 434, 97, 194, 219),
}
number = dict(zip(names, numbers[platform.machine()]))


def call(name, *arguments):
    if libc.syscall(number[name], *arguments) < 0:
        raise OSError(ctypes.get_errno(), name)


parent = os.getppid()
tries = {
    "signals a thread": lambda: call("tkill", parent, 0),
    "signals a thread of a process": lambda: call("tgkill", parent, parent, 0),
    "queues a signal": lambda: call("rt_sigqueueinfo", parent, 0, bytes(128)),
    "holds another process": lambda: call("pidfd_open", parent, 0),
    "limits another process": lambda: resource.prlimit(parent, resource.RLIMIT_NOFILE, (99, 99)),
    "sees another's limits": lambda: resource.prlimit(parent, resource.RLIMIT_NOFILE),
    "nices another": lambda: os.setpriority(os.PRIO_PROCESS, parent, 10),
    "binds another to a core": lambda: os.sched_setaffinity(parent, {0}),
    "makes a namespace": lambda: call("unshare", 0x10000000),
    "shares memory": lambda: call("shmget", 0, 4096, 0o1600),
    "has keys": lambda: call("keyctl", 0, -3, 1),
    "sees its own limits": lambda: resource.getrlimit(resource.RLIMIT_NOFILE),
    "signals itself": lambda: signal.raise_signal(signal.SIGCONT),
    "reads its source": lambda: source.read_bytes(),
    "writes its folder": lambda: (folder / "own").write_bytes(b"x" * 900),
    "writes much": lambda: (folder / "much").write_bytes(b"x" * 2000),
    "takes much memory": lambda: bytearray(2 << 30),
    "opens many files": lambda: [source.open() for _ in range(40)],
    "reads another file": other.read_bytes,
    "reads its parent": lambda: Path(f"/proc/{os.getppid()}/environ").read_bytes(),
    "writes beside": lambda: (source.parent / "beside").write_bytes(b"x"),
    "writes its source": lambda: source.write_bytes(b"x"),
    "calls a host": lambda: socket.create_connection(("127.0.0.1", 9), 1),
    "has a socket": socket.socket,
    "forks": os.fork,
    "runs a program": lambda: os.execv("/bin/true", ["true"]),
    "signals": lambda: os.kill(os.getppid(), 0),
}
for name, attempt in tries.items():
    try:
        attempt()
        print(name)
    except (OSError, MemoryError):
        pass
print("missing", *missing)
"""


def sandbox(**process: float) -> Sandbox:
    return Sandbox(MaterialLimits(), ProcessLimits(**process))  # type: ignore[arg-type]


async def look(path: Path, **process: float) -> Verdict:
    return await sandbox(**process).look(path, content_type="", seconds_max=0)


def test_a_process_that_is_shut_in_reads_its_file_and_does_nothing_else(tmp_path: Path) -> None:
    folder, source, other = tmp_path / "own", tmp_path / "source", tmp_path / "other"
    folder.mkdir()
    source.write_bytes(b"source")
    other.write_bytes(b"other")
    done = subprocess.run(
        [sys.executable, "-c", INSIDE, str(source), str(folder), str(other)],
        cwd=ROOT,
        capture_output=True,
        check=True,
        text=True,
    )
    *did, last = done.stdout.splitlines()
    if last != "missing":
        pytest.skip(f"this kernel has no {last.removeprefix('missing ')}")
    own = ["sees its own limits", "signals itself"]
    assert did == [*own, "reads its source", "writes its folder"]
    assert source.read_bytes() == b"source"


@pytest.fixture(scope="module")
def long_film(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Minutes of it, which take seconds to decode."""
    folder = tmp_path_factory.mktemp("long")
    forge = Forge(folder, 9)
    out = folder / "long.mp4"
    forge.film(
        folder / "from-loop.mp4",
        *("-c:v", "libx264", "-preset", "ultrafast", "-an"),
        picture="testsrc2=s=1280x720:r=25:d=2",
        sound="-",
    )
    forge.again(out, "-c", "copy", source="loop.mp4", before=("-stream_loop", "60"))
    return out


async def test_too_much_computing_is_a_refusal(long_film: Path) -> None:
    verdict = await look(long_film, cpu_seconds=1)
    assert verdict.reason is MaterialRefusal.PROBE_LIMIT
    assert "computing" in verdict.detail


async def test_too_long_a_look_is_a_refusal_and_leaves_no_process(long_film: Path) -> None:
    verdict = await look(long_film, wall_seconds=0.4)
    assert verdict.reason is MaterialRefusal.PROBE_LIMIT
    assert "too long" in verdict.detail
    assert psutil.Process().children(recursive=True) == []


async def test_too_much_memory_is_a_refusal(tmp_path: Path) -> None:
    large = tmp_path / "large.png"
    Image.new("RGB", (14_000, 14_000)).save(large, compress_level=1)
    verdict = await look(large, memory_bytes=700 << 20)
    assert verdict.reason is MaterialRefusal.PROBE_LIMIT
    assert "memory" in verdict.detail
    taken = await look(large)
    assert taken.facts is not None
    assert taken.facts.pixels == 14_000 * 14_000


async def test_beyond_what_is_decoded_whole_key_frames_tell(long_film: Path) -> None:
    limits = MaterialLimits(decoded_pixels_max=1280 * 720 * 50)
    small = await Sandbox(limits, ProcessLimits()).look(long_film, content_type="", seconds_max=0)
    assert small.facts is not None
    assert small.facts.frames == 61 * 50
    assert abs(small.facts.duration_ms - 122_000) <= 60
    assert small.facts.frame_rate == "25/1"


async def test_what_kills_the_reader_is_damaged_and_what_kills_it_from_outside_is_tried_again() -> (
    None
):
    one = sandbox()
    crashed = one.verdict_of(b"", b"", -signal.SIGSEGV, late=False, last=False)
    assert crashed is not None
    assert crashed.reason is MaterialRefusal.DAMAGED
    assert one.verdict_of(b"", b"", -signal.SIGKILL, late=False, last=False) is None
    with pytest.raises(ProbeUnavailableError):
        one.verdict_of(b"", b"no module", 1, late=False, last=True)


async def test_the_process_knows_nothing_of_our_settings(
    long_film: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUTLOG_OBJECTS_SECRET_KEY", "nobody-may-know")
    looking = asyncio.create_task(look(long_film))
    ours = psutil.Process()
    while not (children := ours.children()):  # noqa: ASYNC110 - it is no event of ours
        await asyncio.sleep(0)
    environ = await asyncio.to_thread(_environ, children[0].pid)
    looking.cancel()
    await asyncio.wait([looking])
    assert "CUTLOG_OBJECTS_SECRET_KEY" in os.environ
    assert b"nobody-may-know" not in environ
    assert b"TMPDIR=" in environ
    assert ours.children() == []


def _environ(pid: int) -> bytes:
    """Of the program that was started: there a moment after its process, and after its name.

    One that ends meanwhile shows none any more.
    """
    while psutil.Process(pid).status() != psutil.STATUS_ZOMBIE:
        if b"gpu_runners.probing.child" in Path(f"/proc/{pid}/cmdline").read_bytes():
            found = Path(f"/proc/{pid}/environ").read_bytes()
            if found:
                return found
    raise AssertionError("it ended before it was looked at")
