"""What happens to a task, or to all of a user, after a cursor: each stored event once, in order.

A feed listens first, then reads what is stored after its cursor, then goes on live and drops
what it has already told. Where it may have missed something (a gap in a `seq`, Redis away,
nothing heard for a while) it reads what is stored again. A cursor that leads nowhere is answered
by one snapshot.
"""

import random
import re
from collections.abc import AsyncGenerator
from typing import Any, NamedTuple

from api.live import Listener, Live, LiveEvent, News
from api.reads import ReadModel, Row, StoredEvent
from api.views import event_view, status_after
from schema.codec import TASK_EVENTS, UnknownVersionError
from schema.ids import TaskId, UserId
from schema.progress import ProgressReported

PAGE = 500
QUIET_SECONDS = 20.0
"""A stream that hears nothing for so long looks into the read model all the same."""
ALONE_SECONDS = 1.0
"""The same without Redis."""
_SEQS_MAX = 10_000
_CURSOR = re.compile(r"([0-9a-f]{8}):([0-9]{1,5}):([0-9]{1,18})")


class Cursor(NamedTuple):
    """The id of a stored event: incarnation of the log, partition and offset in task-events."""

    epoch: str
    partition: int
    offset: int

    def __str__(self) -> str:
        return f"{self.epoch}:{self.partition}:{self.offset}"


def read_cursor(text: str | None) -> Cursor | None:
    """The cursor of a Last-Event-ID; None for what is none."""
    found = _CURSOR.fullmatch(text or "")
    return Cursor(found[1], int(found[2]), int(found[3])) if found else None


class Told(NamedTuple):
    """A stored event as it is told."""

    id: str
    name: str
    view: dict[str, Any]
    ended: bool
    """The task stands ended after it."""


class Snapshot(NamedTuple):
    """Where things stand, instead of the events that cannot be told."""

    tasks: list[Row]


Item = Told | Snapshot | ProgressReported


def told(event: StoredEvent, epoch: str) -> Told:
    """A stored event in the words of the callers."""
    cursor = str(Cursor(epoch, event.partition, event.offset))
    return _told(cursor, event.task_id, event.seq, event.body)


def _told(cursor: str, task_id: str, seq: int, body: bytes) -> Told:
    try:
        message = TASK_EVENTS.decode(body)
    except UnknownVersionError as newer:
        # A newer release wrote it; its name and number still keep the order whole.
        name = str(newer)
        return Told(cursor, name, {"task_id": task_id, "seq": seq, "event": name}, ended=False)
    view = event_view(message)
    status = status_after(message)
    return Told(cursor, view["event"], view, ended=status is not None and status.ended)


class _Feed:
    """What both feeds do."""

    def __init__(
        self, reads: ReadModel, live: Live, user_id: UserId, partition: int, epoch: str
    ) -> None:
        self._reads = reads
        self._live = live
        self._user_id = user_id
        self._partition = partition
        self._epoch = epoch
        self._offset = -1
        """The last event told, or stepped over."""
        self._ended = False

    async def _heard(self, listener: Listener) -> AsyncGenerator[list[Item]]:
        """Live, until something may have been missed."""
        while not listener.stale and not self._ended:
            items: list[Item] = []
            try:
                for news in await listener.wait(self._quiet_seconds()):
                    self._take(news, items)
            except _GapError:
                listener.lose()
            if items:
                yield items

    def _take(self, news: News, items: list[Item]) -> None:
        """What is to be told of this, in order; raises _GapError."""
        raise NotImplementedError

    async def _is_known(self, cursor: Cursor | None) -> bool:
        return (
            cursor is not None
            and cursor.epoch == self._epoch
            and cursor.partition == self._partition
            and await self._reads.cursor_known(cursor.partition, cursor.offset, self._user_id)
        )

    def _quiet_seconds(self) -> float:
        # Spread, so that ten thousand quiet streams do not look at once.
        spread = random.uniform(0.75, 1.25)  # noqa: S311 - no secret
        return (QUIET_SECONDS if self._live.connected else ALONE_SECONDS) * spread

    def _is_news(self, event: LiveEvent) -> int | None:
        """The offset of an event that was not told yet; None for one that was."""
        cursor = read_cursor(event.id)
        if cursor is None or cursor.partition != self._partition:
            raise _GapError
        if cursor.epoch != self._epoch:
            raise MovedLogError
        return cursor.offset if cursor.offset > self._offset else None


class MovedLogError(Exception):
    """The log is another one than when this feed began: only a new feed can go on."""


class _GapError(Exception):
    """Something lies between what was told and what came."""


