"""Who gets a card next, on the real stack: tenants, lanes, a pause and a poisoned pool.

Everything is read from the log: what waited when, what was given a slot, what the cards did. The
assertions are about order; the figures are printed. One policy, published while the platform runs,
holds for the whole file, and the one before it comes back at the end.
"""

import asyncio
import signal
from collections import Counter
from collections.abc import Collection, Generator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from itertools import count, pairwise
from typing import Any, Final, NamedTuple
from uuid import uuid4

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from processors.engine.clock import STALL_GAP_MS
from processors.engine.records import TICK_KEY
from schema import events as e
from schema.codec import POOL_EVENTS
from schema.ids import PoolId
from schema.settings import load, need
from schema.topics import Topic, pool_partition
from schema.wires.log import LogReader, Place, Record
from schema.words import Lane, MoveReason, Scene
from tests.platform.installed import Platform
from tests.platform.people import Json, Person, eventually, refused, told
from tests.platform.test_operators import lane_of, pool_of

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]

R: Final = PoolId("R")
A: Final = PoolId("A")
SLOTS: Final = 8
TTL_SECONDS: Final = 15
"""Of p2 in R: what is paused for longer would expire, if its time did not stand still. Many times
what a task waits before its lane is paused and after it is resumed."""
FLOOR: Final = 5
"""p2 gets at least one pick in so many."""
PROBES: Final = 2
BREAKER: Final = {
    "failure_share_max": 0.1,
    "attempts_min": SLOTS,
    "window_seconds": 20,
    "open_seconds": 4,
    "probes": PROBES,
}
OPEN: Final = 2
"""What the metric of a breaker says of one that is open."""
AT_ONCE: Final = 16
"""Submissions under way."""
WORK: Final = {"seconds": 0.2, "steps": 1, "reports": 0, "no_op": True}
WHY: Final = {"why": "a test"}

numbers = count(1)


# --- the ground ----------------------------------------------------------------------------------


def publish(platform: Platform, changes: Json) -> None:
    """A new policy, in force everywhere when this returns."""
    new = platform.next_policy(changes)
    with platform.operator() as operator:
        answer = operator.http.post("/v1/operator/policy", json={"policy": new, **WHY})
        told(answer, 200)
    platform.policy = new
    with platform.person() as person:
        eventually(
            lambda: told(person.http.get("/v1/quotas"), 200)["policy_version"],
            lambda version: version == new["version"],
        )


def with_pool(platform: Platform, pool: Json) -> Json:
    """The change of a policy that gives R these terms."""
    pools = platform.policy["pools"]
    return {"pools": pools | {"R": pools["R"] | pool}}


@contextmanager
def terms(platform: Platform, pool: Json) -> Generator[None]:
    """R has these terms inside the block, from a moment on at which it is idle."""
    await_idle(platform)
    before = platform.policy["pools"]
    publish(platform, with_pool(platform, pool))
    try:
        yield
    finally:
        publish(platform, {"pools": before})


@pytest.fixture(scope="module")
def fair(platform: Platform) -> Iterator[Platform]:
    """A tier for each lane, and a floor for p2."""
    before = platform.policy
    limits = {"per_minute": 10**6, "per_day": 10**6, "credits_month_micros": 10**12}
    tiers = {f"fair-{lane}": {"lane": lane, "limits": {"rehearsal": limits}} for lane in Lane}
    lanes = before["pools"]["R"]["lanes"]
    p2 = lanes["p2"] | {"floor_picks": FLOOR}
    pool = {"lanes": lanes | {"p2": p2}, "half_life_seconds": 60}
    publish(platform, with_pool(platform, pool) | {"tiers": before["tiers"] | tiers})
    person, _ = person_in(platform, Lane.P1, "first")
    with person:  # workers start with their first work
        work_off(person, submit(person, 3 * SLOTS))
    try:
        yield platform
    finally:
        publish(platform, {"pools": before["pools"], "tiers": before["tiers"]})


def person_in(platform: Platform, lane: Lane, name: str) -> tuple[Person, str]:
    """Somebody of a tenant that nobody else belongs to, and the account that pays."""
    tenant = f"{name}-{next(numbers)}-{uuid4().hex[:6]}"
    return platform.person(name, tenant=tenant, tier=f"fair-{lane}"), f"t-{tenant}"


def submit(person: Person, many: int, parameters: Json = WORK) -> list[str]:
    """So many tasks, some at once."""
    with ThreadPoolExecutor(AT_ONCE) as threads:
        asked = [threads.submit(person.submitted, parameters) for _ in range(many)]
        return [one.result()["task_id"] for one in asked]


