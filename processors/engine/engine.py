"""The runtime of one process: which partition numbers it owns, how they are taken and given back.

On assignment: fence (InitProducerId) -> end what hangs -> read the changelog to its end -> seek ->
open. State is kept over a rebalance only if nobody else owned the partition since: same producer
id, epoch one higher.
"""

# aiokafka's clients have no types.
# ruff: noqa: ANN401

import asyncio
import contextlib
import logging
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from processors.engine import changelog, clients
from processors.engine.errors import GapError, RecoveryError, TopologyError
from processors.engine.exits import DOUBT, leave
from processors.engine.hanging import ends
from processors.engine.metrics import Metrics
from processors.engine.order import Batch, Waiting
from processors.engine.owner import Owner, Shared
from processors.engine.records import Source
from processors.engine.routes import Routes
from processors.engine.rows import AnyTable
from processors.engine.rules import Rules
from processors.engine.settings import Settings
from processors.engine.ticker import Ticker
from processors.engine.writer import Writer

log = logging.getLogger(__name__)

Place = tuple[str, int]


class Health(NamedTuple):
    """For a readiness probe; `reason` says why it is not ready."""

    ready: bool
    reason: str
    partitions: tuple[int, ...]
    quarantined: int


class Seen(NamedTuple):
    """Where the consumer stands in a source partition."""

    position: int
    """Next to fetch."""
    end: int
    """Of what may be read."""
    handed: int
    """End of what was handed to the agents."""


