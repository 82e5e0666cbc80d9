"""Cards that go wrong or away, on the real stack: no task is lost, none runs twice, slots return.

One installation for the file: two fixed runners of two slots in R, where p0 preempts, and M, which
scales. Each test prints what it saw.
"""

import asyncio
import signal
from collections import Counter
from collections.abc import Iterator
from typing import Any, TypeVar

import httpx
import pytest

from cutlog.installation import RunnerPlan
from cutlog.stack import processes
from schema import events as e
from schema.codec import CODECS
from schema.ids import TaskId
from schema.settings import load, need
from schema.topics import Topic
from schema.wires.log import LogReader, Place
from schema.words import LossCause, ScaleReason
from tests.platform.installed import Platform
from tests.platform.people import ENDED, Json, Person, eventually, told
from tests.platform.test_operators import pool_of

pytestmark = [pytest.mark.integration, pytest.mark.faults, pytest.mark.timeout(300)]

SLOTS = 4
LEASE_SECONDS = 10
EventT = TypeVar("EventT", bound=e.Event)


def change(policy: Json) -> None:
    """Short leases, preemption in R, scaling in M, and a tier for each class."""
    pools = policy["pools"]
    pools["R"] |= {
        "lease_seconds": LEASE_SECONDS,
        "slots_per_card": SLOTS // 2,
        "preemptible": True,
        "min_run_seconds": 1,
        "yield_seconds": 20,
    }
    pools["M"] |= {
        "lease_seconds": LEASE_SECONDS,
        "beat_seconds": 1,
        "slots_per_card": 1,
        "expected_seconds": 2,
        "scaling": {
            "cards_min": 0,
            "cards_max": 2,
            "wait_target_seconds": 1,
            "down_seconds": 4,
            "cooldown_seconds": 1,
            "look_back_seconds": 4,
            "horizon_seconds": 2,
            "step_share_max": 1.0,
        },
    }
    unbounded = policy["tiers"]["load"]
    limits = {"rehearsal": unbounded["limits"]["rehearsal"]}
    for tier, lane in (("urgent", "p0"), ("patient", "p2")):
        policy["tiers"][tier] = unbounded | {"lane": lane, "lanes": {}, "limits": limits}


@pytest.fixture(scope="module")
def platform(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Platform]:
    found = Platform(
        tmp_path_factory.mktemp("scheduler"),
        change=change,
        runners=(RunnerPlan("R", 2), RunnerPlan("R", 2)),
        scaled=("M",),
        processors=1,
    )
    found.start()
    try:
        yield found
    finally:
        found.stop()
    assert found.left_overs() == []


@pytest.fixture
def ann(platform: Platform) -> Iterator[Person]:
    with platform.person(tier="patient") as person:
        eventually(lambda: pool_of(person, "R"), lambda r: (r["slots"], r["used"]) == (SLOTS, 0))
        yield person


def facts(platform: Platform, topic: Topic, kind: type[EventT]) -> list[EventT]:
    """Every event of that kind that stands in the log."""
    return asyncio.run(_facts(platform, topic, kind))


async def _facts(platform: Platform, topic: Topic, kind: type[EventT]) -> list[EventT]:
    kafka = need(load(platform.installation.environ()), "kafka")
    places = [Place(topic.value, number) for number in range(kafka.partitions)]
    found: list[EventT] = []
    async with LogReader(kafka, places, wait_ms=50) as reader:
        ends = await reader.ends()
        await reader.seek_to_beginning()
        while any(reader.positions[place] < end for place, end in ends.items()):
            for batch in await reader.read(0.2):
                for record in batch.records:
                    message: Any = CODECS[topic].decode(record.value or b"")
                    if isinstance(message, kind):
                        found.append(message)
    return found


def requeued(platform: Platform, tasks: list[str]) -> list[e.TaskRequeued]:
    every = facts(platform, Topic.TASK_EVENTS, e.TaskRequeued)
    return [one for one in every if one.task_id in tasks]


def submit(person: Person, count: int, **parameters: float) -> list[str]:
    return [person.submitted(parameters)["task_id"] for _ in range(count)]


def all_ended_once(person: Person, tasks: list[str]) -> list[Json]:
    """Each of them succeeded, by one end that is the last attempt's."""
    found: list[Json] = []
    for task_id in tasks:
        task = person.await_end(task_id)
        ends = [one for one in person.events(task_id) if one["status"] in ENDED]
        assert (task["status"], len(ends)) == ("SUCCEEDED", 1), task
        assert ends[0]["token"] == task["token"]
        found.append(task)
    return found


