"""Who asks: users of all lanes along the curve of the day, and the tenant who asks for too much."""

from bisect import bisect_left, bisect_right
from typing import Any, Final, NamedTuple

from processors.simulation.door import Door
from processors.simulation.figures import Figures
from processors.simulation.flow import Flow
from processors.simulation.policies import CARDS, LANE_MIX, SCENE_MIX, TIERS, WORKS
from processors.simulation.scenarios import HOT_MODEL, Burst, Curve, Scenario
from processors.simulation.world import World
from schema import commands as c
from schema.ids import NO_TENANT, CommandId, TaskId, TenantId, UserId, account_of
from schema.words import Lane, Scene

TASKS_A_USER: Final = 3
_TENANTS: Final = 20
_OF_TENANTS: Final = 0.20
"""Of the users of p1, so many belong to a tenant."""
GREEDY: Final = TenantId("tenant000099")
_SHARDS: Final = 1_000_000


class Ask(NamedTuple):
    """One submission as it came, for whoever plays the same day by other rules."""

    at: int
    pool_id: str
    lane: Lane
    work_ms: int


class Crowd:
    def __init__(
        self, world: World, flow: Flow, door: Door, figures: Figures, played: Scenario, tasks: int
    ) -> None:
        self._world = world
        self._flow = flow
        self._door = door
        self._figures = figures
        self._played = played
        self.tasks = tasks
        self.asks: list[Ask] = []
        self.work_ms: dict[str, int] = {}
        """By task: how long it holds its slot if nothing goes wrong."""
        self.came: dict[str, tuple[int, str, Lane, bool]] = {}
        """By accepted task that has not started: when, pool, lane, whether the greedy asked."""
        self.left = 0
        self._users = {
            lane: max(round(share * tasks / TASKS_A_USER), 1) for lane, share in LANE_MIX.items()
        }
        self._mix = {lane: _cumulated(mix) for lane, mix in SCENE_MIX.items()}
        self._lanes = _cumulated(LANE_MIX)
        self._times: list[int] = []
        self.cancels = 0.0
        """The share that thinks better of it."""

    def come(self, curve: Curve) -> None:
        """Everybody's time is drawn; they come one after the other."""
        dice = self._world.dice
        for _ in range(self.tasks):
            drawn = dice()
            minute = bisect_left(curve.ends, drawn)
            self._times.append(minute * 60_000 + int(dice() * 60_000))
        self._times.sort(reverse=True)
        self.left += len(self._times)
        self._next()
        burst = self._played.burst
        if burst is not None:
            self._burst(burst)

    def _next(self) -> None:
        if self._times:
            at = self._times.pop()
            self._world.after(max(at - self._world.now, 0), self._one)

    def _one(self, _: object) -> None:
        self._next()
        lane = self._lanes[1][bisect_right(self._lanes[0], self._world.dice())]
        self._submit(lane)

    def _burst(self, burst: Burst) -> None:
        self.left += burst.tasks
        span = (burst.to_second - burst.from_second) * 1_000
        step = span / burst.tasks
        lane, start = Lane(burst.lane), burst.from_second * 1_000
        scene = Scene(burst.scene) if burst.scene else None

        def again(number: int) -> None:
            if number + 1 < burst.tasks:
                at = start + int((number + 1) * step)
                self._world.after(max(at - self._world.now, 0), again, number + 1)
            self._submit(lane, scene, greedy=True)

        self._world.after(start, again, 0)

    # --- one submission --------------------------------------------------------------------------

    def _submit(self, lane: Lane, asked: Scene | None = None, *, greedy: bool = False) -> None:
        self.left -= 1
        world = self._world
        scene = self._any_scene(lane) if asked is None else asked
        work = WORKS[scene]
        pool_id = work.pool_id
        seconds = work.least_seconds + (work.most_seconds - work.least_seconds) * world.dice()
        work_ms = int(seconds * CARDS[pool_id].slots_per_card * 1_000)
        self.asks.append(Ask(world.now, pool_id, lane, work_ms))
        self._figures.asked[pool_id, lane] += 1
        user, tenant = self._who(lane, greedy=greedy)
        account = account_of(tenant, user)
        answer = self._door.judge(pool_id, lane, account)
        if not answer.accepted:
            self._door.refuse(pool_id, lane, answer.estimate)
            return
        number = len(self.asks)
        task_id = TaskId(f"{number:026d}{user[-6:]}")
        self.work_ms[task_id] = work_ms
        self.came[task_id] = (world.now, pool_id, lane, greedy)
        self._door.accept(task_id, pool_id, lane, answer.estimate)
        hot = scene is Scene.GENAI and world.dice() < self._played.hot_share
        submit = c.SubmitTask(
            command_id=CommandId(f"submit-{number}"),
            task_id=task_id,
            origin=c.Origin(
                user_id=user,
                tenant_id=tenant,
                account_id=account,
                scene=scene,
                tier=TIERS[lane],
                fingerprint="f",
                parameters={"model": HOT_MODEL} if hot else {},
            ),
            card_seconds_claimed=work_ms / 1_000,
            reply_to=0,
        )
        self._flow.tell((submit,))
        if self.cancels and world.dice() < self.cancels:
            cancel = c.CancelTask(
                command_id=CommandId(f"cancel-{number}"),
                task_id=task_id,
                user_id=user,
                tenant_id=tenant,
            )
            world.after(world.between(100, 120_000), self._flow.tell, (cancel,))

    def _any_scene(self, lane: Lane) -> Scene:
        shares, scenes = self._mix[lane]
        drawn: Scene = scenes[bisect_right(shares, self._world.dice())]
        return drawn

    def _who(self, lane: Lane, *, greedy: bool) -> tuple[UserId, TenantId]:
        world = self._world
        number = world.between(0, self._users[lane] - 1)
        shard = (number * 7_919 + ord(lane[1]) * 104_729) % _SHARDS
        if greedy:
            return UserId(f"g{number:06d}-{shard:06d}"), GREEDY
        tenant = NO_TENANT
        if lane is Lane.P1 and number % 100 < _OF_TENANTS * 100:
            tenant = TenantId(f"tenant{number % _TENANTS:06d}")
        return UserId(f"{lane}{number:06d}-{shard:06d}"), tenant

    def started(self, task_id: str, _pool_id: str) -> None:
        """Its first attempt has begun: that is how long it waited."""
        came = self.came.pop(task_id, None)
        if came is None:
            return
        at, pool_id, lane, greedy = came
        waited = (self._world.now - at) / 1_000
        if greedy:
            self._figures.greedy_waits.append(waited)
        else:
            self._figures.waits[pool_id, lane].append((at, waited))
        self._door.started(task_id, lane, waited)


def _cumulated(mix: dict[Lane, float] | dict[Scene, float]) -> tuple[list[float], list[Any]]:
    """Shares added up, and what each stands for."""
    names = list(mix)
    total = sum(mix.values())
    ends: list[float] = []
    so_far = 0.0
    for name in names[:-1]:
        so_far += mix[name] / total  # type: ignore[index]
        ends.append(so_far)
    return ends, names