def await_idle(platform: Platform) -> None:
    """Until nothing waits or works in R, whoever it belonged to."""
    with platform.person() as person:
        eventually(
            lambda: pool_of(person, "R"),
            lambda r: (
                (r["slots"], r["used"]) == (SLOTS, 0)
                and not any(lane["waiting"] for lane in r["lanes"])
            ),
        )


@contextmanager
def all_taken(platform: Platform) -> Generator[None]:
    """Every slot of R is at work on p0 inside the block, so that others line up behind."""
    person, _ = person_in(platform, Lane.P0, "filler")
    with person:
        tasks = submit(person, SLOTS, WORK | {"seconds": 110, "steps": 1_100})
        for task_id in tasks:
            person.await_event(task_id, "task.started.v1")
        yield
        for task_id in tasks:
            told(person.cancel(task_id), 200)


def await_waiting(person: Person, lane: Lane, many: int) -> None:
    eventually(lambda: lane_of(person, "R", lane)["waiting"], lambda waiting: waiting == many)


class Log:
    """The events of R and A, and R's ticks, from the instant at which this was made."""

    def __init__(self, platform: Platform) -> None:
        self._kafka = need(load(platform.installation.environ()), "kafka")
        home = {pool: pool_partition(pool, self._kafka.partitions) for pool in (R, A)}
        self._events = [Place(Topic.POOL_EVENTS.value, one) for one in sorted({*home.values()})]
        self._commands = [Place(Topic.POOL_COMMANDS.value, home[R])]
        self._from: dict[Place, int] = {}
        self._from = asyncio.run(self._ends())

    def read(self) -> list[e.PoolEvent]:
        """Everything since, in order within a pool."""
        records = asyncio.run(self._read(self._events))
        return [POOL_EVENTS.decode(record.value or b"") for record in records]

    def ticks_ms(self) -> list[int]:
        """When the broker took each of the ticks that R's time goes by."""
        records = asyncio.run(self._read(self._commands))
        return [record.timestamp for record in records if record.key == TICK_KEY]

    def of(self, *kinds: type[e.OfPool], pool_id: PoolId = R) -> list[Any]:
        """The events of one pool of these kinds."""
        return [
            event for event in self.read() if isinstance(event, kinds) and event.pool_id == pool_id
        ]

    async def _ends(self) -> dict[Place, int]:
        async with LogReader(self._kafka, [*self._events, *self._commands]) as reader:
            return await reader.ends()

    async def _read(self, places: list[Place]) -> list[Record]:
        found: list[Record] = []
        async with LogReader(self._kafka, places, wait_ms=50) as reader:
            ends = await reader.ends()
            await reader.seek({place: self._from[place] for place in places})
            while any(reader.positions[place] < end for place, end in ends.items()):
                for batch in await reader.read(0.2):
                    found += batch.records
        return found


class Start(NamedTuple):
    """A task that waited and was given a slot."""

    task_id: str
    account_id: str
    lane: Lane
    wait_seconds: float
    held_seconds: float
    """How long it had its slot; 0: it still has it."""


def starts(events: Sequence[e.PoolEvent]) -> list[Start]:
    """First attempts in R, in the order in which slots were given."""
    waiting: dict[str, e.TaskEnqueued] = {}
    proposed: dict[str, e.SlotProposed] = {}
    freed: dict[str, float] = {}
    for event in events:
        match event:
            case e.TaskEnqueued(pool_id="R", token=0):
                waiting[event.task_id] = event
            case e.SlotProposed(pool_id="R", token=1) if event.task_id in waiting:
                proposed[event.task_id] = event
            case e.SlotFreed(pool_id="R", token=1) if event.task_id in proposed:
                held = event.at - proposed[event.task_id].at
                freed[event.task_id] = held.total_seconds()
            case _:
                pass
    return [
        Start(
            task_id,
            waiting[task_id].account_id,
            waiting[task_id].lane,
            (event.at - waiting[task_id].at).total_seconds(),
            freed.get(task_id, 0.0),
        )
        for task_id, event in proposed.items()
    ]


