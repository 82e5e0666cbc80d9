"""The processors: real rules behind a log in memory.

Every partition has a queue for each source topic and works what waits in them, in the engine's
order; what it changed and what it wrote is there at the end of the batch or, if it crashed before
that, never was. Whoever comes back has the rows and nothing else.
"""

from collections import deque
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any, Final, Protocol

from commands import pools, quotas, tasks
from commands.decider import Decision, Now, TimerDue
from processors.due import DueIndex
from processors.engine.clock import Clock
from processors.simulation.world import World
from schema import commands as c
from schema.ids import CommandId
from schema.policy import Policy
from schema.replies import CommandRefused, DeadLetter, InboxMessage, ReplyMessage
from schema.routes import AccountBound, PoolBound, TaskBound
from schema.topics import POOL_PARTITIONS, Topic
from schema.windows import EPOCH

PARTITIONS: Final = 2
TICK_MS: Final = 2_000
"""Half as often as the engine: what is due is found at most a second later."""
DUE_MAX: Final = 500
TASK, POOL, QUOTA, SUBMISSION = range(4)
"""The topics, in the order in which a batch works them."""

_TOPIC_OF: Final[dict[type, int]] = {
    **dict.fromkeys(TaskBound.__args__, TASK),
    **dict.fromkeys(PoolBound.__args__, POOL),
    **dict.fromkeys(AccountBound.__args__, QUOTA),
    c.SubmitTask: SUBMISSION,
}


class Chaos:
    """How often what goes wrong, a share of the times that it could."""

    def __init__(self, scale: float = 1.0) -> None:
        self.crash = 0.00005 * scale
        """Of a processor, at a batch: half of them before it is written, half after."""
        self.held_back = 0.02 * scale
        """At a batch: a topic of which only a part is read, so that others overtake it."""
        self.lost_ticks = 0.0002 * scale
        """At a tick: no more of them on that partition for up to 20 s."""
        self.doubled = 0.005 * scale
        """Of what people and runners append: it stands in the log twice."""
        self.late = 0.005 * scale
        """Of what people and runners append: it stands there up to 6 s later."""

    def calm(self) -> None:
        self.crash = self.held_back = self.lost_ticks = self.doubled = self.late = 0.0


class Reader(Protocol):
    """Whoever follows what was written."""

    def event(self, event: Any) -> None:  # noqa: ANN401 - any event of the three owners
        """One fact."""
        ...

    def refused(self, refusal: CommandRefused) -> None:
        """A fact of its own kind."""
        ...

    def replied(self, reply: ReplyMessage) -> None:
        """An answer to whoever asked."""
        ...

    def letter(self, letter: DeadLetter) -> None:
        """A task whose retries are spent."""
        ...

    def written(self) -> None:
        """A batch of a partition is written."""
        ...


class _Rows:
    """Rows of one kind: what the rules see, and what was there before the batch that is worked."""

    __slots__ = ("before", "index", "rows")

    def __init__(self, index: "DueIndex[Any] | None" = None) -> None:
        self.rows: dict[str, Any] = {}
        self.before: dict[str, Any] = {}
        """Of the rows that the batch has changed: as the changelog has them."""
        self.index = index
        if index is not None:
            index.reset(0)

    def get(self, key: str) -> Any:  # noqa: ANN401 - a row
        return self.rows.get(key)

    def put(self, key: str, row: Any) -> None:  # noqa: ANN401 - a row
        before = self.before
        if key not in before:
            before[key] = self.rows.get(key)
        self.rows[key] = row
        if self.index is not None:
            self.index.on_put(0, key.encode(), None, row)

    def delete(self, key: str) -> None:
        row = self.rows.pop(key, None)
        self.before.setdefault(key, row)
        if self.index is not None and row is not None:
            self.index.on_delete(0, key.encode(), row)

    def write(self) -> None:
        """The batch is good."""
        self.before.clear()

    def recover(self) -> None:
        """Memory is gone: all that is known is what was written."""
        for key, row in self.before.items():
            if row is None:
                self.rows.pop(key, None)
            else:
                self.rows[key] = row
        self.before.clear()
        if self.index is not None:
            self.index.reset(0)
            for key, row in self.rows.items():
                self.index.on_put(0, key.encode(), None, row)


