"""One seed from beginning to end: people, runners, processors and faults on one virtual clock."""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from hashlib import sha256

from processors.engine import EngineError
from processors.engine.records import TICK_KEY
from schema.topics import Topic
from tests.faults.proof import EVENT_TOPICS, Proof, RawRecord, prove
from tests.simulation import policy
from tests.simulation.cluster import Chaos, Cluster
from tests.simulation.fleet import Fleet
from tests.simulation.people import People
from tests.simulation.watch import Watch
from tests.simulation.world import Log, World

TASKS = 150
VIOLATIONS_MAX = 25
_MONTH_END_MS = 1_801_440_000_000 - 90_000
"""90 s before a month begins anew in UTC (1 February 2027)."""
_NOON_MS = 1_800_014_400_000
_SECOND_MS = 1_000
_SETTLE_MS = 10 * 60 * _SECOND_MS
OUTAGE_MS = 30 * 60 * _SECOND_MS
JUMP_MS = 10 * 60 * _SECOND_MS


@dataclass
class Outcome:
    """What a seed led to."""

    seed: int
    violations: list[str]
    counts: dict[str, int]
    digest: str
    """Of every byte of the log."""
    proof: Proof
    seconds: float = 0.0
    """Virtual ones."""
    notes: list[str] = field(default_factory=list[str])


class Simulation:
    """Everything that one seed is made of."""

    def __init__(self, seed: int, tasks: int, violations_max: int) -> None:
        self.seed = seed
        self.tasks = tasks
        self.chaos = Chaos()
        self._back_at = 0
        self.world = World(seed, _MONTH_END_MS if seed % 3 == 0 else _NOON_MS)
        partitions = self.world.between(1, 3)
        self.log = Log(self.world, partitions)
        together = self.world.chance(0.5)
        groups = [list(range(partitions))] if together else [[n] for n in range(partitions)]
        self.cluster = Cluster(self.world, self.log, self.chaos, groups)
        self.watch = Watch(self.world, self.log, self.cluster, violations_max)
        self.people = People(self.world, self.log, self.chaos, self.watch)
        self.fleet = Fleet(self.world, self.log, self.chaos)
        self.watch.yards.at_work = self.fleet.at_work
        self.notes = [f"{partitions} partitions in {len(groups)} processes"]

    def run(self) -> Outcome:
        """All of it; what an engine would have died of is a violation too."""
        try:
            self._play()
        except EngineError as error:
            self.watch.demand(holds=False, words=f"the engine stopped: {error!r}")
        return self._outcome()

    def _play(self) -> None:
        world = self.world
        self.cluster.start()
        late = world.between(0, 3_000)
        world.after(late, self.people.publish)
        for scene_pool in policy.SCENES.values():
            for number in range(world.between(1, 2)):
                spot = scene_pool == "C" and world.chance(0.5)
                slots = world.between(1, 4)
                self.fleet.add(f"runner-{scene_pool}-{number}", scene_pool, slots, spot=spot)
        span_ms = max(self.tasks, 20) * world.between(600, 1_600)
        world.after(late + 1_000, lambda: self.people.come(self.tasks, span_ms))
        world.after(world.between(2_000, 10_000), self.fleet.hurt)
        self._sometimes(span_ms)
        end = late + span_ms + 15_000
        world.run(end, lambda: self.watch.over)
        if not self.watch.over:
            self._settle()

    def _settle(self) -> None:
        """Nothing goes wrong any more: everything ends, and then all must add up."""
        world = self.world
        self.chaos.calm()
        self.fleet.settle()
        ended_at = world.now
        until = max(ended_at, self._back_at) + _SETTLE_MS
        while world.now < until and not self._still():
            world.run(world.now + _SECOND_MS, lambda: self.watch.over)
            if self.watch.over:
                return
        self.notes.append(f"settled after {(world.now - ended_at) / 1000:.0f} s")
        self.watch.close()

    def _sometimes(self, span_ms: int) -> None:
        """What happens once or a few times in a seed, if at all."""
        world = self.world
        self._maybe(0.4, span_ms, "all processors are away for 30 minutes", self._outage)
        self._maybe(0.4, span_ms, "the broker's clock jumps ahead by 10 minutes", self._jump)
        self._maybe(0.5, span_ms, "another policy", self.people.publish)
        for _ in range(3):
            self._maybe(0.4, span_ms, "a lane is paused", self.people.pause_a_lane)
            self._maybe(0.4, span_ms, "a top-up", self.people.top_up)
        for process in self.cluster.processes:
            for _ in range(2):
                down_ms = world.between(500, 20_000)
                self._maybe(
                    0.5,
                    span_ms,
                    "a process is away",
                    partial(self.cluster.crash, process, down_ms),
                )

    def _maybe(self, share: float, span_ms: int, what: str, do: Callable[[], None]) -> None:
        world = self.world
        if not world.chance(share):
            return
        at = world.between(5_000, span_ms)

        def happen() -> None:
            self.notes.append(f"{world.now / 1000:.0f} s: {what}")
            do()

        world.after(at, happen)

    def _outage(self) -> None:
        self._back_at = self.world.now + OUTAGE_MS
        self.cluster.outage(OUTAGE_MS)

    def _jump(self) -> None:
        self.world.ahead_ms += JUMP_MS

    def _still(self) -> bool:
        """Nothing is open, and nothing is unread."""
        if self.people.left or not self.watch.settled:
            return False
        for number in range(self.log.partitions):
            writer = self.cluster.writer(number)
            if writer is None:
                return False
            for topic, position in writer.positions.items():
                waiting = self.log.records[topic, number][position:]
                if any(record.key != TICK_KEY for record in waiting):
                    return False
        return True

    def _outcome(self) -> Outcome:
        digest = sha256()
        raw: dict[str, list[RawRecord]] = {topic: [] for topic in EVENT_TOPICS}
        raw |= {str(Topic.DEAD_LETTERS): [], str(Topic.REFUSALS): []}
        for (topic, number), records in sorted(self.log.records.items()):
            for record in records:
                value = record.value or b""
                digest.update(b"%s/%d %d %s" % (topic.encode(), number, record.timestamp, value))
                if topic in raw:
                    key = (record.key or b"").decode()
                    raw[topic].append(RawRecord(topic, number, record.offset, key, value))
        proof = prove(raw, self.watch.accepted)
        violations = list(self.watch.violations)
        if not violations:
            violations += [f"proof: {words}" for words in proof.violations]
        counts = dict(self.watch.counts) | {
            "crashes": self.cluster.crashes,
            "transactions": self.cluster.transactions,
            "incarnations": len(self.fleet.incarnations),
            "records": sum(len(records) for records in self.log.records.values()),
            "accepted": len(self.watch.accepted),
        }
        return Outcome(
            self.seed,
            violations,
            counts,
            digest.hexdigest()[:16],
            proof,
            self.world.now / 1000,
            self.notes,
        )


def simulate(seed: int, tasks: int = TASKS, *, violations_max: int = VIOLATIONS_MAX) -> Outcome:
    """One seed; it ends early when so much was found to be wrong."""
    return Simulation(seed, tasks, violations_max).run()
