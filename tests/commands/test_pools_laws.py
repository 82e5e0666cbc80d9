"""What holds of a pool whatever comes in whatever order.

A small world stands around the real decider: tasks that start only the next token, runners that
take, forget, finish and die, and messages that keep the order of their sender only. Whatever
happens, at the end every task has ended, once, and every slot is free.
"""

from collections import Counter, deque
from collections.abc import Callable, Iterable
from itertools import product
from random import Random
from typing import Any, get_args

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from commands.decider import ImpossibleEventError
from commands.pools import TRANSITIONS, Stage, evolve, handle
from commands.pools.evolve import EVOLVE
from commands.pools.rows import LANES, LeaseRow, RunnerRow, lease_key, runner_key
from schema import commands as c
from schema import events as e
from schema.failures import FailureClass
from schema.ids import AccountId, CommandId, EventId, IncarnationId, RunnerId, TaskId
from schema.policy import BreakerPolicy, ScalingPolicy
from schema.replies import BeatAnswered, RunnerDismissed, StopAttempt, YieldAttempt
from schema.words import Lane, LossCause, Scene
from tests.support.pools import BEAT_MS, TTL_MS, A, Pools, check_same, policy

# --- the steps of an attempt, as a table and as code ----------------------------------------------

OF_ATTEMPT = (
    e.SlotProposed,
    e.SlotPreempted,
    e.SlotGranted,
    e.SlotRefused,
    e.AttemptAccepted,
    e.AttemptOver,
    e.SlotFreed,
    e.SlotLost,
)
FIELDS: dict[type, dict[str, Any]] = {
    e.SlotProposed: {"runner_id": RunnerId("r"), "incarnation_id": IncarnationId("1")},
    e.SlotPreempted: {"runner_id": RunnerId("r"), "for_task_id": TaskId("p0")},
    e.SlotRefused: {"reason": "x"},
    e.SlotFreed: {"runner_id": RunnerId("r")},
    e.SlotLost: {"runner_id": RunnerId("r"), "cause": LossCause.BACKSTOP},
}
T = TaskId("t")


@pytest.mark.parametrize(("stage", "kind"), list(product((None, *Stage), OF_ATTEMPT)), ids=str)
def test_the_table_of_steps_and_evolve_say_the_same(stage: Stage | None, kind: type) -> None:
    pools = Pools()
    pools.enqueue(T)
    pools.enqueue("p0", lane=Lane.P0)
    state = pools.state
    state.put(
        runner_key(A, RunnerId("r")),
        RunnerRow(
            incarnation_id=IncarnationId("1"), slots=1, lease_until_ms=10**9, fresh_until_ms=10**9
        ),
    )
    if stage is not None:
        held = LeaseRow(
            runner_id=RunnerId("r"), incarnation_id=IncarnationId("1"), stage=stage, lane=Lane.P1
        )
        state.put(lease_key(A, T, 1), held)
    event = kind(
        event_id=EventId("x.0"),
        seq=3,
        at=pools.now.at,
        pool_id=A,
        task_id=T,
        token=1,
        **FIELDS.get(kind, {}),
    )
    if (stage, kind) in TRANSITIONS:
        evolve(state, event, pools.now)
        assert pools.stage(T) is TRANSITIONS[(stage, kind)]
        assert state.pool(A).seq == 3
    else:
        with pytest.raises(ImpossibleEventError):
            evolve(state, event, pools.now)
        assert pools.stage(T) is stage


def test_every_event_of_the_topic_has_its_code() -> None:
    assert set(EVOLVE) == set(get_args(e.PoolEvent)) - {e.PolicyAdopted}
    assert {kind for _, kind in TRANSITIONS} == set(OF_ATTEMPT)


def test_an_event_with_another_seq_cannot_follow() -> None:
    for seq in (0, 1, 3):
        pools = Pools()
        pools.enqueue(T)
        event = e.TaskDequeued(
            event_id=EventId("x.0"), seq=seq, at=pools.now.at, pool_id=A, task_id=T, token=0
        )
        with pytest.raises(ImpossibleEventError):
            evolve(pools.state, event, pools.now)
        adopted = e.PolicyAdopted(
            event_id=EventId("x.0"), seq=seq, at=pools.now.at, policy=policy(2), who="", why=""
        )
        with pytest.raises(ImpossibleEventError):
            evolve(pools.state, adopted, pools.now)


