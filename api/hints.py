"""Hints of the object store: each makes somebody look, and none decides anything.

What is looked at is what a sweep would have looked at later, and what follows is the same command
with the same id: hint, sweep and caller together are once. So a hint that is forged, late, doubled
or lost costs a look, and decides nothing.

- An upload's object has come: where the store has all of it and nobody said so, it is completed.
- A result's or a content's object has gone: where the store really has it no more and no tombstone
  stands, somebody hears of it.
"""

import logging
from asyncio import Semaphore
from collections import Counter, OrderedDict
from enum import StrEnum
from typing import Final, assert_never

from prometheus_client import Counter as Metric

from api.asking import Asker
from api.notifications import (
    ContentObject,
    Hint,
    Ignored,
    Notification,
    ResultObject,
    UploadObject,
)
from api.problems import Door, at_the_door
from api.reads import ReadModel
from api.uploads import Upload, Uploads
from schema.commands import CompleteMaterial
from schema.ids import TenantId, completion_id_of
from schema.routes import route
from schema.wires.objects import ObjectStore, ObjectStoreUnavailableError
from schema.wires.telemetry import facts
from schema.words import Status

AT_ONCE: Final = 8
"""Messages that are worked on side by side: a store that tells a lot must not hold up callers."""
_TOLD_MAX: Final = 50_000
_log = logging.getLogger(__name__)


class Taken(StrEnum):
    """What a hint led to."""

    COMPLETED = "completed"
    RESULT_LOST = "result_lost"
    CONTENT_LOST = "content_lost"


Outcome = Taken | Ignored


class Hints:
    """Looks at what hints are about."""

    def __init__(
        self,
        reads: ReadModel,
        uploads: Uploads,
        objects: ObjectStore,
        asker: Asker,
        counted: Metric,
    ) -> None:
        self._reads = reads
        self._uploads = uploads
        self._objects = objects
        self._asker = asker
        self._counted = counted
        self._turns = Semaphore(AT_ONCE)
        self._told: OrderedDict[str, str] = OrderedDict()
        """By the object's name, what was there when the last hint of it led to something."""

    async def take(self, told: Notification) -> Counter[Outcome]:
        """Look at all of it; what came of how many. Raises Problem (503): tell it again."""
        found: Counter[Outcome] = Counter()
        for reason, count in told.ignored.items():
            self._count(found, reason, count)
        async with self._turns:
            for hint in told.hints:
                self._count(found, await self._look(hint))
        return found

    def _count(self, found: Counter[Outcome], outcome: Outcome, count: int = 1) -> None:
        found[outcome] += count
        self._counted.labels(outcome.value).inc(count)

    async def _look(self, hint: Hint) -> Outcome:
        try:
            match hint.named:
                case UploadObject():
                    return await self._came(hint.key, hint.named)
                case ResultObject():
                    return await self._result_gone(hint.key, hint.named)
                case ContentObject():
                    return await self._content_gone(hint.key, hint.named)
                case _:
                    assert_never(hint.named)
        except ObjectStoreUnavailableError as error:
            raise at_the_door(Door.STORE_AWAY) from error

    async def _came(self, key: str, named: UploadObject) -> Outcome:
        row = await self._reads.material(named.material_id)
        if row is None or row["user_id"] != named.user_id:
            return Ignored.UNKNOWN
        if row["status"] != "REGISTERED" or not row["upload_id"]:
            return Ignored.SETTLED
        upload = Upload(
            named.user_id,
            TenantId(row["tenant_id"]),
            named.material_id,
            row["upload_id"],
            row["size"],
            row["part_bytes"],
        )
        found = await self._uploads.whole(upload)
        if not found:
            return Ignored.INCOMPLETE
        if self._told.get(key) == found:
            return Ignored.SETTLED
        command = CompleteMaterial(
            command_id=completion_id_of(named.material_id, row["seq"]),
            material_id=named.material_id,
            user_id=named.user_id,
            tenant_id=upload.tenant_id,
        )
        await self._asker.tell(command, route(command, self._asker.partitions))
        self._remember(key, found)
        _log.info("an upload is completed by a hint", extra=facts(material_id=named.material_id))
        return Taken.COMPLETED

    async def _result_gone(self, key: str, named: ResultObject) -> Outcome:
        row = (await self._reads.tasks([named.task_id])).get(named.task_id)
        if row is None:
            return Ignored.UNKNOWN
        files = [file["object_key"] for file in row["files"] or ()]
        # The tombstone stands before the objects go, and other attempts' objects are no results.
        if row["status"] != Status.SUCCEEDED or row["result_state"] == "deleted":
            return Ignored.SETTLED
        if key not in files:
            return Ignored.SETTLED
        return await self._gone(key, Taken.RESULT_LOST, "result_missing", task_id=named.task_id)

    async def _content_gone(self, key: str, named: ContentObject) -> Outcome:
        row = await self._reads.content(named.owner, named.sha256)
        if row is None or row["content_key"] != key:
            return Ignored.UNKNOWN
        return await self._gone(key, Taken.CONTENT_LOST, "content_missing")

    async def _gone(self, key: str, lost: Taken, alert: str, **about: str) -> Outcome:
        if await self._objects.head(key) is not None:
            self._told.pop(key, None)
            return Ignored.THERE
        if key in self._told:
            return Ignored.SETTLED
        self._remember(key, lost.value)
        _log.error("alert", extra=facts(alert=alert, key=key, **about))
        return lost

    def _remember(self, key: str, found: str) -> None:
        self._told[key] = found
        self._told.move_to_end(key)
        while len(self._told) > _TOLD_MAX:
            self._told.popitem(last=False)
