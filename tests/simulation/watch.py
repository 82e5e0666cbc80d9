"""The watch: follows every committed record and says what does not hold, as soon as it does not.

It reads JSON and counts for itself; of the deciders it asks nothing. Books of their own: `tasks`
(moves, tokens, ends), `ledger` (limits, every reservation once), `yards` (slots and leases). What
memory and rows say is held against the books after transactions and after each recovery (`audit`).
"""

from collections import Counter, defaultdict
from collections.abc import Callable
from typing import Any

import msgspec

from commands.tasks import STATUSES
from processors.engine import Record
from schema.codec import DEAD_LETTERS
from schema.replies import DeadLetter, DeadLetterMessage, KeyReleased
from schema.topics import Topic
from tests.simulation.cluster import TICKED, Cluster
from tests.simulation.served import Served
from tests.simulation.watch_ledger import Ledger
from tests.simulation.watch_tasks import TaskBook
from tests.simulation.watch_yards import Yards
from tests.simulation.world import Log, World

Json = dict[str, Any]
_EVENTS = {
    Topic.TASK_EVENTS: "task_id",
    Topic.QUOTA_EVENTS: "account_id",
    Topic.POOL_EVENTS: "pool_id",
    Topic.MATERIAL_EVENTS: "material_id",
}
_decode = msgspec.json.Decoder(Json).decode


