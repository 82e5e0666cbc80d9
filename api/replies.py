"""Answers of the deciders: who waits for which, and what is still unanswered in each partition.

This instance reads one partition of `replies`. What was appended and not yet answered is the
measure of back-pressure: too many, or one too old, and nothing more is appended there until
answers flow again.
"""

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable
from typing import NamedTuple

from api.problems import Door, at_the_door
from schema.codec import REPLIES, UnknownVersionError, UnreadableMessageError
from schema.ids import CommandId
from schema.replies import ReplyMessage
from schema.settings import Kafka
from schema.topics import Topic
from schema.wires.log import LogReader, LogUnavailableError, OffsetTrimmedError, Place
from schema.wires.telemetry import facts

_PROBE_SECONDS = 5.0
_RECONNECT_SECONDS = 0.5
_READ_SECONDS = 1.0
_log = logging.getLogger(__name__)


class Claim(NamedTuple):
    """A request's hold on an answer. `first`: it is this request that appends the command."""

    command_id: CommandId
    future: "asyncio.Future[ReplyMessage]"
    first: bool


class _Asked:
    """A command that was appended (or is about to be) and has no answer yet."""

    __slots__ = ("fingerprint", "futures", "place", "since")

    def __init__(self, place: Place, since: float, fingerprint: str) -> None:
        self.place = place
        self.since = since
        self.fingerprint = fingerprint
        self.futures: list[asyncio.Future[ReplyMessage]] = []


class _Line:
    """What is unanswered in one partition of one topic, oldest first."""

    __slots__ = ("asked", "probed_at")

    def __init__(self) -> None:
        self.asked: dict[CommandId, float] = {}
        self.probed_at = float("-inf")