class Partition:
    """One partition number: its queues, clocks, rows and pools."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.queues: tuple[deque[tuple[int, Any]], ...] = tuple(deque() for _ in range(4))
        self.clock = Clock([Topic.TASK_COMMANDS, Topic.POOL_COMMANDS])
        self.clock_kept = self.clock.store()
        self.now_kept = 0
        """Between two ticks nothing else of the clocks changes."""
        self._now: Now | None = None
        self.tasks = _Rows(DueIndex(tasks.due_ms))
        self.quotas = _Rows()
        self.pools = pools.PoolState()
        self.pools_kept: dict[str, Any] = {}
        self.policy: Policy | None = None
        self.up = True
        self.away_until = 0
        self.scheduled = False
        self.skew_ms = 0
        """How far its broker's clock is ahead of the true time."""
        self.ticks_from = 0
        self.tick_number = 0

    def now(self, stamp: int) -> Now:
        """The time of a command: both topics tick together, so their served clocks are one."""
        clock = self.clock
        if self._now is None or stamp > clock.now:
            at = clock.advance(stamp)
            self._now = Now(EPOCH + timedelta(milliseconds=at), clock.served(Topic.POOL_COMMANDS))
        return self._now

    def tick(self, stamp: int) -> Now:
        """A tick was read on both topics."""
        self.clock.advance(stamp)
        self.clock.tick(Topic.TASK_COMMANDS)
        self.clock.tick(Topic.POOL_COMMANDS)
        self.clock_kept = self.clock.store()
        self._now = None
        return self.now(stamp)

    def recover(self) -> None:
        """What a process that takes the partition over makes of its rows."""
        self.tasks.recover()
        self.quotas.recover()
        self.pools = pools.PoolState()
        for key, row in self.pools_kept.items():
            self.pools.load(key, row)
        self.clock = Clock([Topic.TASK_COMMANDS, Topic.POOL_COMMANDS])
        self.clock.restore(self.clock_kept)
        self.clock.now = self.now_kept
        self._now = None
        held = self.quotas.rows.get(quotas.POLICY_KEY)
        self.policy = None if held is None else held.policy

    def write(self) -> None:
        """The batch is good: rows and clocks are kept."""
        self.tasks.write()
        self.quotas.write()
        changes = self.pools.take_changes()
        for key, row in changes.items():
            if row is None:
                self.pools_kept.pop(key, None)
            else:
                self.pools_kept[key] = row
        self.now_kept = self.clock.now