@pytest.mark.parametrize(
    "runner",
    [
        {"slots": 0},
        {"draining": True},
        {"incarnation_id": IncarnationId("2")},
    ],
    ids=str,
)
def test_no_slot_is_proposed_that_is_not_free(runner: dict[str, Any]) -> None:
    pools = Pools()
    pools.enqueue(T)
    fields: dict[str, Any] = {"incarnation_id": IncarnationId("1"), "slots": 1, **runner}
    row = RunnerRow(lease_until_ms=10**9, fresh_until_ms=10**9, **fields)
    pools.state.put(runner_key(A, RunnerId("r")), row)
    event = e.SlotProposed(
        event_id=EventId("x.0"),
        seq=2,
        at=pools.now.at,
        pool_id=A,
        task_id=T,
        token=1,
        runner_id=RunnerId("r"),
        incarnation_id=IncarnationId("1"),
    )
    with pytest.raises(ImpossibleEventError):
        evolve(pools.state, event, pools.now)


LIVELY = policy(
    2,
    model_caps={"m": 1},
    lower_lane=Lane.P2,
    preemptible=True,
    min_run_seconds=5,
    yield_seconds=10,
    breaker=BreakerPolicy(failure_share_max=0.4, attempts_min=4, open_seconds=20, probes=2),
    scaling=ScalingPolicy(cards_max=3, wait_target_seconds=2, cooldown_seconds=5, down_seconds=5),
)
"""Everything that a pool can do of its own accord."""


# --- a small world --------------------------------------------------------------------------------


class Task:
    """What the task decider does, as far as a pool sees it."""

    def __init__(self, task_id: TaskId, lane: Lane, model: str) -> None:
        self.task_id = task_id
        self.lane = lane
        self.model = model
        self.moved = False
        self.token = 0
        self.status = "queued"
        self.started: list[int] = []
        self.ends = 0

    def end(self) -> None:
        self.status = "ended"
        self.ends += 1


class Runner:
    """One incarnation: what it holds, and what stands unread in its inbox."""

    def __init__(self, runner_id: RunnerId, number: int) -> None:
        self.runner_id = runner_id
        self.incarnation_id = IncarnationId(f"{runner_id}-{number}")
        self.number = number
        self.inbox: deque[Any] = deque()
        self.held: set[tuple[TaskId, int]] = set()
        self.beat = 0
        self.draining = False


