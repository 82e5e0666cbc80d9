"""Has a file looked at in a process of its own, and makes a verdict of however that ends.

The process knows nothing of ours (an environment of its own, no credentials), may use so much
memory, time and files and no network (`seal`), and is killed with its whole group when its time is
over.
"""

import asyncio
import contextlib
import logging
import os
import signal
import sys
import tempfile
from pathlib import Path
from typing import Final

import msgspec

from gpu_runners.probing.limits import MaterialLimits, ProcessLimits
from gpu_runners.probing.verdicts import Asked, Verdict
from schema.refusals import MaterialRefusal
from schema.wires.telemetry import facts

log = logging.getLogger(__name__)

_ROOT: Final = Path(__file__).parents[2]
_ANSWER_BYTES_MAX: Final = 65_536
_SAID_BYTES: Final = 2_000


class ProbeUnavailableError(Exception):
    """The process could not be started, or ended without having said anything of the file."""


class Sandbox:
    """Starts a process for each file."""

    def __init__(self, limits: MaterialLimits, process: ProcessLimits) -> None:
        self._limits = limits
        self._process = process
        self._told = False

    async def look(self, path: Path, *, content_type: str, seconds_max: float) -> Verdict:
        """The verdict on a file. Raises ProbeUnavailableError: nothing is known of it.

        `path` is absolute. A process that something outside has killed, or held up, is started once
        more.
        """
        for last in (False, True):
            with tempfile.TemporaryDirectory(dir=path.parent, prefix="own-") as folder:
                asked = Asked(
                    path=str(path),
                    folder=folder,
                    content_type=content_type,
                    seconds_max=seconds_max,
                    limits=self._limits,
                    process=self._process,
                )
                verdict = await self._try(asked, last=last)
            if verdict is not None:
                self._tell(verdict)
                return verdict
        return _beyond("To look at this file was broken off twice.")

    async def _try(self, asked: Asked, *, last: bool) -> Verdict | None:
        """None: it is worth another try."""
        # -B: it writes nothing; the environment holds what the loader needs and nothing else.
        # What it says goes into files, whose length its limits hold: a pipe would have none.
        late = False
        with tempfile.TemporaryFile() as answers, tempfile.TemporaryFile() as said:
            child = await asyncio.create_subprocess_exec(
                *(sys.executable, "-B", "-m", "gpu_runners.probing.child"),
                stdin=asyncio.subprocess.PIPE,
                stdout=answers,
                stderr=said,
                cwd=_ROOT,
                env={"PATH": os.defpath, "LANG": "C.UTF-8", "TMPDIR": asked.folder},
                start_new_session=True,
            )
            try:
                async with asyncio.timeout(self._process.wall_seconds):
                    await child.communicate(msgspec.json.encode(asked) + b"\n")
            except TimeoutError:
                late = True
            finally:
                if child.returncode is None:
                    _kill_group(child.pid)
                    await child.wait()
            answers.seek(0)
            said.seek(max(0, said.seek(0, os.SEEK_END) - _SAID_BYTES))
            return self.verdict_of(
                answers.read(_ANSWER_BYTES_MAX),
                said.read(_SAID_BYTES),
                child.returncode or 0,
                late=late,
                last=last,
            )

    def verdict_of(
        self, answer: bytes, said: bytes, code: int, *, late: bool, last: bool
    ) -> Verdict | None:
        """What the end of a process means; None: it is worth another try."""
        if code == 0 and answer.endswith(b"\n"):
            verdict = _read(answer)
            if verdict.fault:
                log.warning("a reader failed on a file", extra=facts(fault=verdict.fault))
            return verdict
        if late:
            return _beyond("It takes too long to look at this file.") if last else None
        if code == -signal.SIGXCPU:
            return _beyond("It takes too much computing to look at this file.")
        end = said.decode(errors="replace")
        log.warning("a probe ended without a verdict", extra=facts(code=code, said=end))
        if code in (-signal.SIGKILL, -signal.SIGTERM):
            return None  # by whom, nobody knows; not by us
        if code < 0:
            return _unsafe()
        if last:
            raise ProbeUnavailableError(f"the probe ended with {code}")
        return None

    def _tell(self, verdict: Verdict) -> None:
        """Once: what this kernel does not have."""
        if verdict.unsealed and not self._told:
            self._told = True
            missing = facts(missing=list(verdict.unsealed))
            log.warning("probes are not shut in with all that there is", extra=missing)


ANSWER_BYTES_MAX = 8 << 10
"""Many times what an honest verdict has; more would not fit into a message."""


def _read(answer: bytes) -> Verdict:
    """What it said; one that doesn't speak any more was taken over, or has gone mad."""
    if len(answer) > ANSWER_BYTES_MAX:
        return _unsafe()
    try:
        verdict = msgspec.json.decode(answer, type=Verdict)
    except msgspec.DecodeError:
        return _unsafe()
    return verdict if (verdict.facts is None) != (verdict.reason is None) else _unsafe()


def _unsafe() -> Verdict:
    return Verdict(
        reason=MaterialRefusal.DAMAGED,
        detail="The file is damaged so that it can't be read safely.",
    )


def _beyond(detail: str) -> Verdict:
    return Verdict(reason=MaterialRefusal.PROBE_LIMIT, detail=detail)


def _kill_group(pid: int) -> None:
    """The process and whatever it may have started; one that has ended is no error."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)