class Flow:
    """All partitions; `put` is the only way in, `reader` and `inbox` are the ways out."""

    def __init__(self, world: World, chaos: Chaos) -> None:
        self.world = world
        self.chaos = chaos
        self.parts = [Partition(number) for number in range(PARTITIONS)]
        self.reader: Reader
        self.inbox: Callable[[InboxMessage], None]
        self.commands = 0
        """Worked so far; each once, however often it was begun."""
        self.crashes = 0
        self._outage = False

    def start(self) -> None:
        for part in self.parts:
            self.world.after(part.number * 7, self._tick, part)

    def publish(self, policy: Policy) -> None:
        """To every partition of both topics that want it."""
        for part in self.parts:
            for topic in (QUOTA, POOL):
                command = c.PublishPolicy(
                    command_id=CommandId(f"policy-{policy.version}-{topic}-{part.number}"),
                    policy=policy,
                )
                self._append(part, topic, command)

    def pool_state(self, pool_id: str) -> pools.PoolState:
        """The pools of the partition in which this one is decided, as they are in memory."""
        return self.parts[POOL_PARTITIONS[pool_id] % PARTITIONS].pools

    # --- appending -------------------------------------------------------------------------------

    def put(self, command: Any) -> None:  # noqa: ANN401 - any command
        """A command, where it belongs: by the user, the pool or the account."""
        topic = _TOPIC_OF[type(command)]
        if topic == TASK:
            number = int(command.task_id[-6:])
        elif topic == POOL:
            number = POOL_PARTITIONS[command.pool_id]
        else:
            account = command.origin.account_id if topic == SUBMISSION else command.account_id
            number = int(account[-6:])  # tenants are called so that this holds for them too
        part = self.parts[number % PARTITIONS]
        world = self.world
        part.queues[topic].append((world.now + part.skew_ms, command))
        if not part.scheduled:
            part.scheduled = True
            world.after(world.between(4, 40), self._work, part)

    def tell(self, told: Sequence[Any]) -> None:
        """From outside (people, runners): one after the other; late or twice, now and then."""
        chaos, dice = self.chaos, self.world.dice
        if chaos.late and dice() < chaos.late:
            self.world.after(self.world.between(1, 6_000), self._put_all, told)
        else:
            for command in told:
                self.put(command)
        if chaos.doubled and dice() < chaos.doubled:
            self.world.after(self.world.between(1, 15_000), self._put_all, told)

    def _put_all(self, told: Sequence[Any]) -> None:
        for command in told:
            self.put(command)

    def _append(self, part: Partition, topic: int, command: Any) -> None:  # noqa: ANN401
        part.queues[topic].append((self.world.now + part.skew_ms, command))
        self._schedule(part)

    def _schedule(self, part: Partition) -> None:
        if not part.scheduled:
            part.scheduled = True
            self.world.after(self.world.between(4, 40), self._work, part)

    # --- faults ----------------------------------------------------------------------------------

    def outage(self, milliseconds: int) -> None:
        """All processors are away for so long."""
        for part in self.parts:
            self._crash(part, milliseconds)

    def _crash(self, part: Partition, down_ms: int) -> None:
        self.crashes += part.up
        part.up = False
        part.away_until = max(part.away_until, self.world.now + down_ms)
        self.world.after(down_ms, self._restart, part)

    def _restart(self, part: Partition) -> None:
        if part.up or self.world.now < part.away_until:
            return  # it was away already when all went
        part.up = True
        part.recover()
        self._schedule(part)

    # --- working ---------------------------------------------------------------------------------

    def _work(self, part: Partition) -> None:
        """One batch: some of what waits, decided, and written all at once or not at all."""
        part.scheduled = False
        if not part.up:
            return
        world, chaos = self.world, self.chaos
        done: list[tuple[int, int, Any]] = []
        decisions: list[Decision[Any]] = []
        for topic, queue in enumerate(part.queues):
            if not queue:
                continue
            count = len(queue)
            if chaos.held_back and world.dice() < chaos.held_back:
                count = world.between(0, count)
            for _ in range(count):
                stamp, command = queue.popleft()
                done.append((topic, stamp, command))
                decisions.append(self._apply(part, topic, stamp + world.start_ms, command))
        crashes = chaos.crash and world.dice() < chaos.crash
        if crashes and world.dice() < 0.5:  # noqa: PLR2004 - before it is written, or after
            for topic, stamp, command in reversed(done):
                part.queues[topic].appendleft((stamp, command))
            part.recover()
            self._crash(part, world.between(500, 9_000))
            return
        self.commands += len(done)
        self._write(part, decisions)
        if crashes:
            self._crash(part, world.between(500, 9_000))
        elif any(part.queues):
            self._schedule(part)

    def _apply(self, part: Partition, topic: int, stamp: int, command: Any) -> Decision[Any]:  # noqa: ANN401
        now = part.now(stamp)
        if topic == POOL:
            return pools.handle(part.pools, command, now)
        if topic == TASK:
            return tasks.handle(part.tasks, command, now, part.policy)
        decided = quotas.handle(part.quotas, command, now)
        if type(command) is c.PublishPolicy:
            held = part.quotas.rows.get(quotas.POLICY_KEY)
            part.policy = None if held is None else held.policy
        return decided

    def _write(self, part: Partition, decisions: list[Decision[Any]]) -> None:
        part.write()
        reader = self.reader
        for events, orders, reply, refusal in decisions:
            for event in events:
                reader.event(event)
            for order in orders:
                if type(order) in _TOPIC_OF:
                    self.put(order)
                elif type(order) is DeadLetter:
                    reader.letter(order)
                else:
                    self.inbox(order)  # type: ignore[arg-type] # the rest goes to runners
            if reply is not None:
                reader.replied(reply)
            if refusal is not None:
                reader.refused(refusal)
        reader.written()

    # --- ticks -----------------------------------------------------------------------------------

    def _tick(self, part: Partition) -> None:
        """One on both topics, appended behind what waits and worked at once."""
        world = self.world
        world.after(TICK_MS, self._tick, part)
        if not part.up or world.now < part.ticks_from:
            return
        if self.chaos.lost_ticks and world.dice() < self.chaos.lost_ticks:
            part.ticks_from = world.now + world.between(2_000, 20_000)
            return
        if any(part.queues):  # a tick never overtakes what was there before it
            part.scheduled = False
            self._work(part)
        if not _is_up(part):
            return
        part.tick_number += 1
        now = part.tick(world.now + part.skew_ms + world.start_ms)
        decisions: list[Decision[Any]] = []
        self._due_tasks(part, now, decisions)
        self._due_pools(part, now, decisions)
        if decisions:
            self._write(part, decisions)
        else:
            part.now_kept = part.clock.now

    def _due_pools(self, part: Partition, now: Now, decisions: list[Decision[Any]]) -> None:
        """As the shell does it: each deadline that has come, then the slots that are free."""
        state = part.pools
        tick = CommandId(f"tick-{part.number}-{part.tick_number}")
        for _ in range(DUE_MAX):
            key = state.due(now.served_ms)
            if key is None:
                break
            decisions.append(pools.fire(state, TimerDue(tick, key), now))
        settled = pools.settle(state, tick, now)
        if settled.events or settled.orders:
            decisions.append(settled)

    def _due_tasks(self, part: Partition, now: Now, decisions: list[Decision[Any]]) -> None:
        index = part.tasks.index
        if index is None:
            return
        for key in index.due(0, now.served_ms, DUE_MAX):
            task_id = key.decode()
            timer = TimerDue(CommandId(f"tick-{part.tick_number}-{task_id}"), task_id)
            decisions.append(tasks.on_due(part.tasks, timer, now, part.policy))


def _is_up(part: Partition) -> bool:
    """A batch may have crashed it meanwhile."""
    return part.up