class World:
    """Tasks, runners and the messages between them and the real pool."""

    def __init__(self) -> None:
        self.pools = Pools()
        self.pools.publish(LIVELY)
        self.tasks: dict[TaskId, Task] = {}
        self.runners: dict[RunnerId, Runner] = {}
        self.to_pool: dict[str, deque[Any]] = {}
        """By sender; a sender's messages keep their order."""
        self.to_task: dict[str, deque[Any]] = {}
        self.last: Any = None
        self.numbers = 0

    def named(self) -> CommandId:
        self.numbers += 1
        return CommandId(f"c{self.numbers}")

    # --- sending ---------------------------------------------------------------------------------

    def tell_pool(self, sender: str, kind: Any, **fields: Any) -> None:  # noqa: ANN401
        message = kind(command_id=self.named(), pool_id=A, **fields)
        self.to_pool.setdefault(sender, deque()).append(message)

    def runner_tells(self, runner: Runner, kind: Any, **fields: Any) -> None:  # noqa: ANN401
        self.tell_pool(
            runner.incarnation_id,
            kind,
            runner_id=runner.runner_id,
            incarnation_id=runner.incarnation_id,
            **fields,
        )

    def runner_tells_task(self, kind: str, task_id: TaskId, token: int) -> None:
        self.to_task.setdefault(f"runner {task_id}", deque()).append((kind, task_id, token))

    def enqueue(self, task: Task) -> None:
        self.tell_pool(
            task.task_id,
            c.EnqueueTask,
            task_id=task.task_id,
            token=task.token,
            lane=task.lane,
            account_id=AccountId(f"u-{task.task_id[-1]}"),
            scene=Scene.REHEARSAL,
            model=task.model,
            moved=task.moved,
        )

    def spread(self, decision: Any) -> None:  # noqa: ANN401
        """What the pool ordered goes on its way."""
        for order in decision.orders:
            if isinstance(order, c.StartAttempt | c.LoseAttempt | c.ExpireTask | c.MoveTask):
                self.to_task.setdefault(f"pool {order.task_id}", deque()).append(order)
            else:
                self.to_inbox(order)

    def to_inbox(self, message: Any) -> None:  # noqa: ANN401
        runner = self.runners.get(message.runner_id)
        if runner is not None and runner.incarnation_id == message.incarnation_id:
            runner.inbox.append(message)

    # --- receiving -------------------------------------------------------------------------------

    def pool_reads(self, sender: str) -> None:
        message = self.to_pool[sender].popleft()
        if not self.to_pool[sender]:
            del self.to_pool[sender]
        self.last = message
        self.spread(self.pools.do(message))

    def task_reads(self, sender: str) -> None:
        message = self.to_task[sender].popleft()
        if not self.to_task[sender]:
            del self.to_task[sender]
        if isinstance(message, tuple):
            self.report(*message)
            return
        task = self.tasks[message.task_id]
        match message:
            case c.StartAttempt():
                self.start(task, message)
            case c.LoseAttempt() if task.status == "running" and task.token == message.token:
                task.status = "queued"
                self.enqueue(task)
            case c.ExpireTask() if task.status == "queued" and task.token == message.token:
                task.end()
            case c.MoveTask() if task.status == "queued" and task.token == message.token:
                self.move(task, message)
            case _:
                pass

    def move(self, task: Task, order: c.MoveTask) -> None:
        assert not task.moved, "asked twice"
        task.lane, task.moved = order.lane, True
        self.tell_pool(task.task_id, c.DequeueTask, task_id=task.task_id, token=task.token)
        self.enqueue(task)

    def start(self, task: Task, order: c.StartAttempt) -> None:
        fields = {"task_id": task.task_id, "token": order.token}
        if task.status != "queued" or order.token != task.token + 1:
            self.tell_pool(task.task_id, c.RefuseAttempt, reason="no", **fields)
            return
        task.status, task.token = "running", order.token
        task.started.append(order.token)
        self.tell_pool(task.task_id, c.GrantAttempt, **fields)
        self.to_inbox(order)

    def report(self, kind: str, task_id: TaskId, token: int) -> None:
        task = self.tasks[task_id]
        if task.status != "running" or task.token != token:
            return
        if kind == "fail quietly":  # the new wait alone says that the attempt is over
            task.status = "queued"
            self.enqueue(task)
            return
        told: dict[str, Any] = {"ended_well": kind == "finish"}
        if kind == "fail":
            told["failure"] = FailureClass.CRASHED
        self.tell_pool(task_id, c.EndAttempt, task_id=task_id, token=token, **told)
        if kind == "finish":
            task.end()
        else:
            task.status = "queued"
            self.enqueue(task)

    def cancel(self, task: Task) -> None:
        if task.status == "queued":
            self.tell_pool(task.task_id, c.DequeueTask, task_id=task.task_id, token=task.token)
            task.end()
        elif task.status == "running":
            self.tell_pool(task.task_id, c.EndAttempt, task_id=task.task_id, token=task.token)
            task.end()

    def runner_reads(self, runner: Runner) -> None:
        message = runner.inbox.popleft()
        match message:
            case c.StartAttempt():  # the dispatch
                runner.held.add((message.task_id, message.token))
                self.runner_tells(
                    runner, c.AcceptAttempt, task_id=message.task_id, token=message.token
                )
            case YieldAttempt() if (message.task_id, message.token) in runner.held:
                self.runner_tells_task("yield", message.task_id, message.token)
                self.free(runner, message.task_id, message.token)
            case StopAttempt() | YieldAttempt():  # what it does not hold it says again
                self.free(runner, message.task_id, message.token)
            case BeatAnswered():
                kept = {(attempt.task_id, attempt.token) for attempt in message.held}
                for task_id, token in sorted(runner.held - kept):
                    self.free(runner, task_id, token)
            case RunnerDismissed():
                if not runner.draining:
                    self.restart(runner.runner_id, 2)
            case _:
                raise AssertionError(message)

    def free(self, runner: Runner, task_id: TaskId, token: int) -> None:
        runner.held.discard((task_id, token))
        self.runner_tells(runner, c.FreeSlot, task_id=task_id, token=token)

    def beat(self, runner: Runner) -> None:
        runner.beat += 1
        held = tuple(
            c.HeldAttempt(task_id=task_id, token=token) for task_id, token in sorted(runner.held)
        )
        unsaved_ms = tuple(3_000 * (place + runner.beat % 3) for place in range(len(held)))
        self.runner_tells(runner, c.BeatRunner, beat=runner.beat, held=held, unsaved_ms=unsaved_ms)

    def restart(self, runner_id: RunnerId, slots: int) -> None:
        """Another incarnation; the old one's unread inbox is nobody's."""
        before = self.runners.get(runner_id)
        runner = Runner(runner_id, 1 if before is None else before.number + 1)
        self.runners[runner_id] = runner
        self.runner_tells(runner, c.RegisterRunner, slots=slots, spot=runner.number % 3 == 0)

    # --- the end ---------------------------------------------------------------------------------

    def deliver_all(self) -> None:
        for _ in range(10_000):
            for sender in sorted(self.to_pool):
                self.pool_reads(sender)
            for sender in sorted(self.to_task):
                self.task_reads(sender)
            for runner in list(self.runners.values()):
                while runner.inbox and self.runners[runner.runner_id] is runner:
                    self.runner_reads(runner)
            if not (self.to_pool or self.to_task):
                return
        raise AssertionError("messages never end")

    def come_to_rest(self) -> None:
        """No more faults: everything that waits is worked on."""
        for lane in LANES:
            self.spread(self.pools.resume(lane))
        for runner in self.runners.values():
            runner.draining = False
        self.restart(RunnerId("last"), 2)
        for _ in range(400):
            self.deliver_all()
            for runner in list(self.runners.values()):
                for task_id, token in sorted(runner.held):
                    self.runner_tells_task("finish", task_id, token)
                    self.free(runner, task_id, token)
                self.beat(runner)
            self.deliver_all()
            self.spread(self.pools.tick(BEAT_MS).decision)
            if self.at_rest():
                return
        raise AssertionError(
            [(task.task_id, task.status, task.token) for task in self.tasks.values()],
            self.pools.state.rows,
        )

    def at_rest(self) -> bool:
        depths = self.pools.state.depths(A)
        return (
            all(task.status == "ended" for task in self.tasks.values())
            and not any(depths.waiting.values())
            and not any(depths.stages.values())
        )