class TaskFeed(_Feed):
    """One task. It ends with the task."""

    def __init__(
        self,
        reads: ReadModel,
        live: Live,
        task: Row,
        *,
        partition: int,
        epoch: str,
        promised: int = 0,
    ) -> None:
        super().__init__(reads, live, task["user_id"], partition, epoch)
        self._promised = promised
        """The caller knows of an event with this number: no end before it is the end."""
        self._task_id: TaskId = task["task_id"]
        self._seq: int | None = 0

    async def nothing_left(self, cursor: Cursor | None) -> bool:
        """For a task that has ended: whether a client with this cursor has heard it all."""
        if cursor is None or not await self._is_known(cursor):
            return False
        return not await self._reads.task_events_after(self._task_id, cursor.offset, 1)

    async def run(self, *, cursor_given: bool, cursor: Cursor | None) -> AsyncGenerator[list[Item]]:
        """What there is to tell, as it comes; without a cursor from the task's beginning."""
        async with self._live.listen(self._user_id) as listener:
            if not cursor_given:
                first = await self._reads.task_events(self._task_id, 0, 1)
                known = bool(first) and first[0].seq == 1
            else:
                known = await self._is_known(cursor)
                if known and cursor is not None:
                    self._offset, self._seq = cursor.offset, None
            if not known:
                yield [await self._snapshot()]
            while not self._over():
                listener.stale = False
                async for page in self._stored():
                    yield page
                async for items in self._heard(listener):
                    yield items

    def _is_end(self, item: Item) -> bool:
        return isinstance(item, Told) and item.ended and item.view["seq"] >= self._promised

    def _over(self) -> bool:
        return self._ended or self._live.stopping

    async def _snapshot(self) -> Snapshot:
        position, tasks = await self._reads.task_snapshot(self._task_id, self._partition)
        self._offset, self._seq = position - 1, None
        self._ended = bool(tasks) and tasks[0]["ended_at"] is not None
        return Snapshot(tasks)

    async def _stored(self) -> AsyncGenerator[list[Item]]:
        while True:
            page = await self._reads.task_events_after(self._task_id, self._offset, PAGE)
            if page:
                items: list[Item] = [told(event, self._epoch) for event in page]
                self._offset, self._seq = page[-1].offset, page[-1].seq
                self._ended = self._is_end(items[-1])
                yield items
            if len(page) < PAGE:
                return

    def _take(self, news: News, items: list[Item]) -> None:
        for event in news.events:
            if event.task_id != self._task_id:
                continue
            offset = self._is_news(event)
            if offset is None:
                continue
            if self._seq is None or event.seq != self._seq + 1:
                raise _GapError
            item = _told(event.id, event.task_id, event.seq, bytes(event.event))
            self._offset, self._seq, self._ended = offset, event.seq, self._is_end(item)
            items.append(item)
        if not self._ended:
            items.extend(report for report in news.reports if report.task_id == self._task_id)


class UserFeed(_Feed):
    """All tasks of a user. It never ends by itself."""

    def __init__(
        self, reads: ReadModel, live: Live, user_id: UserId, *, partition: int, epoch: str
    ) -> None:
        super().__init__(reads, live, user_id, partition, epoch)
        self._seqs: dict[str, int] = {}

    async def run(self, *, cursor_given: bool, cursor: Cursor | None) -> AsyncGenerator[list[Item]]:
        """What there is to tell, as it comes; without a cursor from now on."""
        async with self._live.listen(self._user_id) as listener:
            if not cursor_given:
                self._offset = await self._reads.event_position(self._partition) - 1
                yield []
            elif cursor is not None and await self._is_known(cursor):
                self._offset = cursor.offset
            else:
                position, tasks = await self._reads.user_snapshot(self._user_id, self._partition)
                self._offset = position - 1
                yield [Snapshot(tasks)]
            while not self._live.stopping:
                listener.stale = False
                async for page in self._stored():
                    yield page
                async for items in self._heard(listener):
                    yield items

    async def _stored(self) -> AsyncGenerator[list[Item]]:
        while True:
            page = await self._reads.user_events_after(
                self._user_id, self._partition, self._offset, PAGE
            )
            if page:
                for event in page:
                    self._remember(event.task_id, event.seq)
                self._offset = page[-1].offset
                yield [told(event, self._epoch) for event in page]
            if len(page) < PAGE:
                return

    def _take(self, news: News, items: list[Item]) -> None:
        for event in news.events:
            offset = self._is_news(event)
            if offset is None:
                continue
            # A task that is not known here begins with 1; any other number may hide a gap.
            if event.seq != self._seqs.get(event.task_id, 0) + 1:
                raise _GapError
            items.append(_told(event.id, event.task_id, event.seq, bytes(event.event)))
            self._offset = offset
            self._remember(event.task_id, event.seq)
        items.extend(news.reports)

    def _remember(self, task_id: str, seq: int) -> None:
        self._seqs.pop(task_id, None)
        if len(self._seqs) >= _SEQS_MAX:
            del self._seqs[next(iter(self._seqs))]
        self._seqs[task_id] = seq