def test_killed_and_stopped_runners_lose_no_task_and_their_slots_come_back(
    platform: Platform, ann: Person
) -> None:
    tasks = submit(ann, SLOTS, seconds=10, steps=100, save_steps=0)
    tasks += submit(ann, 12, seconds=1.5, steps=15)
    for task_id in tasks[:SLOTS]:
        ann.await_event(task_id, "task.started.v1")
    platform.up.send("runner-2", signal.SIGSTOP)
    eventually(lambda: pool_of(ann, "R")["slots"], lambda slots: slots == SLOTS // 2)
    platform.up.send("runner-1", signal.SIGKILL)
    platform.up.send("runner-2", signal.SIGCONT)  # a zombie: what it tells comes too late
    ended = all_ended_once(ann, tasks)
    pool = eventually(lambda: pool_of(ann, "R"), lambda r: (r["slots"], r["used"]) == (SLOTS, 0))
    losses = Counter(str(one.loss) for one in requeued(platform, tasks))
    assert losses["lease_expired"] >= SLOTS // 2
    assert set(losses) <= {"lease_expired", "runner_replaced", "not_accepted"}
    print(
        f"{len(tasks)} tasks, {sum(task['token'] for task in ended)} attempts,"
        f" lost {dict(losses)}, slots {pool['slots']} of {SLOTS}, used {pool['used']}"
    )


def test_a_p0_task_takes_a_slot_and_the_victim_goes_on_from_its_checkpoint(
    platform: Platform, ann: Person
) -> None:
    tasks = submit(ann, SLOTS, seconds=15, steps=1_500, reports=150)
    for task_id in tasks:
        ann.await_event(task_id, "task.progressed.v1")
    with platform.person(tier="urgent") as bob:
        urgent = bob.submitted({"seconds": 0.2, "steps": 2})["task_id"]
        all_ended_once(bob, [urgent])
    all_ended_once(ann, tasks)
    (back,) = requeued(platform, tasks)
    assert (back.loss, back.counted) == (LossCause.PREEMPTED, False)
    assert back.checkpoint
    assert 0 < back.saved_ms <= back.card_ms
    ends = {one.task_id: one for one in facts(platform, Topic.TASK_EVENTS, e.TaskSucceeded)}
    victim, served = ends[back.task_id], ends[TaskId(urgent)]
    assert victim.facts["resumed_after"] == back.saved_ms // 10  # a step takes 10 ms
    assert all(served.at < ends[TaskId(task_id)].at for task_id in tasks)
    print(
        f"preempted after {back.card_ms} ms, {back.saved_ms} ms of them saved,"
        f" went on after step {victim.facts['resumed_after']} of 1500"
    )


def test_a_spot_notice_saves_and_gives_back_everything_of_that_card(
    platform: Platform, ann: Person
) -> None:
    tasks = submit(ann, SLOTS, seconds=12, steps=1_200, reports=120)
    for task_id in tasks:
        ann.await_event(task_id, "task.progressed.v1")
    platform.up.send("runner-1", signal.SIGUSR1)
    all_ended_once(ann, tasks)
    back = requeued(platform, tasks)
    assert [(one.loss, one.counted) for one in back] == [(LossCause.SPOT, False)] * 2
    assert all(one.checkpoint and one.saved_ms for one in back)
    draining = facts(platform, Topic.POOL_EVENTS, e.RunnerDraining)
    noticed = next(one for one in draining if one.spot)
    took = max(one.at for one in back) - noticed.at
    print(f"{len(back)} attempts saved and given back, the last {took} after the notice")


def test_a_pool_that_asks_for_cards_gets_runners_and_gives_them_back(
    platform: Platform, ann: Person
) -> None:
    """Rehearsals wait in M, which has no card; later nothing waits there any more."""
    scenes = platform.policy["scenes"]
    elsewhere = {"scenes": scenes | {"rehearsal": scenes["rehearsal"] | {"pool_id": "M"}}}
    publish(platform, elsewhere)
    try:
        tasks = submit(ann, 8, seconds=1.5, steps=15)
        ann.await_event(tasks[0], "task.started.v1")
        platform.up.send("scaling", signal.SIGKILL)  # its runners go on, the next one finds them
        all_ended_once(ann, tasks)
        eventually(lambda: runners_of_m(platform), lambda found: not found)
        figure = httpx.get(f"{platform.up.service('scaling').url}/external-metrics/M")
        assert told(figure, 200) == {"cards": 0, "slots_per_card": 1, "spot": False}
    finally:
        publish(platform, {"scenes": scenes})
    told_cards = [
        (one.cards, one.reason)
        for one in facts(platform, Topic.POOL_EVENTS, e.PoolScaled)
        if one.pool_id == "M"
    ]
    assert max(cards for cards, _ in told_cards) == 2
    assert told_cards[0][1] is ScaleReason.DEMAND
    assert told_cards[-1] == (0, ScaleReason.SLACK)
    assert platform.up.starts("scaling") == 2
    # None was started twice (a new incarnation would take the work from the first), and those
    # that had to go went when they were idle.
    assert not requeued(platform, tasks)
    print(f"cards wanted: {' '.join(str(cards) for cards, _ in told_cards)}")


def publish(platform: Platform, changes: Json) -> None:
    policy = platform.next_policy(changes)
    with platform.operator() as operator:
        body = {"policy": policy, "why": "a test"}
        told(operator.http.post("/v1/operator/policy", json=body), 200)
    platform.policy = policy


def runners_of_m(platform: Platform) -> list[str]:
    marked = processes.find_marked(platform.installation.directory)
    return sorted(name for name in marked if name.startswith("scaled-M"))
