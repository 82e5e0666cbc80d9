"""The scaling executor: the wanted cards from the log, and runner processes as many as those."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import msgspec
import psutil
import pytest
from prometheus_client import CollectorRegistry, generate_latest

from cutlog.installation import LOCAL_POLICY
from cutlog.stack import LocalStack
from gpu_runners.lease import clock
from gpu_runners.scaling.__main__ import work
from gpu_runners.scaling.figure import Figure
from gpu_runners.scaling.following import Following
from gpu_runners.scaling.local import Figures, FleetTakenError, LocalFleet
from gpu_runners.scaling.processes import Files, Kept, find_marked
from gpu_runners.scaling.wanted import Known, Want, Wanted
from schema import events as e
from schema.codec import UnknownVersionError, encode
from schema.ids import PoolId
from schema.policy import Policy, read_policy
from schema.routes import Route
from schema.settings import Scaling
from schema.topics import Topic, pool_partition
from schema.wires.processes import environ_of, identify, is_alive
from schema.wires.telemetry import HealthServer, end_tasks
from schema.words import ScaleReason
from tests.support.ground import Ground, ground_on

R, C = PoolId("R"), PoolId("C")
NOBODY = {
    "CUTLOG_KAFKA_BROKERS": "127.0.0.1:1",
    "CUTLOG_OBJECTS_ENDPOINT": "http://127.0.0.1:1",
    "CUTLOG_OBJECTS_ACCESS_KEY": "key",
    "CUTLOG_OBJECTS_SECRET_KEY": "secret",
}
"""A log and a store that never answer: a runner waits for them, and can be started and stopped."""
PATIENCE_SECONDS = 90
DRAIN_SECONDS = 120
"""More than any runner takes to end: one is killed only where a test says that its time is over."""
_DEAF = """
import signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("up", flush=True)
time.sleep(600)
"""


def policy(version: int, **scaling: dict[str, Any]) -> Policy:
    """The local one; the pools that are named scale."""
    document = json.loads(LOCAL_POLICY.read_bytes()) | {"version": version}
    for pool in document["pools"].values():
        pool.pop("scaling", None)
    for name, fields in scaling.items():
        document["pools"][name] |= {"scaling": fields, "slots_per_card": 2}
    return read_policy(json.dumps(document).encode())


def adopted(version: int, **scaling: dict[str, Any]) -> e.PolicyAdopted:
    return e.PolicyAdopted(
        event_id="adopted",  # type: ignore[arg-type]
        seq=1,
        at=datetime(2026, 3, 2, 12, tzinfo=UTC),
        policy=policy(version, **scaling),
        who="operator",
        why="test",
    )


def scaled(pool_id: PoolId, cards: int) -> e.PoolScaled:
    return e.PoolScaled(
        event_id="scaled",  # type: ignore[arg-type]
        seq=1,
        at=datetime(2026, 3, 2, 12, tzinfo=UTC),
        pool_id=pool_id,
        cards=cards,
        cards_before=0,
        reason=ScaleReason.DEMAND,
        demand_card_seconds=0,
        wait_p95_ms=0,
        oldest_wait_ms=0,
    )


# --- what is wanted -------------------------------------------------------------------------------


def test_without_a_policy_nobody_knows_what_is_wanted() -> None:
    wanted = Wanted()
    wanted.apply(scaled(R, 3))
    assert wanted.pools() is None
    wanted.apply(adopted(1, R={"cards_max": 5}))
    assert wanted.pools() == {R: Want(3, 2, spot=False)}


def test_a_pool_that_never_asked_has_the_fewest_that_its_policy_allows() -> None:
    wanted = Wanted(policy(1, R={"cards_min": 2, "cards_max": 5}, C={"cards_max": 5}))
    assert {name: want.cards for name, want in (wanted.pools() or {}).items()} == {C: 0, R: 2}


def test_the_last_wish_counts_but_never_beyond_ceiling_and_budget() -> None:
    wanted = Wanted(policy(1, R={"cards_max": 8, "budget_cards": 5}, C={"cards_max": 3}))
    for pool_id, cards in ((R, 2), (C, 2), (R, 7), (C, 9), (C, 1)):
        assert wanted.apply(scaled(pool_id, cards))
    assert {name: want.cards for name, want in (wanted.pools() or {}).items()} == {C: 1, R: 5}


def test_an_older_policy_changes_nothing() -> None:
    """Each partition tells of each version, and one partition is read before the other."""
    wanted = Wanted()
    assert wanted.apply(adopted(2, R={"cards_min": 2, "cards_max": 5}))
    assert not wanted.apply(adopted(1, R={"cards_min": 1, "cards_max": 5}))
    assert not wanted.apply(adopted(2, R={"cards_min": 2, "cards_max": 5}))
    assert (wanted.pools() or {})[R].cards == 2


def test_only_the_named_pools_are_looked_after() -> None:
    both = policy(1, R={"cards_max": 5}, C={"cards_max": 5})
    assert set(Wanted(both, ["C"]).pools() or {}) == {C}
    assert set(Wanted(both).pools() or {}) == {R, C}


def test_the_figure_is_told_as_a_gauge_and_as_a_document_and_not_before_it_is_known() -> None:
    registry = CollectorRegistry()
    figure = Figure(registry)
    assert figure.document("/external-metrics") is None
    figure.set({R: Want(3, 2, spot=False), C: Want(0, 1, spot=True)})
    assert json.loads(figure.document("/external-metrics/R") or b"")["cards"] == 3
    assert json.loads(figure.document("/external-metrics") or b"")["pools"] == {
        "R": {"cards": 3, "slots_per_card": 2, "spot": False},
        "C": {"cards": 0, "slots_per_card": 1, "spot": True},
    }
    assert figure.document("/external-metrics/X") is None
    assert b'cutlog_pool_cards_wanted{pool="R"} 3.0' in generate_latest(registry)
    figure.set({R: Want(4, 2, spot=False)})
    assert b'pool="C"' not in generate_latest(registry)


async def test_the_figure_is_served_beside_the_health_of_its_process() -> None:
    registry = CollectorRegistry()
    figure = Figure(registry)
    health = HealthServer(registry, ready=lambda: None, more=figure.document)
    await health.start()
    try:
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{health.port}") as client:
            assert (await client.get("/external-metrics/R")).status_code == 404
            figure.set({R: Want(3, 2, spot=False)})
            assert (await client.get("/external-metrics/R")).json()["cards"] == 3
            assert (await client.get("/healthz")).is_success
    finally:
        await health.stop()


def test_what_was_read_can_be_gone_on_from() -> None:
    first = Wanted()
    first.apply(adopted(2, R={"cards_max": 5}))
    first.apply(scaled(R, 4))
    known = msgspec.json.decode(msgspec.json.encode(first.known({0: 7, 1: 9})), type=Known)
    assert known.positions == {0: 7, 1: 9}
    for policy_file in (None, policy(1, C={"cards_max": 1})):
        second = Wanted(policy_file)
        second.go_on_from(known)
        assert second.pools() == first.pools()
        second.apply(scaled(R, 1))
        assert (second.pools() or {})[R].cards == 1


# --- runner processes -----------------------------------------------------------------------------


class Fleet:
    """A local executor, stepped by hand, whose runners find neither log nor store."""

    def __init__(self, directory: Path, **settings: Any) -> None:  # noqa: ANN401 - settings
        self.directory = directory
        self.settings = Scaling(directory=str(directory), **settings)
        self._gone: list[LocalFleet] = []
        self.fleet = self.fresh()

    def fresh(self) -> LocalFleet:
        registry = CollectorRegistry()
        self.registry = registry
        return LocalFleet(self.settings, os.environ | NOBODY, Figures(registry))

    def replace(self) -> None:
        """The executor dies and another one takes over: nothing is handed on but the folder."""
        self.fleet.close()
        self._gone.append(self.fleet)
        self.fleet = self.fresh()

    @property
    def pids(self) -> dict[str, int]:
        return {kept.name: kept.process.pid for kept in self.fleet.runners}

    def until(self, done: Callable[[], object], wanted: dict[PoolId, Want]) -> None:
        end = time.monotonic() + PATIENCE_SECONDS
        while not done():
            assert time.monotonic() < end, (self.fleet.runners, generate_latest(self.registry))
            self.fleet.step(wanted)
            time.sleep(0.02)  # a process has no other way to tell that it ended

    def metric(self, text: str) -> bool:
        return text.encode() in generate_latest(self.registry)

    def end(self) -> None:
        killed = [psutil.Process(one.pid) for one in find_marked(self.directory).values()]
        for process in killed:
            process.kill()
        psutil.wait_procs(killed, timeout=PATIENCE_SECONDS)
        for fleet in (*self._gone, self.fleet):
            fleet.step({})  # whoever started one of them hears of its end
            fleet.close()


def cards(number: int) -> dict[PoolId, Want]:
    return {R: Want(number, 2, spot=False)}


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Fleet]:
    found = Fleet(tmp_path / "fleet", drain_limit_seconds=DRAIN_SECONDS)
    yield found
    found.end()


@pytest.mark.integration
def test_it_starts_what_is_missing_and_drains_what_is_too_many(fleet: Fleet) -> None:
    fleet.fleet.step(cards(3))
    fleet.fleet.step(cards(3))
    assert list(fleet.pids) == ["scaled-R-1", "scaled-R-2", "scaled-R-3"]
    environ = environ_of(fleet.pids["scaled-R-1"])  # it may have been started this moment
    assert (environ["CUTLOG_RUNNER_POOL_ID"], environ["CUTLOG_RUNNER_SLOTS"]) == ("R", "2")
    oldest = fleet.pids["scaled-R-1"]
    fleet.until(lambda: len(fleet.pids) == 1, cards(1))
    assert fleet.pids == {"scaled-R-1": oldest}  # all were idle: the youngest went
    fleet.until(lambda: not fleet.pids, {})
    assert find_marked(fleet.directory) == {}
    assert list((fleet.directory / "runners").glob("*.json")) == []
    assert fleet.metric('cutlog_scaling_ends_total{how="drained",pool="R"} 3.0')


@pytest.mark.integration
def test_one_that_dies_is_started_again_under_its_name(fleet: Fleet) -> None:
    fleet.fleet.step(cards(2))
    first = fleet.pids
    psutil.Process(first["scaled-R-1"]).kill()
    fleet.until(
        lambda: fleet.pids.get("scaled-R-1", first["scaled-R-1"]) != first["scaled-R-1"], cards(2)
    )
    assert fleet.pids["scaled-R-2"] == first["scaled-R-2"]
    assert len(find_marked(fleet.directory)) == 2
    assert fleet.metric('cutlog_scaling_ends_total{how="died",pool="R"} 1.0')


@pytest.mark.integration
def test_the_next_executor_goes_on_with_the_runners_that_it_finds(fleet: Fleet) -> None:
    fleet.fleet.step(cards(2))
    first = fleet.pids
    (fleet.directory / "runners" / "scaled-R-2.json").unlink()  # killed before it was written
    fleet.replace()
    fleet.fleet.step(cards(2))
    assert fleet.pids == first
    assert {name: one.pid for name, one in find_marked(fleet.directory).items()} == first
    fleet.until(lambda: not fleet.pids, {})


@pytest.mark.integration
def test_a_file_of_a_process_that_is_gone_is_nobodys(fleet: Fleet) -> None:
    """Its pid may belong to somebody else by now: here, to us."""
    us = identify(os.getpid())
    assert us is not None
    other = Kept(
        name="scaled-R-7",
        pool_id=R,
        number=7,
        process=type(us)(pid=us.pid, start_ticks=us.start_ticks - 1, boot=us.boot),
    )
    Files(fleet.directory / "runners").write(other)
    fleet.replace()
    assert fleet.pids == {}
    assert Files(fleet.directory / "runners").read() == {}
    assert is_alive(us)


@pytest.mark.integration
def test_a_runner_that_outlives_its_drain_limit_is_killed(fleet: Fleet) -> None:
    with subprocess.Popen([sys.executable, "-c", _DEAF], stdout=subprocess.PIPE) as deaf:
        assert deaf.stdout is not None
        deaf.stdout.readline()
        process = identify(deaf.pid)
        assert process is not None
        kept = Kept(
            name="scaled-R-1", pool_id=R, number=1, process=process, draining_since=clock() - 1
        )
        Files(fleet.directory / "runners").write(kept)
        fleet.replace()
        fleet.fleet.step(cards(0))
        assert is_alive(process)  # it was told again, and has two minutes left
        late = msgspec.structs.replace(kept, draining_since=clock() - DRAIN_SECONDS - 1)
        Files(fleet.directory / "runners").write(late)
        fleet.replace()
        fleet.until(lambda: not fleet.pids, {})
        assert deaf.wait() == -signal.SIGKILL
    assert fleet.metric('cutlog_scaling_ends_total{how="killed",pool="R"} 1.0')


@pytest.mark.integration
def test_two_executors_never_look_after_one_folder(fleet: Fleet) -> None:
    with pytest.raises(FleetTakenError):
        fleet.fresh()


@pytest.mark.integration
async def test_a_notice_file_that_is_there_already_keeps_a_runner_from_asking_for_work(
    tmp_path: Path,
) -> None:
    notice = tmp_path / "notice"
    notice.touch()
    ready = tmp_path / "ready"
    settings = NOBODY | {
        "CUTLOG_RUNNER_SPOT_NOTICE_FILE": str(notice),
        "CUTLOG_RUNNER_WORK_DIRECTORY": str(tmp_path / "work"),
        "CUTLOG_PROCESS_READY_FILE": str(ready),
    }
    runner = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "gpu_runners"),
        env=os.environ | settings,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
    )
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not ready.exists():  # noqa: ASYNC110 - a process has no other way to tell
            await asyncio.sleep(0.02)
        runner.terminate()
        assert await runner.wait() == 0


# --- the log --------------------------------------------------------------------------------------


@pytest.mark.integration
async def test_it_knows_from_the_log_goes_on_where_it_stopped_and_begins_anew_on_another_log(
    stack: LocalStack, tmp_path: Path
) -> None:
    memory = tmp_path / "wanted.json"
    async with ground_on(stack, tmp_path) as ground:
        await put(ground, adopted(1, R={"cards_max": 5}))
        await put(ground, scaled(R, 2))
        await put(ground, scaled(R, 4))
        assert await known_from(ground, memory) == 4
        kept = msgspec.json.decode(memory.read_bytes(), type=Known)
        assert sum(kept.positions.values()) == 3
        await put(ground, scaled(R, 3))
        assert await known_from(ground, memory) == 3
    async with ground_on(stack, tmp_path) as ground:  # the topics were made anew
        await put(ground, adopted(1, R={"cards_min": 1, "cards_max": 5}))
        assert await known_from(ground, memory) == 1


@pytest.mark.integration
async def test_an_executor_that_does_not_understand_the_log_any_more_ends(
    stack: LocalStack, tmp_path: Path
) -> None:
    """It would hold on to the last number that it understood, and say that it is ready."""
    registry = CollectorRegistry()
    async with ground_on(stack, tmp_path) as ground:
        await put(ground, adopted(1, R={"cards_max": 5}))
        partition = pool_partition("R", ground.kafka.partitions)
        newer = b'{"type":"pool.scaled.v9"}'
        await ground.put(Route(Topic.POOL_EVENTS, partition, "R"), newer)
        wanted = Wanted()
        following = Following(ground.kafka, wanted, tmp_path / "wanted.json")
        reading = asyncio.create_task(following.run())
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                with pytest.raises(UnknownVersionError):
                    await work(following, reading, wanted, Figure(registry), None, asyncio.Event())
        finally:
            await end_tasks(reading)


async def put(ground: Ground, event: e.Event) -> None:
    partition = pool_partition("R", ground.kafka.partitions)
    await ground.put(Route(Topic.POOL_EVENTS, partition, "R"), encode(event))


async def known_from(ground: Ground, memory: Path) -> int | None:
    """Cards that R is to have, once a process that starts now has read everything."""
    wanted = Wanted()
    following = Following(ground.kafka, wanted, memory)
    reading = asyncio.create_task(following.run())
    try:
        async with asyncio.timeout(PATIENCE_SECONDS):
            while not following.caught_up:
                following.changed.clear()
                await following.changed.wait()
    finally:
        await end_tasks(reading)
    return (wanted.pools() or {})[R].cards