def quantiles(values: Sequence[float]) -> str:
    """For people: P50, P95 and the worst."""
    ordered = sorted(values)
    p95 = ordered[min(len(ordered) - 1, len(ordered) * 95 // 100)]
    return f"P50 {ordered[len(ordered) // 2]:.2f}, P95 {p95:.2f}, max {ordered[-1]:.2f} s"


# --- tenants -------------------------------------------------------------------------------------


def test_a_greedy_tenant_does_not_push_a_small_one_of_the_same_lane(fair: Platform) -> None:
    """The greedy one asks for twenty times as much, and first."""
    small, many = 12, 240
    await_idle(fair)
    alone, _ = person_in(fair, Lane.P1, "alone")
    greedy, of_greedy = person_in(fair, Lane.P1, "greedy")
    modest, of_small = person_in(fair, Lane.P1, "small")
    log = Log(fair)
    with alone, greedy, modest:
        by_itself = work_off(alone, submit(alone, small))
        with all_taken(fair):
            submit(greedy, many)
            both = submit(modest, small)
            await_waiting(modest, Lane.P1, many + small)
        work_off(modest, both)
        beside = work_off(modest, submit(modest, small))  # the greedy one's time goes on
        await_idle(fair)
    every = starts(log.read())
    order = [one for one in every if one.account_id in {of_greedy, of_small}]
    assert Counter(one.account_id for one in order) == {of_greedy: many, of_small: 2 * small}
    in_turn = order[: 1 + max(place for place, one in enumerate(order) if one.task_id in both)]
    card = {
        account: sum(one.held_seconds for one in in_turn if one.account_id == account)
        for account in (of_greedy, of_small)
    }
    waits = {
        "small alone": [one.wait_seconds for one in every if one.task_id in by_itself],
        "small beside the greedy one": [one.wait_seconds for one in every if one.task_id in beside],
        "greedy": [one.wait_seconds for one in order if one.account_id == of_greedy],
    }
    for whose, found in waits.items():
        print(f"\n{whose}: {quantiles(found)}", end="")
    print(
        f"\nof {len(in_turn)} picks while both waited, {small} were the small one's; card seconds:"
        f" small {card[of_small]:.2f}, greedy {card[of_greedy]:.2f}"
    )
    # In turn, but for the picks by age and the first few, which are the greedy one's: it came
    # first. How long the same work holds a slot is up to the machine, so card time is only told.
    assert len(in_turn) <= 3 * small
    assert len(shared(order, beside)) <= 3 * small
    assert max(waits["small beside the greedy one"]) < sorted(waits["greedy"])[many // 2]


def work_off(person: Person, tasks: Sequence[str]) -> set[str]:
    """They all succeed."""
    for task_id in tasks:
        assert person.await_end(task_id)["status"] == "SUCCEEDED"
    return set(tasks)


def shared(order: Sequence[Start], tasks: Collection[str]) -> Sequence[Start]:
    """What was picked from the first to the last of these."""
    places = [place for place, one in enumerate(order) if one.task_id in tasks]
    return order[places[0] : places[-1] + 1]


# --- lanes ---------------------------------------------------------------------------------------


def test_p0_goes_before_p2_and_p2_keeps_its_floor(fair: Platform) -> None:
    patient, urgent = 50, 40
    await_idle(fair)
    ann, _ = person_in(fair, Lane.P2, "patient")
    bob, _ = person_in(fair, Lane.P0, "urgent")
    log = Log(fair)
    with ann, bob:
        with all_taken(fair):
            waiting, pressing = submit(ann, patient), submit(bob, urgent)
            await_waiting(ann, Lane.P2, patient)
            await_waiting(bob, Lane.P0, urgent)
        work_off(bob, pressing)
        work_off(ann, waiting)
    tasks = {*waiting, *pressing}
    order = [one for one in starts(log.read()) if one.task_id in tasks]
    by_lane = {lane: [one for one in order if one.lane is lane] for lane in (Lane.P0, Lane.P2)}
    assert [len(found) for found in by_lane.values()] == [urgent, patient]
    both = shared(order, pressing)
    kept = sum(one.lane is Lane.P2 for one in both)
    for lane, found in by_lane.items():
        print(f"\n{lane}: {quantiles([one.wait_seconds for one in found])}", end="")
    print(f"\nwhile both waited, p2 had {kept} of {len(both)} picks (floor 1 in {FLOOR})")
    assert abs(kept - len(both) / FLOOR) <= 1
    slowest = max(one.wait_seconds for one in by_lane[Lane.P0])
    assert slowest < max(one.wait_seconds for one in by_lane[Lane.P2])


def test_a_paused_lane_starts_nothing_and_its_time_stands_still_over_restarts(
    fair: Platform,
) -> None:
    """Paused under work, for longer than the TTL, with all processors killed in between."""
    many = 2 * SLOTS  # when half of them work, the others wait for some ticks more
    lanes = fair.policy["pools"]["R"]["lanes"]
    short = {"lanes": lanes | {"p2": lanes["p2"] | {"ttl_seconds": TTL_SECONDS}}}
    ann, _ = person_in(fair, Lane.P2, "patient")
    bob, _ = person_in(fair, Lane.P1, "other")
    with terms(fair, short), ann, bob, fair.operator() as operator:
        with all_taken(fair):
            log = Log(fair)
            tasks = submit(ann, many, WORK | {"seconds": 3})
            await_waiting(ann, Lane.P2, many)
            told(operator.http.post("/v1/operator/lanes/R/p2/pause", json=WHY), 200)
        try:
            refused(
                eventually(ann.submit, lambda answer: answer.status_code == 429),
                429,
                "lane_paused",
            )
            others = stand_longer_than_the_ttl(fair, log, bob)
            assert lane_of(ann, "R", "p2")["paused"]
        finally:
            told(operator.http.post("/v1/operator/lanes/R/p2/resume", json=WHY), 200)
        ends = Counter(ann.await_end(task_id)["status"] for task_id in tasks)
    stages = log.of(e.LanePaused, e.LaneResumed, e.SlotProposed)
    kinds = [type(event) for event in stages]
    paused, resumed = kinds.index(e.LanePaused), kinds.index(e.LaneResumed)
    during = [event.task_id for event in stages[paused + 1 : resumed]]
    stood_ms = stages[resumed].stood_ms
    print(
        f"\npaused for {stood_ms / 1000:.1f} s of the pool's time (TTL {TTL_SECONDS} s),"
        f" {others} of p1 ran meanwhile; then {dict(ends)}"
    )
    assert during
    assert not {*tasks} & {*during}
    assert stood_ms > TTL_SECONDS * 1000
    assert ends == {"SUCCEEDED": many}


def stand_longer_than_the_ttl(platform: Platform, log: Log, other: Person) -> int:
    """All processors are killed; then p1 goes on until p2 would have expired. How many of p1."""
    for name in platform.up.names:
        if name.startswith("processor"):
            platform.up.send(name, signal.SIGKILL)
    platform.up.await_ready(120)
    (paused,) = log.of(e.LanePaused)
    for done in count(1):
        # Right after a restart the door may say that too much is unanswered.
        ask = partial(other.submit, WORK, key=uuid4().hex)
        answer = eventually(ask, lambda found: found.status_code == 202)
        other.await_end(answer.json()["task_id"])
        if served_ms(log.ticks_ms(), round(paused.at.timestamp() * 1000)) > TTL_SECONDS * 1000:
            return done
    raise AssertionError


def served_ms(ticks: Sequence[int], begin: int) -> int:
    """At least so much of the pool's own time has passed from `begin` to the last of its ticks.

    A gap that is too long was not served. A tick is appended after the one before it was read, so
    the pool sees each at some instant before the next one: a gap counts if even so it is short,
    and of an unbroken row of gaps the first is what may be missing.
    """
    before = [at for at in ticks if at <= begin][-1:]
    row = before + [at for at in ticks if at > begin]
    total = -min(begin - before[0], STALL_GAP_MS) if before else -STALL_GAP_MS
    unbroken = False
    for (one, _), (other, after) in pairwise(pairwise(row)):
        short = after - one <= STALL_GAP_MS
        if short and unbroken:
            total += other - one
        unbroken = short
    return total


# --- the breaker ---------------------------------------------------------------------------------


def breaker_of(person: Person) -> Json:
    """The breaker of rehearsals in R as `GET /v1/pools` tells it; empty: it never opened."""
    found: list[Json] = pool_of(person, "R")["breakers"]
    return next((one for one in found if one["scene"] == "rehearsal"), {})


def breaker_metric(platform: Platform) -> float:
    """0 closed, 1 half open, 2 open, as the processor of R's partition measures it."""
    values = [0.0]
    for name in platform.up.names:
        if not name.startswith("processor"):
            continue
        text = httpx.get(f"{platform.up.service(name).url}/metrics").text
        values += [
            sample.value
            for family in text_string_to_metric_families(text)
            for sample in family.samples
            if sample.name == "cutlog_pool_breaker"
            and sample.labels == {"pool": "R", "scene": "rehearsal"}
        ]
    return max(values)


def poison(person: Person, many: int) -> list[str]:
    """Tasks whose first attempt the card fails."""
    return submit(person, many, {"no_op": True, "fail": "internal", "fail_on_attempts": [1]})


def test_a_poisoned_pool_opens_its_breaker_and_recovers_by_its_probes(fair: Platform) -> None:
    """No spare pool: what is kept off the cards waits for them."""
    ann, _ = person_in(fair, Lane.P1, "poisoned")
    bob, _ = person_in(fair, Lane.P1, "behind")
    with terms(fair, {"breaker": BREAKER}), ann, bob:
        log = Log(fair)
        tasks = poison(ann, 2 * SLOTS)
        shown, metric = eventually(
            lambda: (breaker_of(bob).get("state"), breaker_metric(fair)),
            lambda seen: seen == ("open", OPEN),
        )
        behind = submit(bob, 12)
        work_off(ann, tasks)
        work_off(bob, behind)
        closed = eventually(lambda: breaker_of(bob), lambda one: one["state"] == "closed")
        assert breaker_metric(fair) == 0
    verdicts = log.of(e.BreakerOpened, e.BreakerHalfOpened, e.BreakerClosed)
    opened = verdicts[0]
    most = probes_at_once(log)
    took = (verdicts[-1].at - opened.at).total_seconds()
    print(
        f"\nopened at {opened.failed} of {opened.counted}; shown {shown}, metric"
        f" {metric:.0f}; at most {most} probes at once; closed {took:.1f} s later, after"
        f" {sum(isinstance(event, e.BreakerOpened) for event in verdicts)} openings;"
        f" shown {closed['state']}; {len(tasks) + len(behind)} tasks succeeded"
    )
    assert isinstance(opened, e.BreakerOpened)
    assert opened.failed > opened.counted * BREAKER["failure_share_max"]
    assert isinstance(verdicts[-1], e.BreakerClosed)
    assert {event.scene for event in verdicts} == {Scene.REHEARSAL}
    assert 1 <= most <= PROBES


def probes_at_once(log: Log) -> int:
    """The most attempts under way that were let through; none starts while it is open."""
    state, most = "closed", 0
    probes: set[str] = set()
    for event in log.of(e.OfPool):
        match event:
            case e.BreakerOpened():
                state = "open"
            case e.BreakerHalfOpened():
                state, probes = "half open", set()
            case e.BreakerClosed():
                state = "closed"
            case e.SlotProposed() if state == "open":
                raise AssertionError(f"{event} while the breaker is open")
            case e.SlotProposed() if state == "half open":
                probes.add(event.task_id)
                most = max(most, len(probes))
            case e.AttemptOver() | e.SlotLost() | e.SlotRefused():
                probes.discard(event.task_id)
            case _:
                pass
    return most


def test_work_that_a_breaker_keeps_off_goes_to_the_spare_pool(fair: Platform) -> None:
    """And an operator closes the breaker by hand."""
    ann, _ = person_in(fair, Lane.P1, "poisoned")
    bob, _ = person_in(fair, Lane.P1, "behind")
    pool = {"breaker": BREAKER | {"open_seconds": 600}, "spare_pool": "A"}
    with terms(fair, pool), ann, bob, fair.operator() as operator:
        log = Log(fair)
        poisoned = poison(ann, SLOTS)
        eventually(lambda: breaker_of(bob), lambda one: one.get("state") == "open")
        behind = submit(bob, 4)
        work_off(ann, poisoned)
        work_off(bob, behind)
        moved = log.of(e.TaskMoveAsked)
        served = log.of(e.SlotProposed, pool_id=A)
        told(operator.http.post("/v1/operator/breakers/R/rehearsal/reset", json=WHY), 200)
        (again,) = work_off(bob, submit(bob, 1))
    (closed,) = log.of(e.BreakerClosed)
    last = log.of(e.SlotProposed)[-1]
    print(
        f"\n{dict(Counter(event.reason.value for event in moved))} asked to move to"
        f" {moved[0].to_pool_id}, {len(served)} served there; closed by hand ({closed.why}),"
        " and R served again"
    )
    # What had failed before it opened may have ended well in R, before it opened.
    elsewhere = {event.task_id for event in moved}
    assert {*behind} <= elsewhere <= {*poisoned, *behind}
    assert elsewhere == {event.task_id for event in served}
    assert {event.reason for event in moved} == {MoveReason.BREAKER_OPEN}
    assert (closed.why, bool(closed.who)) == (WHY["why"], True)
    assert last.task_id == again
