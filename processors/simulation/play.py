"""One run from beginning to end: people, door, processors, cards and faults on one clock."""

import gc
import time
from dataclasses import dataclass, field
from typing import Final

from commands.decider import ImpossibleEventError
from processors.simulation import fifo
from processors.simulation.crowd import Crowd
from processors.simulation.door import Door
from processors.simulation.figures import Figures
from processors.simulation.fleet import Fleet, Mishaps
from processors.simulation.flow import Chaos, Flow
from processors.simulation.policies import CARDS, policy
from processors.simulation.scenarios import HOT_MODEL, Curve, Pause, Scenario
from processors.simulation.watch import Watch
from processors.simulation.world import World
from schema import commands as c
from schema.ids import CommandId, PoolId
from schema.policy import Policy
from schema.words import Lane

_MORNING_MS: Final = 1_800_000_000_000
OUTAGE_MS: Final = 30 * 60_000
_SKEW_MS: Final = 10 * 60_000
_LOOK_MS: Final = 15_000
_HOUR_MS: Final = 3_600_000
_HOT_CAP: Final = 6


@dataclass
class Played:
    """What became of a run."""

    scenario: Scenario
    seed: int
    figures: Figures
    watch: Watch
    fleet: Fleet
    rival: fifo.Rival
    tasks: int
    commands: int
    crashes: int
    wall_seconds: float
    cpu_seconds: float
    virtual_seconds: float
    violations: list[str] = field(default_factory=list[str])


class Play:
    """Everything that one run is made of."""

    def __init__(
        self,
        scenario: Scenario,
        seed: int,
        faults: float = 1.0,
        rules: Policy | None = None,
        strict: bool = False,  # noqa: FBT001, FBT002
    ) -> None:
        self.scenario = scenario
        self.seed = seed
        self.world = world = World(seed, _MORNING_MS)
        caps = {HOT_MODEL: _HOT_CAP} if scenario.hot_share else {}
        self.policy = policy(model_caps=caps) if rules is None else rules
        self.curve = Curve(scenario)
        self.chaos = Chaos(faults)
        self.flow = Flow(world, self.chaos)
        self.figures = Figures(scenario.seconds * 1_000)
        self.watch = Watch(world, self.policy, self.flow.pool_state)
        self.door = Door(world, self.policy, self.watch, self.figures)
        self.crowd = Crowd(world, self.flow, self.door, self.figures, scenario, self.curve.tasks)
        self.fleet = Fleet(world, self.flow, Mishaps(faults), self.crowd.work_ms.__getitem__)
        self.flow.reader = self.watch
        self.watch.strict = strict
        self.watch.holds_to_account = strict and not (scenario.skewed or scenario.outages)
        self.crowd.cancels = scenario.cancels
        self.watch.works = self.fleet.works
        self.watch.on_first_start = self.crowd.started
        self.watch.served_ms = self._served_ms
        self._outages: list[tuple[int, int]] = []
        self._faults = faults

    def run(self) -> Played:
        """All of it. No garbage is collected: nothing here goes round in circles."""
        wall, cpu = time.perf_counter(), time.process_time()
        collected = gc.isenabled()
        gc.disable()
        try:
            self._play()
        except ImpossibleEventError as error:
            self.watch.demand(holds=False, words=f"a partition stops: {error}")
        finally:
            if collected:
                gc.enable()
        horizon_ms = self.scenario.seconds * 1_000
        rival = fifo.play(self.crowd.asks, horizon_ms)
        return Played(
            scenario=self.scenario,
            seed=self.seed,
            figures=self.figures,
            watch=self.watch,
            fleet=self.fleet,
            rival=rival,
            tasks=len(self.crowd.asks),
            commands=self.flow.commands,
            crashes=self.flow.crashes,
            wall_seconds=time.perf_counter() - wall,
            cpu_seconds=time.process_time() - cpu,
            virtual_seconds=self.world.now / 1_000,
            violations=list(self.watch.violations),
        )

    def _play(self) -> None:
        world, watch = self.world, self.watch
        if self.scenario.skewed:
            for part in self.flow.parts:
                part.skew_ms = world.between(-_SKEW_MS, _SKEW_MS)
        self.flow.start()
        self.flow.publish(self.policy)
        world.run(1_000)
        for pool_id, cards in CARDS.items():
            for number in range(cards.number):
                spot = pool_id == "C-spot"
                self.fleet.add(pool_id, number, cards.slots_per_card, spot=spot)
        if self._faults:
            self.fleet.runners["C-000"].unwell = True
            self.fleet.start_mishaps()
        world.after(_LOOK_MS, self._look)
        self._events()
        self.crowd.come(self.curve)
        world.run(self.scenario.seconds * 1_000)
        if watch.over():
            return
        self.chaos.calm()
        self.fleet.settle()
        until = world.now + self.scenario.settle_hours * _HOUR_MS
        while world.now < until and not (watch.settled and not self.crowd.left):
            world.run(world.now + 10_000)
            if watch.over():
                return
        for pool_id, yard in watch.yards.items():
            self.figures.use(pool_id, world.now, yard.used, yard.slots)
        watch.close()

    def _events(self) -> None:
        """What the scenario has in store."""
        for second in self.scenario.outages:
            self.world.after(second * 1_000, self._outage)
        if self._faults:
            for second in self.scenario.spot_waves:
                self.world.after(second * 1_000, lambda _: self.fleet.spot_wave(0.7))
        if self.scenario.skewed:
            self.world.after(self.scenario.seconds * 400, self._jump)
        for pause in self.scenario.pauses:
            self.world.after(pause.from_second * 1_000, self._pause, pause)

    def _pause(self, pause: Pause) -> None:
        """An operator pauses a lane, and thinks better of it."""
        pool_id, lane = PoolId(pause.pool_id), Lane(pause.lane)
        name, why = f"{pool_id}-{lane}-{pause.from_second}", "a drill"
        begin = c.PauseLane(
            command_id=CommandId(f"pause-{name}"), pool_id=pool_id, lane=lane, who="anna", why=why
        )
        end = c.ResumeLane(
            command_id=CommandId(f"resume-{name}"), pool_id=pool_id, lane=lane, who="anna", why=why
        )
        self.flow.put(begin)
        self.world.after((pause.to_second - pause.from_second) * 1_000, self.flow.put, end)

    def _outage(self, _: object) -> None:
        self._outages.append((self.world.now, self.world.now + OUTAGE_MS))
        self.flow.outage(OUTAGE_MS)

    def _jump(self, _: object) -> None:
        self.flow.parts[-1].skew_ms += _SKEW_MS

    def _served_ms(self, since: int, until: int) -> int:
        away = sum(max(min(end, until) - max(begin, since), 0) for begin, end in self._outages)
        return until - since - away

    def _look(self, _: object) -> None:
        self.world.after(_LOOK_MS, self._look)
        self.watch.look(served=all(part.up for part in self.flow.parts))
