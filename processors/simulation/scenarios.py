"""What can be played: who comes when, and what happens meanwhile. Data, no rules."""

import math
from typing import Final, NamedTuple

from processors.simulation.policies import PEAK_FACTOR, TASKS_A_DAY

HOUR: Final = 3_600
DAY: Final = 24 * HOUR
DAWN_HOUR: Final = 12
"""When the queues of the evening before are empty: a simulated day begins and ends there."""
PEAK_HOUR: Final = 20
HOT_MODEL: Final = "dance"


class Festival(NamedTuple):
    """So many times what is usual at that hour."""

    from_second: int
    to_second: int
    factor: float


class Burst(NamedTuple):
    """Beside all others, one tenant asks so much."""

    from_second: int
    to_second: int
    tasks: int
    lane: str
    scene: str
    """Empty: as everybody of his lane."""


class Pause(NamedTuple):
    """An operator pauses a lane of a pool for a while."""

    pool_id: str
    lane: str
    from_second: int
    to_second: int


class Scenario(NamedTuple):
    """What is played."""

    name: str
    seconds: int = DAY
    tasks: int = TASKS_A_DAY
    """Of usual people in a whole day."""
    festival: Festival | None = None
    burst: Burst | None = None
    hot_share: float = 0.0
    """Of genai, the share that one model gets."""
    outages: tuple[int, ...] = ()
    """Seconds at which all processors are away for half an hour."""
    skewed: bool = False
    """Every broker's clock is off by up to 10 minutes, and one jumps ahead by 10 more."""
    cancels: float = 0.01
    """The share that thinks better of it within two minutes."""
    pauses: tuple[Pause, ...] = ()
    exactly: int = 0
    """So many tasks, whatever `tasks` says of a day."""
    settle_hours: int = 30
    """How long the last of them may take once nobody comes any more."""
    spot_waves: tuple[int, ...] = (6 * HOUR, 13 * HOUR)


def clock(hour: float) -> int:
    """Seconds since the beginning of a simulated day at this hour."""
    return round((hour - DAWN_HOUR) % 24 * HOUR)


def scenario(name: str, factor: float = 5.0) -> Scenario:
    """One by its name; raises KeyError."""
    return {
        "day": Scenario("day"),
        "festival": Scenario("festival", festival=Festival(clock(15), clock(17), factor)),
        "hot-template": Scenario("hot-template", hot_share=0.6),
        "greedy": Scenario(
            "greedy", burst=Burst(clock(13), clock(23), round(TASKS_A_DAY * 0.35 * 0.2), "p1", "")
        ),
        "batch": Scenario("batch", burst=Burst(clock(14), clock(15), 50_000, "p2", "matting")),
        "outage": Scenario("outage", outages=(clock(15), clock(20))),
        "skew": Scenario("skew", skewed=True),
    }[name]


NAMES: Final = ("day", "festival", "hot-template", "greedy", "batch", "outage", "skew")


class Curve:
    """How many come when: smooth, its highest `PEAK_FACTOR` times its mean."""

    def __init__(self, played: Scenario) -> None:
        self._played = played
        sharpness = _sharpness(PEAK_FACTOR)
        minutes = played.seconds // 60
        shape = [_shape(minute, sharpness) for minute in range(minutes)]
        mean = sum(_shape(minute, sharpness) for minute in range(1_440)) / 1_440
        usual = [weight / mean for weight in shape]
        self.factors = [each * self._festive(minute * 60 + 30) for minute, each in enumerate(usual)]
        """By minute: times the mean of a usual day."""
        self.tasks = played.exactly or round(played.tasks * sum(self.factors) / 1_440)
        self.ends: list[float] = []
        """By minute, the share of all tasks that have come by its end."""
        total, so_far = sum(self.factors), 0.0
        for each in self.factors:
            so_far += each
            self.ends.append(so_far / total)

    def _festive(self, second: int) -> float:
        festival = self._played.festival
        if festival is None or not festival.from_second <= second < festival.to_second:
            return 1.0
        return festival.factor


def _shape(minute: int, sharpness: float) -> float:
    hour = DAWN_HOUR + minute / 60
    return math.exp(sharpness * (math.cos((hour - PEAK_HOUR) * math.tau / 24) - 1))


def _sharpness(factor: float) -> float:
    """What makes the highest of the curve so many times its mean; found by halving."""
    low, high = 0.0, 20.0
    for _ in range(40):
        middle = (low + high) / 2
        mean = sum(_shape(minute, middle) for minute in range(0, 1_440, 10)) / 144
        low, high = (middle, high) if 1 / mean < factor else (low, middle)
    return low