class Engine:
    """Owners by partition number. Everything runs in the app's event loop."""

    def __init__(
        self,
        settings: Settings,
        *,
        sources: Sequence[Source],
        tables: Sequence[AnyTable],
        outputs: Collection[str],
        rules: Rules,
        metrics: Metrics,
    ) -> None:
        self.settings = settings
        self.sources = tuple(sources)
        self.tables = tuple(tables)
        self.outputs = frozenset(outputs)
        self.rules = rules
        self.metrics = metrics
        self.owners: dict[int, Owner] = {}
        self.revocations = 0
        """Grows with each revocation: whoever began before it must begin again."""
        self.down: str | None = None
        self.ready = False
        self.recovered_at = time.monotonic()
        """When getting ready last got on; the watchdog looks at it."""
        self._counts: dict[str, int] = {}
        self._shared: Shared | None = None
        self._tick_producer: Any = None
        self._assigning = asyncio.Lock()
        self._backlog_max = 4 * settings.limits.batch_max

    # ------------------------------------------------------------------------- what the app calls

    @property
    def topics(self) -> frozenset[str]:
        """The co-partitioned topics: sources, changelog, journal."""
        return frozenset(s.topic for s in self.sources) | {
            self.settings.changelog,
            self.settings.journal,
        }

    async def check_topics(self) -> None:
        """Raises TopologyError unless every topic is there, with the right number of partitions."""
        self._counts = await clients.check_topics(self.settings, self.topics, self.outputs)

    def dispatch(self, batch: Batch) -> None:
        """One fetched batch, from the agent of its topic."""
        owner = self.owners.get(batch.partition)
        if owner is not None:
            owner.submit(batch)

    def may_fetch(self, topic: str, partition: int) -> bool:
        """Whether there is room for more records of a source partition."""
        owner = self.owners.get(partition)
        if owner is None or not owner.open:
            return False
        return owner.waiting.count(topic) < self._backlog_max

    def fetch_pause(self) -> float:
        """Seconds to wait before the next fetch: half the pace, so that fetches are few too."""
        return 0.0 if self._shared is None else self._shared.pace.seconds / 2

    def health(self) -> Health:
        """Any thread may ask."""
        owners = tuple(self.owners.values())
        quarantined = sum(len(owner.writer.quarantine.keys) for owner in owners)
        reason = self.down or (self._silent(owners) if self.ready else "recovering")
        return Health(not reason, reason, tuple(sorted(self.owners)), quarantined)

    # --------------------------------------------------------------------- taking and giving back

    async def quiesce(self) -> None:
        """Partitions are revoked: finish what is being written, begin nothing more."""
        self.revocations += 1
        self._set_ready(ready=False)
        for owner in self.owners.values():
            owner.close()
        await asyncio.gather(*(owner.finished() for owner in self.owners.values()))

    async def stop(self) -> None:
        await self.quiesce()
        await asyncio.gather(*(owner.stop() for owner in self.owners.values()))
        if self._tick_producer is not None:
            producer, self._tick_producer = self._tick_producer, None
            await clients.close_quietly(producer)

    async def assign(self, places: Iterable[Place]) -> None:
        """Own these source partitions and no others. Not open yet: the consumer has to seek."""
        async with self._assigning:  # a run that a rebalance cancelled unwinds before the next
            await self._assign(self._numbers(places))

    def positions(self) -> dict[Place, int | None]:
        """Where each owned source partition goes on; None: it was never read."""
        return {
            (source.topic, number): owner.writer.positions.get(source.topic)
            for number, owner in self.owners.items()
            for source in self.sources
        }

    def open(self, positions: Mapping[Place, int]) -> None:
        """The consumer stands at these positions: begin."""
        for (topic, number), position in positions.items():
            owner = self.owners[number]
            owner.waiting.clear()
            if owner.writer.positions.setdefault(topic, position) != position:
                raise GapError(f"{topic}[{number}] was not sought to its position")
        if self.down is None:
            for owner in self.owners.values():
                owner.start(Ticker(self._tick_producer, owner.writer))
        self._set_ready(ready=self.down is None)

    async def beat(self, seen: Mapping[Place, Seen]) -> None:
        """Once a second: ticks, late positions, gauges."""
        await asyncio.gather(*(owner.beat() for owner in self.owners.values()))
        metrics = self.metrics
        if self._shared is not None:
            metrics.pace.set(self._shared.pace.seconds)
        for (topic, number), (position, end, _) in seen.items():
            owner = self.owners.get(number)
            if owner is not None:
                waiting = owner.waiting.count(topic)
                metrics.lag.labels(topic, number).set(max(0, end - position) + waiting)
        for number, owner in self.owners.items():
            quarantine = owner.writer.quarantine
            metrics.quarantined.labels(number).set(len(quarantine.keys))
            metrics.parked.labels(number).set(quarantine.parked)

    # ------------------------------------------------------------------------------------ details

    def transactional_id(self, number: int) -> str:
        """The fence. Only a test may give another one."""
        return clients.transactional_id(self.settings, number)

    def owner(self, writer: Writer, producer: Any, shared: Shared) -> Owner:
        return Owner(writer, producer, Waiting(self.sources, self.settings.limits), shared)

    def _numbers(self, places: Iterable[Place]) -> list[int]:
        by_number: dict[int, set[str]] = {}
        for topic, number in places:
            by_number.setdefault(number, set()).add(topic)
        wanted = {source.topic for source in self.sources}
        for number, topics in by_number.items():
            if topics != wanted:
                raise TopologyError(
                    f"partition {number} was assigned without {sorted(wanted - topics)}: "
                    "another release is in the group; stop all, start all"
                )
        return sorted(by_number)

    def _silent(self, owners: Iterable[Owner]) -> str:
        """Which partition has lost Kafka; one that is idle notices it by its ticks alone."""
        now = time.monotonic()
        for owner in owners:
            silent = 0.0 if owner.ticker is None else owner.ticker.silent_seconds()
            seconds = min(silent, now - owner.moved_at)
            if seconds > self.settings.silent_seconds_max:
                return f"partition {owner.number}: no tick has come back for {seconds:.0f} s"
        return ""

    async def _assign(self, numbers: list[int]) -> None:
        start = time.monotonic()
        if not self._counts:
            await self.check_topics()
        shared = self._shared = self._shared or self._new_shared()
        if self._tick_producer is None and any(source.ticked for source in self.sources):
            self._tick_producer = clients.producer(
                self.settings, f"{self.settings.app_id}-ticks", None
            )
            await self._tick_producer.start()
        for number in [n for n in self.owners if n not in numbers]:
            await self._lose(self.owners.pop(number))
        if self.down is not None:
            return
        async with ends(self.settings, self._counts) as ending:
            outcomes = await ending.outcomes([self.transactional_id(n) for n in numbers])
            fresh = await asyncio.gather(*(self._fence(number, shared) for number in numbers))
            self.moved()
            await ending.finish(outcomes, self._counts)
        writers = {owner.number: owner.writer for owner in fresh if owner is not None}
        fenced = time.monotonic()
        count = await changelog.recover(self.settings, writers, self.moved)
        for number in writers:
            self.owners[number].recovered = True
        seconds = time.monotonic() - fenced
        self.metrics.recovered.inc(count)
        self.metrics.recovery_seconds.set(seconds)
        log.info(
            "assigned",
            extra={
                "partitions": numbers,
                "recovered": sorted(writers),
                "records": count,
                "fence_seconds": round(fenced - start, 3),
                "recovery_seconds": round(seconds, 3),
            },
        )

    async def _fence(self, number: int, shared: Shared) -> Owner | None:
        """Become the only one who can write for this number.

        Gives an owner to be recovered, or None if the state in memory is still the truth.
        """
        old = self.owners.pop(number, None)
        before = None if old is None else old.fenced_as
        if old is not None:
            await old.stop()
        producer = clients.producer(
            self.settings,
            f"{self.settings.app_id}-{number}",
            self.transactional_id(number),
            lambda: self._broken(number),
        )
        await producer.start()
        for topic in self._counts:
            producer.client.add_topic(topic)
        for topic in self._counts:  # a synchronous step must find the metadata of every output
            await producer.partitions_for(topic)
        if old is not None:
            owner = self.owner(old.writer, producer, shared)
            pid, epoch = owner.fenced_as
            if old.recovered and before == (pid, epoch - 1):
                owner.recovered = True
                self.owners[number] = owner
                return None
            old.writer.rows.drop()
        writer = Writer(
            number,
            partitions=self.settings.partitions,
            sources=self.sources,
            tables=self.tables,
            rules=self.rules,
            routes=Routes({t: self._counts[t] for t in self.outputs}),
            per_minute_max=self.settings.quarantines_per_minute_max,
        )
        owner = self.owners[number] = self.owner(writer, producer, shared)
        return owner

    def _broken(self, number: int) -> None:
        """A broker may be gone, and with it the end of a transaction: see `hanging`."""
        owner = self.owners.get(number)
        if owner is not None and owner.just_wrote():
            leave(
                DOUBT,
                f"partition {number}: a connection broke right after a transaction; whether it "
                "ended in every partition is not known",
            )

    async def _lose(self, owner: Owner) -> None:
        owner.writer.rows.drop()
        await owner.stop()
        number = str(owner.number)
        for source in self.sources:
            with contextlib.suppress(KeyError):
                self.metrics.lag.remove(source.topic, number)
        for gauge in (self.metrics.quarantined, self.metrics.parked):
            with contextlib.suppress(KeyError):
                gauge.remove(number)

    def moved(self) -> None:
        """Getting ready gets on."""
        self.recovered_at = time.monotonic()

    def _new_shared(self) -> Shared:
        shared = Shared(self.settings, self.metrics)
        shared.stay_down = self.stay_down
        return shared

    def stay_down(self, reason: str) -> None:
        """The code is wrong: alive, so that nobody starts it again and again, but not ready."""
        self.down = reason
        log.critical("stays down", extra={"reason": reason})
        self.metrics.down.set(1)
        self._set_ready(ready=False)
        for owner in self.owners.values():
            owner.close()

    def _set_ready(self, *, ready: bool) -> None:
        self.ready = ready
        self.metrics.ready.set(int(ready))


def check_positions(
    known: Mapping[Place, int | None], begin: Mapping[Place, int], end: Mapping[Place, int]
) -> dict[Place, int]:
    """Where to seek; raises RecoveryError for a source that was trimmed or cut."""
    positions: dict[Place, int] = {}
    for place, position in known.items():
        topic, number = place
        start = 0 if position is None else position
        if start < begin[place]:
            what = "was never read" if position is None else f"was read up to {position}"
            raise RecoveryError(
                f"{topic}[{number}] {what}, but begins at {begin[place]}: it was trimmed; "
                "the state must come from a backup or the archive"
            )
        if start > end[place]:
            raise RecoveryError(f"{topic}[{number}] ends at {end[place]}, not at {position}")
        positions[place] = start
    return positions
