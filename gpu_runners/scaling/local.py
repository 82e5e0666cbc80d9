"""The local executor: starts and stops runner processes of this machine until pools have theirs.

A runner too many is told to drain (SIGTERM): an idle one first, then the youngest. It is killed
only when it outlives its drain limit. One that dies is started again, later each time it dies
young. The runners outlive a killed executor; the next one finds them and goes on.
"""

import fcntl
import http.client
import logging
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Final, NamedTuple

import msgspec
from prometheus_client import CollectorRegistry, Counter, Gauge
from prometheus_client.parser import text_string_to_metric_families

from gpu_runners.lease import clock
from gpu_runners.scaling.processes import (
    MARK_DIRECTORY,
    MARK_RUNNER,
    Files,
    Kept,
    find_marked,
    send,
)
from gpu_runners.scaling.wanted import Want
from schema.ids import PoolId
from schema.settings import Scaling
from schema.wires.processes import identify, is_alive
from schema.wires.telemetry import facts

log = logging.getLogger(__name__)

_ROOT: Final = Path(__file__).parents[2]
_REST_SECONDS: Final = (0.2, 1.0, 2.0, 5.0, 15.0, 30.0)
"""Before one that died is started again: longer while it dies young."""
_GROWN_UP_SECONDS: Final = 30.0
_LOG_BYTES_MAX: Final = 32 << 20
_ASK_SECONDS: Final = 1.0
_STACK_DIRECTORY: Final = "CUTLOG_STACK_DIRECTORY"
_STACK_PART: Final = "CUTLOG_STACK_PART"


class FleetTakenError(Exception):
    """Another executor looks after the runners of this folder."""


class _Rest(NamedTuple):
    """A number whose runner died: when it may be tried again, and how often it died young."""

    until: float
    young_ends: int