class Watch:
    """All that must hold; `violations` must stay empty."""

    def __init__(self, world: World, log: Log, cluster: Cluster, violations_max: int) -> None:
        self.world = world
        self._violations_max = violations_max
        self.violations: list[str] = []
        self._cluster = cluster
        self._seqs: dict[tuple[str, str], int] = {}
        self._event_ids: set[tuple[str, str]] = set()
        self.served = {
            (str(topic), number): Served() for topic in TICKED for number in range(log.partitions)
        }
        for topic in TICKED:
            log.follow(
                topic, lambda record: self.served[record.topic, record.partition].follow(record)
            )
        self.tasks = TaskBook(self)
        self.ledger = Ledger(self)
        self.yards = Yards(self, log.partitions)
        self.asked: Counter[str] = Counter()
        """Commands that somebody waits for: so many copies of each stand in the log."""
        self.answered: Counter[str] = Counter()
        self.accepted: set[str] = set()
        """Tasks whose submission was accepted."""
        self.submissions: set[str] = set()
        self.garbage: set[tuple[str, int, int]] = set()
        """Records that are poison on purpose."""
        self.set_aside: Callable[[DeadLetter], None] = lambda _letter: None
        """Told of each command that was poison although it is well: an operator's business."""
        self.counts: Counter[str] = Counter()
        self._since_audit: dict[int, int] = defaultdict(int)
        cluster.committed = self.committed
        cluster.recovered = self.audit

    @property
    def over(self) -> bool:
        """Whether it has seen enough."""
        return len(self.violations) >= self._violations_max

    def demand(self, holds: bool, words: str) -> None:  # noqa: FBT001 - reads as: demand that …
        if not holds:
            self.violations.append(f"at {self.world.now / 1000:.3f} s: {words}")

    # --- what was written ------------------------------------------------------------------------

    def committed(self, number: int, records: list[Record]) -> None:
        """One transaction of a partition."""
        pools = False
        for record in records:
            topic = record.topic
            if topic in _EVENTS:
                self._event(record, _decode(record.value or b""))
                pools = pools or topic == Topic.POOL_EVENTS
            elif topic == Topic.REPLIES:
                self._reply(_decode(record.value or b""))
            elif topic == Topic.DEAD_LETTERS:
                self._dead_letter(DEAD_LETTERS.decode(record.value or b""))
            elif topic == Topic.REFUSALS:
                self._refusal(_decode(record.value or b""))
        if pools:
            self.yards.compare(number, self._cluster.pools(number))
        self._since_audit[number] += 1
        if self._since_audit[number] > 150:
            self.audit(number)

    def _event(self, record: Record, event: Json) -> None:
        topic, kind = record.topic, event["type"]
        key = (topic, (record.key or b"").decode())
        expected = self._seqs.get(key, 0) + 1
        seq = event["seq"]
        self.demand(seq == expected, f"{key}: seq {seq} ({kind}) where {expected} must follow")
        self._seqs[key] = seq
        identity = (key[1], event["event_id"])
        self.demand(identity not in self._event_ids, f"{key}: event {identity[1]} twice")
        self._event_ids.add(identity)
        if kind == "policy.adopted.v1":
            return
        self.demand(event[_EVENTS[Topic(topic)]] == key[1], f"{key}: holds {kind} of another key")
        if topic == Topic.TASK_EVENTS:
            self.tasks.follow(record.partition, event)
        elif topic == Topic.QUOTA_EVENTS:
            self.ledger.follow(event)
        elif topic == Topic.POOL_EVENTS:
            self.yards.follow(record.partition, event)

    def _reply(self, reply: Json) -> None:
        command_id = reply["command_id"]
        self.answered[command_id] += 1
        self.demand(
            self.answered[command_id] <= self.asked[command_id],
            f"{command_id}: answered {self.answered[command_id]} times, "
            f"asked {self.asked[command_id]} times",
        )
        if reply["type"] == "reply.accepted.v1" and command_id in self.submissions:
            self.accepted.add(reply["key"])
        else:
            self.counts[f"refused:{reply.get('reason', 'accepted')}"] += 1

    def _dead_letter(self, letter: DeadLetterMessage) -> None:
        if isinstance(letter, KeyReleased):
            return
        self.counts["dead_letters"] += 1
        place = (letter.topic, letter.partition, letter.offset)
        spent = letter.cause.startswith("retries_spent") and letter.offset >= 0
        if place in self._cluster.poisoned - self.garbage and not spent:
            self.counts["poison"] += 1
            self.set_aside(letter)
            return
        self.demand(spent or place in self.garbage, f"poison: {letter.cause} at {place}")

    def _refusal(self, refusal: Json) -> None:
        """Everything may be refused, but not what the tasks order from the ledger."""
        self.counts["refusals"] += 1
        self.demand(
            refusal["command"] not in {"quota.commit.v1", "quota.release.v1"},
            f"the ledger refused {refusal['command']} of {refusal['key']}: {refusal['reason']}",
        )

    # --- what is remembered ----------------------------------------------------------------------

    def audit(self, number: int) -> None:
        """Rows and indexes of a partition against the books."""
        self._since_audit[number] = 0
        writer = self._cluster.writer(number)
        if writer is None:
            return
        tables = self._cluster.process_of(number).tables
        self.counts["audits"] += 1
        rows = {key.decode(): row for key, row in writer.rows.items(tables.tasks)}
        self.tasks.audit(
            number, {key: (STATUSES[type(row)].value, row.seq) for key, row in rows.items()}
        )
        quotas = {key.decode(): row for key, row in writer.rows.items(tables.quotas)}
        self.ledger.audit(quotas)
        pools = {key.decode(): row for key, row in writer.rows.items(tables.pools)}
        state = self._cluster.pools(number)
        self.demand(pools == state.rows, f"partition {number}: pools in memory are not their rows")
        self.yards.audit(number, pools)

    def close(self) -> None:
        """Everything is over: what must hold at the end."""
        for number in range(self._cluster.partitions):
            self.audit(number)
        for command_id, copies in self.asked.items():
            found = self.answered[command_id]
            self.demand(found == copies, f"{command_id}: asked {copies} times, answered {found}")
        self.tasks.close(self.accepted)
        self.ledger.close()
        self.yards.close()

    @property
    def settled(self) -> bool:
        """Whether every accepted task has ended, and the pools are empty."""
        if not (self.tasks.settled and self.yards.settled and self.ledger.settled):
            return False
        return all(self.answered[one] >= copies for one, copies in self.asked.items())