# --- what may happen ------------------------------------------------------------------------------


def pick(ways: Any, number: int) -> Any:  # noqa: ANN401
    """One of them, by a number; None if there is none."""
    ordered = sorted(ways)
    return ordered[number % len(ordered)] if ordered else None


def submit(world: World, number: int) -> None:
    task = Task(TaskId(f"t{len(world.tasks):03d}"), LANES[number % 3], "m" if number % 4 else "")
    world.tasks[task.task_id] = task
    world.enqueue(task)


def start_runner(world: World, number: int) -> None:
    if len(world.runners) < 3:
        world.restart(RunnerId(f"r{len(world.runners)}"), number % 4)


def restart_runner(world: World, number: int) -> None:
    """It dies, and comes back as another incarnation: its old messages are still on their way."""
    if world.runners:
        world.restart(pick(world.runners, number), number % 3 + 1)


def change_slots(world: World, number: int) -> None:
    if world.runners:
        runner = world.runners[pick(world.runners, number)]
        world.runner_tells(runner, c.RegisterRunner, slots=number % 4)


def pool_reads(world: World, number: int) -> None:
    for step in range(number % 5 + 1):
        if world.to_pool:
            world.pool_reads(pick(world.to_pool, number + step))


def task_reads(world: World, number: int) -> None:
    for step in range(number % 5 + 1):
        if world.to_task:
            world.task_reads(pick(world.to_task, number + step))


def runner_reads(world: World, number: int) -> None:
    name = pick((name for name, runner in world.runners.items() if runner.inbox), number)
    if name is not None:
        runner = world.runners[name]
        while runner.inbox and world.runners[name] is runner:
            world.runner_reads(runner)


def _one_held(world: World, number: int) -> tuple[Runner, TaskId, int] | None:
    name = pick((name for name, runner in world.runners.items() if runner.held), number)
    if name is None:
        return None
    return (world.runners[name], *pick(world.runners[name].held, number))


def runner_works(world: World, number: int) -> None:
    if (held := _one_held(world, number)) is not None:
        runner, task_id, token = held
        kind = ("finish", "finish", "fail", "fail quietly")[number % 4]
        world.runner_tells_task(kind, task_id, token)
        world.free(runner, task_id, token)


def runner_forgets(world: World, number: int) -> None:
    """A fault of the runner: the task is told nothing, and perhaps the slot is not freed either."""
    if (held := _one_held(world, number)) is not None:
        runner, task_id, token = held
        runner.held.discard((task_id, token))
        if number % 2:
            world.free(runner, task_id, token)


def runner_beats(world: World, number: int) -> None:
    if world.runners:
        world.beat(world.runners[pick(world.runners, number)])


def all_beat(world: World, _number: int) -> None:
    for runner in world.runners.values():
        world.beat(runner)


