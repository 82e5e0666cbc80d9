"""The local stack: Kafka, Postgres, Valkey and S3 of packages, started and looked after together.

Everything stands in one folder: `stack.json` (ports, secrets, processes), a folder for each part
with its data, and `logs/`. The parts outlive their starter unless `die_with_parent` is given. A
later start finds those that still run and takes them over; those that are gone start again on the
same data and the same ports.
"""

import fcntl
import signal
import subprocess
import threading
import time
from collections.abc import Generator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Literal
from urllib.parse import quote

import msgspec

from cutlog.stack import ports, processes, seaweedfs, state
from cutlog.stack.kafka import Kafka
from cutlog.stack.kafka_jars import default_cache
from cutlog.stack.part import HOST, Part, PartError, Place
from cutlog.stack.postgres import DATABASE, USER, Postgres
from cutlog.stack.valkey import Valkey
from schema.wires.processes import Identity, identify, is_alive

PartName = Literal["kafka", "postgres", "valkey", "s3"]
PART_NAMES: tuple[PartName, ...] = ("kafka", "postgres", "valkey", "s3")
_READY_SECONDS = 90
_STOP_SECONDS = 15
_LOG_BYTES_MAX = 16 << 20


class LocalStack:
    """One stack in one folder; any number of these objects, in any process, may look at it.

    `ports` fixes some ports by name (`kafka`, `postgres`, `valkey`, `s3-s3`, …; the names stand in
    each part); the others are chosen once and kept. Starting, stopping and restarting are mutually
    exclusive between processes.
    """

    def __init__(
        self,
        directory: Path,
        *,
        ports: Mapping[str, int] | None = None,
        cache: Path | None = None,
        die_with_parent: bool = False,
    ) -> None:
        self.directory = directory.resolve()
        self._wanted = dict(ports or {})
        self._cache = cache or default_cache()
        self._die_with_parent = die_with_parent
        servers: dict[PartName, Part] = {
            "kafka": Kafka(),
            "postgres": Postgres(),
            "valkey": Valkey(),
            "s3": seaweedfs.SeaweedFS(),
        }
        self._parts = servers
        self._children: dict[PartName, subprocess.Popen[bytes]] = {}
        self._watcher: subprocess.Popen[bytes] | None = None
        self._guard = threading.RLock()  # one start, stop or restart at a time
        self._state_guard = threading.Lock()  # parts that start side by side write one file

    # ------------------------------------------------------------------- what a caller does

    def start(self) -> dict[PartName, float]:
        """Start what does not run, all at once; returns the seconds until each part answered.

        Raises PartError, with the end of the log, when a part can't be brought up; those that
        were started by this call are stopped again.
        """
        with self._exclusively():
            self._adopt()
            self._settle_ports()
            self._watch()
            with ThreadPoolExecutor(len(PART_NAMES)) as pool:
                rising: dict[PartName, Future[float]] = {
                    name: pool.submit(self._bring_up, name) for name in PART_NAMES
                }
            failed = [error for task in rising.values() if (error := task.exception())]
            if failed:
                for name in PART_NAMES:
                    if name in self._children:
                        self._end(name)
                self._unwatch()
                raise failed[0]
            seconds: dict[PartName, float] = {}
            for name, task in rising.items():
                seconds[name] = task.result()
            return seconds

    def stop(self) -> None:
        """End every part in good order, by force after 15 s; also what a dead owner left."""
        if not self.directory.exists():
            return
        with self._exclusively():
            self._adopt()
            with ThreadPoolExecutor(len(PART_NAMES)) as pool:
                list(pool.map(self._end, PART_NAMES))
            self._unwatch()

    def restart(self, part: PartName) -> float:
        """Stop it in good order if it runs, start it on its data; seconds until it answered."""
        with self._exclusively():
            self._end(part)
            return self._bring_up(part)

    def kill(self, part: PartName) -> None:
        """SIGKILL; returns when the process is gone."""
        process = self._process(part)
        if process is not None:
            processes.kill(process)
        self._reap(part)

    def pause(self, part: PartName) -> None:
        """SIGSTOP: it keeps its connections and answers nothing."""
        self._signal(part, signal.SIGSTOP)

    def resume(self, part: PartName) -> None:
        self._signal(part, signal.SIGCONT)

    def pid(self, part: PartName) -> int | None:
        """Of the living process; None when it does not run."""
        process = self._process(part)
        return None if process is None else process.pid

    def answers(self, part: PartName) -> bool:
        """Whether the part runs and serves a real request now."""
        place = self._place(part, state.load(self.directory))
        return self.pid(part) is not None and self._parts[part].answers(place)

    def log(self, part: PartName) -> Path:
        return self.directory / "logs" / f"{part}.log"

    def environ(self) -> dict[str, str]:
        """The settings that our processes find the parts by, in the words of `schema.settings`.

        Raises PartError when the stack was never started: then it has no ports yet.
        """
        kept = state.load(self.directory)
        if not kept.ports:
            raise PartError("the stack was never started, so it has no ports yet")
        password = quote(kept.secrets.postgres_password, safe="")
        redis_password = quote(kept.secrets.valkey_password, safe="")
        postgres, valkey = kept.ports["postgres"], kept.ports["valkey"]
        return {
            "CUTLOG_KAFKA_BROKERS": f"{HOST}:{kept.ports['kafka']}",
            "CUTLOG_POSTGRES_DSN": f"postgresql://{USER}:{password}@{HOST}:{postgres}/{DATABASE}",
            "CUTLOG_REDIS_URL": f"redis://:{redis_password}@{HOST}:{valkey}/0",
            "CUTLOG_OBJECTS_ENDPOINT": f"http://{HOST}:{kept.ports['s3-s3']}",
            "CUTLOG_OBJECTS_REGION": seaweedfs.REGION,
            "CUTLOG_OBJECTS_BUCKET": seaweedfs.BUCKET,
            "CUTLOG_OBJECTS_ACCESS_KEY": kept.secrets.s3_access_key,
            "CUTLOG_OBJECTS_SECRET_KEY": kept.secrets.s3_secret_key,
        }

    # ------------------------------------------------------------------------ the way there

    @contextmanager
    def _exclusively(self) -> Generator[None]:
        self.directory.mkdir(parents=True, exist_ok=True)
        (self.directory / "logs").mkdir(exist_ok=True)
        with self._guard, (self.directory / "stack.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def _adopt(self) -> None:
        """Find what runs already, in a record or by its mark, and write it down."""
        kept = state.load(self.directory)
        living = processes.find_marked(self.directory)
        living |= {name: one for name, one in kept.processes.items() if is_alive(one)}
        state.save(self.directory, msgspec.structs.replace(kept, processes=living))

    def _settle_ports(self) -> None:
        """Give each part its ports; one that runs on another than is wanted now is ended."""
        kept = state.load(self.directory)
        for name in PART_NAMES:
            mine = [port for port in self._parts[name].ports if port in self._wanted]
            if any(self._wanted[port] != kept.ports.get(port) for port in mine):
                self._end(name)
        names = [port for part in self._parts.values() for port in part.ports]
        living: list[PartName] = [one for one in PART_NAMES if self._process(one) is not None]
        in_use = [port for name in living for port in self._parts[name].ports]
        assigned = ports.assign(names, wanted=self._wanted, kept=kept.ports, in_use=in_use)
        state.save(self.directory, msgspec.structs.replace(kept, ports=assigned))

    def _bring_up(self, name: PartName) -> float:
        """Start the part unless it runs, and wait until it answers."""
        began = time.monotonic()
        part = self._parts[name]
        place = self._place(name, state.load(self.directory))
        process = self._process(name)
        if process is not None:
            processes.signal_all(process, signal.SIGCONT)
            if self._await_answer(part, place, process):
                return time.monotonic() - began
            processes.kill(process)
        part.prepare(place)
        launch = part.launch(place)
        log = self.log(name)
        if log.exists() and log.stat().st_size > _LOG_BYTES_MAX:
            log.rename(log.with_suffix(".log.1"))
        self._children[name] = child = processes.spawn(
            launch.arguments,
            directory=self.directory,
            part=name,
            environ=launch.environ,
            log=log,
        )
        process = identify(child.pid)
        if process is not None:
            self._remember(name, process)
            if self._await_answer(part, place, process):
                return time.monotonic() - began
        ended = process is None or not is_alive(process)
        self._end(name)
        how = f"ended with {child.returncode}" if ended else "did not answer in time"
        raise PartError(f"{name} {how}; the end of {log}:\n{_tail(log)}")

    def _await_answer(self, part: Part, place: Place, process: Identity) -> bool:
        """Ask until it answers, it ends, or its time is up. A server gives no other signal."""
        until = time.monotonic() + _READY_SECONDS
        while time.monotonic() < until and is_alive(process):
            if part.answers(place):
                return True
            time.sleep(0.03)
        return False

    def _end(self, name: PartName) -> None:
        process = self._process(name)
        if process is not None:
            processes.end(process, self._parts[name].stop_signal, _STOP_SECONDS)
        self._reap(name)

    def _reap(self, name: PartName) -> None:
        child = self._children.get(name)
        if child is not None:
            child.wait(timeout=10)

    def _signal(self, part: PartName, what: signal.Signals) -> None:
        process = self._process(part)
        if process is None:
            raise PartError(f"{part} does not run")
        processes.signal_all(process, what)

    def _process(self, name: PartName) -> Identity | None:
        process = state.load(self.directory).processes.get(name)
        return process if process is not None and is_alive(process) else None

    def _remember(self, name: PartName, process: Identity) -> None:
        with self._state_guard:
            kept = state.load(self.directory)
            known = {**kept.processes, name: process}
            state.save(self.directory, msgspec.structs.replace(kept, processes=known))

    def _place(self, name: PartName, kept: state.State) -> Place:
        directory = self.directory / name
        directory.mkdir(exist_ok=True)
        return Place(directory=directory, ports=kept.ports, secrets=kept.secrets, cache=self._cache)

    def _watch(self) -> None:
        if self._die_with_parent and self._watcher is None:
            self._watcher = processes.watch_over(self.directory)

    def _unwatch(self) -> None:
        if self._watcher is not None:
            self._watcher.communicate(b"ended", timeout=30)
            self._watcher = None


def _tail(log: Path, size: int = 3000) -> str:
    return log.read_text(errors="replace")[-size:] if log.exists() else ""
