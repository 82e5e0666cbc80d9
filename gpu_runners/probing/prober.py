"""What is done about an event of a material: the verdict of an upload, the end of one.

At least once: everything may have been done before by a process that died, and the upload itself is
deleted last, when the verdict stands in the log. What is away is waited for.
"""

import asyncio
import errno
import logging
import shutil
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final, TypeVar

import msgspec

from gpu_runners.probing.metrics import Metrics
from gpu_runners.probing.sandbox import ProbeUnavailableError, Sandbox
from gpu_runners.probing.uploads import PartsMissingError, Uploads
from gpu_runners.probing.verdicts import RefusedError, Verdict
from schema.codec import encode
from schema.commands import ConcludeMaterial
from schema.events import (
    MaterialAborted,
    MaterialAssembling,
    MaterialEvent,
    MaterialReady,
    MaterialRefused,
    ResultEvent,
)
from schema.ids import command_id_of
from schema.refusals import MaterialRefusal
from schema.routes import route
from schema.wires.log import LogUnavailableError, LogWriter
from schema.wires.objects import ObjectMissingError, ObjectStoreUnavailableError
from schema.wires.telemetry import facts

log = logging.getLogger(__name__)

Done = TypeVar("Done")
_AGAIN_SECONDS: Final = (0.5, 1.0, 2.0, 5.0, 10.0)
_OTHER_BYTES: Final = Verdict(
    reason=MaterialRefusal.DIGEST_MISMATCH,
    detail="Other bytes came than were declared (their sha256 differs).",
)
_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT})
_FILE: Final = "source"
"""Every file has this name here: what its caller called it names nothing."""


def wanted(event: MaterialEvent | ResultEvent) -> MaterialEvent | None:
    """The event, if there is something to do about it."""
    match event:
        case MaterialAssembling() | MaterialRefused() | MaterialAborted():
            return event
        case MaterialReady() if event.upload_id:
            return event
        case _:
            return None


class Prober:
    """Works on one event at a time for each caller of `handle`."""

    def __init__(
        self,
        uploads: Uploads,
        sandbox: Sandbox,
        writer: LogWriter,
        metrics: Metrics,
        *,
        directory: Path,
        partitions: int,
    ) -> None:
        self._uploads = uploads
        self._sandbox = sandbox
        self._writer = writer
        self._metrics = metrics
        self._directory = directory
        self._partitions = partitions
        self._waiting: dict[str, int] = {}
        self._narrow = asyncio.Lock()

    @property
    def problem(self) -> str | None:
        """Which parts are away while work waits for them."""
        return f"waits for: {', '.join(sorted(self._waiting))}" if self._waiting else None

    async def handle(self, event: MaterialEvent) -> None:
        """Do what is to be done about it; ends only when it is done."""
        match event:
            case MaterialAssembling():
                with self._metrics.busy.track_inprogress(), self._metrics.seconds.time():
                    await self._assemble(event)
            case MaterialRefused() | MaterialAborted():
                await self._forget(event, event.upload_id)
            case MaterialReady(upload_id=upload_id) if upload_id:
                await self._forget(event, upload_id)
            case _:
                pass

    async def _assemble(self, event: MaterialAssembling) -> None:
        started = time.monotonic()
        folder = Path(await asyncio.to_thread(tempfile.mkdtemp, dir=self._directory))
        try:
            command = await self._again(lambda: self._fitting(event, folder / _FILE))
        finally:
            await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)
        where = route(command, self._partitions)
        await self._again(lambda: self._writer.append(where, encode(command)))
        verdict = "part_missing" if command.part_missing else (command.reason or "ready")
        self._metrics.verdicts.labels(str(verdict)).inc()
        log.info(
            "a material was looked at",
            extra=facts(
                material_id=event.material_id,
                number=event.number,
                verdict=str(verdict),
                detail=command.detail,
                bytes=event.size,
                seconds=round(time.monotonic() - started, 3),
            ),
        )
        if not command.part_missing:
            await self._forget(event, "")

    async def _fitting(self, event: MaterialAssembling, path: Path) -> ConcludeMaterial:
        """The verdict; where the disk is full, the files that it has no room for come in turn."""
        try:
            return await self._verdict(event, path)
        except OSError as error:
            if error.errno not in _FULL:
                raise
        async with self._narrow:
            return await self._verdict(event, path)

    async def _verdict(self, event: MaterialAssembling, path: Path) -> ConcludeMaterial:
        try:
            fetched = await self._uploads.fetch(event, path)
            self._metrics.bytes.inc(fetched.size)
            if fetched != (event.size, event.sha256):
                return self._told(event, _OTHER_BYTES)
            verdict = await self._look(event, path)
            if verdict.facts is None:
                return self._told(event, verdict)
            key, known = await self._uploads.keep(event, path)
        except (PartsMissingError, ObjectMissingError) as error:
            return self._told(event, Verdict(detail=str(error)), part_missing=True)
        except RefusedError as refused:
            return self._told(event, Verdict(reason=refused.reason, detail=refused.detail))
        except OSError:  # what came so far takes room that others wait for
            await asyncio.to_thread(path.unlink, missing_ok=True)
            raise
        self._metrics.known.inc(known)
        told = self._told(event, verdict)
        return msgspec.structs.replace(
            told, size=fetched.size, sha256=fetched.sha256, content_key=key
        )

    async def _look(self, event: MaterialAssembling, path: Path) -> Verdict:
        """A file over which the probe ends again and again must not keep the others waiting."""
        for pause in (*_AGAIN_SECONDS, None):
            try:
                return await self._sandbox.look(
                    path, content_type=event.content_type, seconds_max=event.seconds_max
                )
            except ProbeUnavailableError as error:
                self._metrics.retries.labels("probe").inc()
                log.warning("a probe broke off", extra=facts(error=str(error)))
                if pause is None:
                    break
                await asyncio.sleep(pause)
        return Verdict(
            reason=MaterialRefusal.PROBE_LIMIT, detail="Looking at this file fails again and again."
        )

    def _told(
        self, event: MaterialAssembling, verdict: Verdict, *, part_missing: bool = False
    ) -> ConcludeMaterial:
        return ConcludeMaterial(
            command_id=command_id_of("conclude", event.material_id, str(event.number)),
            material_id=event.material_id,
            user_id=event.user_id,
            tenant_id=event.tenant_id,
            number=event.number,
            facts=verdict.facts,
            reason=verdict.reason,
            detail=verdict.detail,
            part_missing=part_missing,
        )

    async def _forget(self, event: MaterialEvent, upload_id: str) -> None:
        user_id, material_id = event.user_id, event.material_id
        await self._again(lambda: self._uploads.forget(user_id, material_id, upload_id))

    async def _again(self, do: Callable[[], Awaitable[Done]]) -> Done:
        """Do it until it is done; only what is away may come back."""
        tries = 0
        while True:
            try:
                return await do()
            except ObjectStoreUnavailableError as error:
                part, told = "store", str(error)
            except LogUnavailableError as error:
                part, told = "log", str(error)
            except (ProbeUnavailableError, OSError) as error:
                full = isinstance(error, OSError) and error.errno in _FULL
                part, told = "disk" if full else "probe", str(error)
            self._metrics.retries.labels(part).inc()
            log.warning("a part is away", extra=facts(part=part, error=told))
            self._waiting[part] = self._waiting.get(part, 0) + 1
            try:
                await asyncio.sleep(_AGAIN_SECONDS[min(tries, len(_AGAIN_SECONDS) - 1)])
            finally:
                self._waiting[part] -= 1
                if not self._waiting[part]:
                    del self._waiting[part]
            tries += 1