def drain(world: World, number: int) -> None:
    if world.runners:
        runner = world.runners[pick(world.runners, number)]
        spot, seconds = number % 3 == 0, number % 4 * 10
        world.runner_tells(runner, c.DrainRunner, spot=spot, notice_seconds=seconds)


def cancel(world: World, number: int) -> None:
    if world.tasks:
        world.cancel(world.tasks[pick(world.tasks, number)])


def time_passes(world: World, number: int) -> None:
    after_ms = (1_000, 5_000, 10_000, BEAT_MS, BEAT_MS, 45_000, 120_000)[number % 7]
    world.spread(world.pools.tick(after_ms).decision)


def hours_pass(world: World, _number: int) -> None:
    world.spread(world.pools.tick(TTL_MS).decision)


def pause_or_resume(world: World, number: int) -> None:
    step = world.pools.pause if number % 2 else world.pools.resume
    world.spread(step(LANES[number % 3]))


def told_twice(world: World, _number: int) -> None:
    """Whoever sent the last message sends it again. Nothing comes of it but what is due anyhow."""
    if world.last is None:
        return
    decision = world.pools.do(world.last)
    if not isinstance(world.last, c.EnqueueTask | c.RegisterRunner):
        assert {type(event) for event in decision.events} <= {e.SlotProposed}, decision
    world.spread(decision)


def poison(world: World, number: int) -> None:
    """A step is undone: as if it had not been."""
    if world.to_pool:
        message = world.to_pool[pick(world.to_pool, number)][0]
        handle(world.pools.state, message, world.pools.now)
        world.pools.state.rollback()


def recover(world: World, _number: int) -> None:
    world.pools.state = world.pools.rebuilt()


Move = Callable[[World, int], None]
MOVES: list[Move] = [
    *[submit] * 6,
    *[start_runner] * 2,
    *[pool_reads] * 12,
    *[task_reads] * 10,
    *[runner_reads] * 8,
    *[runner_works] * 6,
    *[all_beat] * 2,
    *[time_passes] * 3,
    restart_runner,
    change_slots,
    runner_forgets,
    runner_beats,
    drain,
    cancel,
    hours_pass,
    pause_or_resume,
    *[told_twice] * 2,
    poison,
    recover,
]


def live(moves: Iterable[tuple[Move, int]], every: int = 1) -> World:
    """Such a life, its laws after `every` move, and the laws of its end."""
    world = World()
    for number in range(4):
        submit(world, number)
    start_runner(world, 2)
    start_runner(world, 1)
    for count, (move, number) in enumerate(moves):
        move(world, number)
        if count % every == 0:
            world.pools.check()
            assert world.pools.state.assignable(A, world.pools.served_ms) is None
    world.come_to_rest()
    world.pools.check()
    pools = world.pools
    check_same(pools.folded(), pools.state, pools.served_ms)
    events = [event for event, _ in pools.history if isinstance(event, e.OfPool)]
    assert [event.seq for event in events] == list(range(1, len(events) + 1))
    for task in world.tasks.values():
        assert task.ends == 1
        assert task.started == sorted(set(task.started))
    assert pools.free == pools.state.depths(A).slots
    return world


@given(
    moves=st.lists(
        st.tuples(st.sampled_from(MOVES), st.integers(min_value=0, max_value=419)),
        min_size=20,
        max_size=60,
    )
)
@settings(
    max_examples=40,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
def test_whatever_happens_no_task_is_lost_and_no_slot_leaks(moves: list[tuple[Move, int]]) -> None:
    live(moves)


ELSEWHERE = {
    e.SlotPreempted,
    e.BreakerOpened,
    e.BreakerHalfOpened,
    e.BreakerClosed,
    e.PoolScaled,
}
"""What this world has no cause for; it has tests of its own."""


def test_in_long_lives_everything_happens() -> None:
    seen: Counter[str] = Counter()
    for seed in range(8):
        random = Random(seed)
        moves = [(random.choice(MOVES), random.randrange(420)) for _ in range(600)]
        world = live(moves, every=7)
        for event, _ in world.pools.history:
            seen[type(event).__name__] += 1
            if isinstance(event, e.SlotLost):
                seen[event.cause] += 1
            if isinstance(event, e.TaskDequeued):
                seen[f"expired {event.expired}"] += 1
    wanted = {kind.__name__ for kind in get_args(e.PoolEvent) if kind not in ELSEWHERE}
    wanted |= {LossCause.LEASE_EXPIRED, LossCause.RUNNER_REPLACED, LossCause.NOT_ACCEPTED}
    wanted |= {"expired True", "expired False"}
    assert wanted <= set(seen), wanted - set(seen)