class Figures:
    """What the executor counts."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.running = Gauge(
            "cutlog_scaling_runners",
            "Runner processes: working, draining.",
            ["pool", "state"],
            registry=registry,
        )
        self.starts = Counter(
            "cutlog_scaling_starts", "Runners that were started.", ["pool"], registry=registry
        )
        self.ends = Counter(
            "cutlog_scaling_ends",
            "Runners that ended: drained, died, or killed beyond their drain limit.",
            ["pool", "how"],
            registry=registry,
        )


class LocalFleet:
    """The runners of one folder. `step` brings them closer to what is wanted; call it often."""

    def __init__(self, settings: Scaling, environ: Mapping[str, str], figures: Figures) -> None:
        self._settings = settings
        self._directory = Path(settings.directory).resolve()
        self._environ = environ
        self._figures = figures
        self._folder = self._directory / "runners"
        for folder in (self._folder, self._directory / "logs", self._directory / "work"):
            folder.mkdir(parents=True, exist_ok=True)
        self._lock = _only_one(self._directory)
        self._files = Files(self._folder)
        self._children: dict[int, subprocess.Popen[bytes]] = {}
        self._rests: dict[tuple[PoolId, int], _Rest] = {}
        self._young: dict[tuple[PoolId, int], tuple[float, int]] = {}
        """When this number was started last, and how often it had died young before."""
        self._runners = self._adopt()

    @property
    def runners(self) -> list[Kept]:
        """Every runner that was alive at the last look."""
        return list(self._runners.values())

    def close(self) -> None:
        """Let another executor have the folder; the runners go on."""
        self._lock.close()

    def step(self, wanted: Mapping[PoolId, Want]) -> None:
        """See who ended, end who overstays, drain who is too many, start who is missing."""
        self._bury()
        self._end_overstayers()
        for pool_id in sorted({*wanted, *(kept.pool_id for kept in self._runners.values())}):
            want = wanted.get(pool_id, Want(0, 1, spot=False))
            working = [
                kept
                for kept in self._runners.values()
                if kept.pool_id == pool_id and kept.draining_since is None
            ]
            if len(working) > want.cards:
                self._drain(working, len(working) - want.cards)
            else:
                self._start_missing(pool_id, want, len(working))
            self._count(pool_id)

    # --- who is there ----------------------------------------------------------------------------

    def _adopt(self) -> dict[str, Kept]:
        """The runners that an executor before us left, by their files and by their marks."""
        files, marked = self._files.read(), find_marked(self._directory)
        found: dict[str, Kept] = {}
        for name in sorted({*files, *marked}):
            kept, process = files.get(name), marked.get(name)
            if kept is not None and is_alive(kept.process):
                found[name] = kept
            elif process is not None:
                pool_id, _, number = name.removeprefix(self._settings.name_prefix + "-").rpartition(
                    "-"
                )
                one = Kept(name=name, pool_id=PoolId(pool_id), number=int(number), process=process)
                self._files.write(one)
                found[name] = one
            else:
                self._files.remove(name)
        for kept in found.values():
            if kept.draining_since is not None:  # written down, but perhaps not told any more
                send(kept.process, signal.SIGCONT, signal.SIGTERM)
        if found:
            log.info("found runners", extra=facts(runners=sorted(found)))
        return found

    def _bury(self) -> None:
        for pid, child in list(self._children.items()):
            if child.poll() is not None:
                del self._children[pid]
        for name, kept in list(self._runners.items()):
            if is_alive(kept.process):
                continue
            del self._runners[name]
            self._files.remove(name)
            if kept.draining_since is not None:
                self._figures.ends.labels(kept.pool_id, "drained").inc()
                log.info("a runner has drained", extra=facts(runner=name))
                continue
            self._figures.ends.labels(kept.pool_id, "died").inc()
            rest = self._rest(kept)
            log.warning("a runner died", extra=facts(runner=name, young_ends=rest.young_ends))

    def _rest(self, kept: Kept) -> _Rest:
        place = (kept.pool_id, kept.number)
        began, before = self._young.get(place, (0.0, 0))
        young = before + 1 if clock() - began < _GROWN_UP_SECONDS else 0
        pause = _REST_SECONDS[min(young, len(_REST_SECONDS) - 1)]
        rest = self._rests[place] = _Rest(clock() + pause, young)
        return rest

    def _count(self, pool_id: PoolId) -> None:
        mine = [kept for kept in self._runners.values() if kept.pool_id == pool_id]
        draining = sum(kept.draining_since is not None for kept in mine)
        self._figures.running.labels(pool_id, "working").set(len(mine) - draining)
        self._figures.running.labels(pool_id, "draining").set(draining)

    # --- fewer -----------------------------------------------------------------------------------

    def _drain(self, working: list[Kept], count: int) -> None:
        """Idle ones first, then the youngest: they have the least to hand back."""
        busy = {kept.name: self._busy_slots(kept) for kept in working}
        order = sorted(
            working,
            key=lambda kept: (busy[kept.name], -kept.process.start_ticks, -kept.number),
        )
        for kept in order[:count]:
            told = msgspec.structs.replace(kept, draining_since=clock())
            self._files.write(told)  # first: whoever comes after us must not take it for working
            self._runners[kept.name] = told
            send(kept.process, signal.SIGCONT, signal.SIGTERM)
            log.info("draining a runner", extra=facts(runner=kept.name, busy=busy[kept.name]))

    def _busy_slots(self, kept: Kept) -> int:
        """Slots at work, in the runner's own words; one that does not answer yet has none."""
        try:
            told = msgspec.json.decode((self._folder / f"{kept.name}.ready").read_bytes())
            connection = http.client.HTTPConnection(
                "127.0.0.1", int(told["metrics_port"]), timeout=_ASK_SECONDS
            )
            connection.request("GET", "/metrics")
            text = connection.getresponse().read().decode()
            connection.close()
        except (OSError, http.client.HTTPException, msgspec.DecodeError, KeyError, ValueError):
            return 0
        for family in text_string_to_metric_families(text):
            if family.name == "cutlog_runner_busy_slots":
                return sum(int(sample.value) for sample in family.samples)
        return 0

    def _end_overstayers(self) -> None:
        for kept in self._runners.values():
            since = kept.draining_since
            if since is not None and clock() - since > self._settings.drain_limit_seconds:
                log.error("a runner outlived its drain limit", extra=facts(runner=kept.name))
                self._figures.ends.labels(kept.pool_id, "killed").inc()
                send(kept.process, signal.SIGKILL)

    # --- more ------------------------------------------------------------------------------------

    def _start_missing(self, pool_id: PoolId, want: Want, working: int) -> None:
        """One that rests after it died counts as there: its place is not given to another."""
        used = {kept.number for kept in self._runners.values() if kept.pool_id == pool_id}
        missing, number = want.cards - working, 0
        while missing > 0:
            number += 1
            if number in used:
                continue
            missing -= 1
            rest = self._rests.get((pool_id, number))
            if rest is None or clock() >= rest.until:
                self._start(pool_id, number, want, rest.young_ends if rest else 0)

    def _start(self, pool_id: PoolId, number: int, want: Want, young_ends: int) -> None:
        name = f"{self._settings.name_prefix}-{pool_id}-{number}"
        path = self._directory / "logs" / f"{name}.log"
        if path.exists() and path.stat().st_size > _LOG_BYTES_MAX:
            path.rename(path.with_suffix(".log.1"))
        ready = self._folder / f"{name}.ready"
        ready.unlink(missing_ok=True)
        with path.open("ab") as out:
            child = subprocess.Popen(
                [sys.executable, "-m", "gpu_runners"],
                cwd=_ROOT,
                env=self._environ_of(name, pool_id, want, ready),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self._children[child.pid] = child
        self._rests.pop((pool_id, number), None)
        self._young[pool_id, number] = (clock(), young_ends)
        self._figures.starts.labels(pool_id).inc()
        process = identify(child.pid)
        if process is None:
            return  # it has ended already: it is missing at the next step
        kept = Kept(name=name, pool_id=pool_id, number=number, process=process)
        self._files.write(kept)
        self._runners[name] = kept
        log.info("started a runner", extra=facts(runner=name, pid=child.pid, slots=want.slots))

    def _environ_of(self, name: str, pool_id: PoolId, want: Want, ready: Path) -> dict[str, str]:
        """Ours, but for what makes it this runner; `_STACK_PART` only where we have a stack's."""
        own = {
            "CUTLOG_RUNNER_RUNNER_ID": name,
            "CUTLOG_RUNNER_POOL_ID": pool_id,
            "CUTLOG_RUNNER_SLOTS": str(want.slots),
            "CUTLOG_RUNNER_SPOT": str(want.spot).lower(),
            "CUTLOG_RUNNER_WORK_DIRECTORY": str(self._directory / "work" / name),
            "CUTLOG_RUNNER_METRICS_PORT": "0",
            "CUTLOG_PROCESS_READY_FILE": str(ready),
            MARK_DIRECTORY: str(self._directory),
            MARK_RUNNER: name,
        }
        if _STACK_DIRECTORY in self._environ:
            own[_STACK_PART] = name
        return {**self._environ, **own}


def _only_one(directory: Path) -> IO[str]:
    """The folder's lock, held while the file is open; raises FleetTakenError for a second one."""
    lock = (directory / "scaling.lock").open("w")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        lock.close()
        raise FleetTakenError(f"another executor looks after {directory}") from None
    return lock