class Answers:
    """Pending answers by command. Everything happens on one event loop."""

    def __init__(
        self,
        *,
        unanswered_max: int,
        unanswered_seconds_max: float,
        join_seconds: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._unanswered_max = unanswered_max
        self._seconds_max = unanswered_seconds_max
        self._join_seconds = join_seconds
        self._clock = clock
        self._asked: dict[CommandId, _Asked] = {}
        self._lines: dict[Place, _Line] = {}

    def unanswered(self) -> dict[Place, tuple[int, float]]:
        """By partition: how many, and the age of the oldest in seconds."""
        now = self._clock()
        return {
            place: (len(line.asked), now - next(iter(line.asked.values())) if line.asked else 0.0)
            for place, line in self._lines.items()
        }

    def check(self, place: Place) -> None:
        """Raises Problem (503) when this partition owes too many answers, or one for too long.

        Now and then one goes through all the same: its answer says that they flow again.
        """
        line = self._lines.get(place)
        if line is None or not line.asked:
            return
        now = self._clock()
        age = now - next(iter(line.asked.values()))
        if len(line.asked) <= self._unanswered_max and age <= self._seconds_max:
            return
        if now - line.probed_at >= _PROBE_SECONDS:
            line.probed_at = now
            return
        raise at_the_door(
            Door.BACKLOG,
            f"{len(line.asked)} unanswered, the oldest for {age:.1f} s",
            retry_after=min(30.0, max(1.0, age / 2)),
        )

    def expect(self, command_id: CommandId, place: Place, fingerprint: str = "") -> Claim:
        """Wait for a command's answer. The same command asked twice at once is appended once."""
        now = self._clock()
        asked = self._asked.get(command_id)
        joins = (
            asked is not None
            and asked.fingerprint == fingerprint
            and now - asked.since < self._join_seconds
        )
        if asked is None:
            asked = self._asked[command_id] = _Asked(place, now, fingerprint)
        elif not joins:
            asked.since, asked.fingerprint = now, fingerprint
        line = self._lines.get(place)
        if line is None:
            line = self._lines[place] = _Line()
        line.asked.setdefault(command_id, now)
        future: asyncio.Future[ReplyMessage] = asyncio.get_running_loop().create_future()
        asked.futures.append(future)
        return Claim(command_id, future, first=not joins)

    def rival(self, command_id: CommandId, fingerprint: str) -> Claim | None:
        """A hold on the answer to the same command with another body, if one is under way now."""
        asked = self._asked.get(command_id)
        if (
            asked is None
            or asked.fingerprint == fingerprint
            or self._clock() - asked.since >= self._join_seconds
        ):
            return None
        future: asyncio.Future[ReplyMessage] = asyncio.get_running_loop().create_future()
        asked.futures.append(future)
        return Claim(command_id, future, first=False)

    def is_under_way(self, command_id: CommandId) -> bool:
        """Whether this instance asked and its answer is still to come."""
        return command_id in self._asked

    def leave(self, claim: Claim) -> None:
        """The request waits no more; the command stays unanswered until its answer comes."""
        asked = self._asked.get(claim.command_id)
        if asked is None:
            return
        with contextlib.suppress(ValueError):
            asked.futures.remove(claim.future)
        line = self._lines.get(asked.place)
        if not asked.futures and (line is None or claim.command_id not in line.asked):
            del self._asked[claim.command_id]

    def forget(self, claim: Claim, error: LogUnavailableError) -> None:
        """The append failed, or nobody knows: nothing is owed, and who joined hears the same."""
        asked = self._asked.pop(claim.command_id, None)
        if asked is None:
            return
        self._lines[asked.place].asked.pop(claim.command_id, None)
        for future in asked.futures:
            if future is not claim.future and not future.done():
                future.set_exception(error)

    def answer(self, reply: ReplyMessage) -> float | None:
        """Hand an answer to everyone who waits for it; returns how long it took, if we asked."""
        asked = self._asked.pop(reply.command_id, None)
        if asked is None:
            return None
        line = self._lines[asked.place]
        asked_at = line.asked.pop(reply.command_id, None)
        for future in asked.futures:
            if not future.done():
                future.set_result(reply)
        now = self._clock()
        if asked_at is not None and line.asked:
            self._drop_lost(line, asked_at)
        return now - asked.since if asked_at is not None else None

    def _drop_lost(self, line: _Line, asked_at: float) -> None:
        """A partition answers in order: what was asked well before this has no answer coming."""
        while line.asked:
            oldest = next(iter(line.asked))
            if line.asked[oldest] > asked_at - self._seconds_max:
                return
            del line.asked[oldest]
            lost = self._asked.get(oldest)
            if lost is not None and not lost.futures:
                del self._asked[oldest]


class AnswerReader:
    """Reads this instance's partition of `replies` for as long as the process lives."""

    def __init__(
        self,
        kafka: Kafka,
        partition: int,
        answers: Answers,
        observe: Callable[[float], None],
    ) -> None:
        self._kafka = kafka
        self.partition = partition
        self._answers = answers
        self._observe = observe
        self._positions: dict[Place, int] = {}
        self.open = False

    async def run(self) -> None:
        """Read for ever; `open` while answers come."""
        while True:
            try:
                await self._read()
            except LogUnavailableError as error:
                _log.warning("replies cannot be read", extra=facts(error=str(error)))
            except OffsetTrimmedError as error:
                _log.warning("replies were trimmed", extra=facts(error=str(error)))
                self._positions = {}
            self.open = False
            await asyncio.sleep(_RECONNECT_SECONDS)

    async def _read(self) -> None:
        place = Place(Topic.REPLIES.value, self.partition)
        async with LogReader(self._kafka, [place], client_id="cutlog-api-replies") as reader:
            if self._positions:
                await reader.seek(self._positions)
            else:
                await reader.seek_to_end()
            self._positions = dict(reader.positions)
            self.open = True
            while True:
                batches = await reader.read(_READ_SECONDS)
                if not batches:
                    await reader.ends()  # a log that is gone says so only when it is asked
                for batch in batches:
                    for record in batch.records:
                        if record.value is not None:
                            self._take(record.value)
                self._positions = dict(reader.positions)

    def _take(self, value: bytes) -> None:
        try:
            reply = REPLIES.decode(value)
        except (UnreadableMessageError, UnknownVersionError) as error:
            _log.error("reply cannot be read", extra=facts(error=repr(error)))
            return
        seconds = self._answers.answer(reply)
        if seconds is not None:
            self._observe(seconds)
