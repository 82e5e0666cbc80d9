"""A whole installation for the tests, with short leases and small limits, and people who use it."""

import json
from collections.abc import Callable, Mapping
from itertools import count
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

import psutil

from cutlog.installation import LOCAL_POLICY, Installation, Plan, RunnerPlan
from cutlog.stack import processes
from cutlog.stack.stack import PartName
from cutlog.up import Up
from schema.wires.processes import environ_of
from tests.platform.people import Json, Person
from tests.support.midnight import keep_clear_of_midnight

SESSION_SECONDS: Final = 6
PRICE_MICROS: Final = 1_000_000
"""What a rehearsal reserves: 0.1 credits and 0.01 for each of at most 90 card seconds."""
_READY_SECONDS: Final = 120
RUNNERS: Final = (RunnerPlan("A", 1), RunnerPlan("R", 4), RunnerPlan("R", 4))
_UNBOUNDED: Final = {"per_minute": 10**6, "per_day": 10**6, "credits_month_micros": 10**12}


def write_policy(path: Path) -> Json:
    """The local policy with short leases, beats and delays, and tiers for single limits."""
    policy: Json = json.loads(LOCAL_POLICY.read_bytes())
    for pool in ("R", "A"):
        policy["pools"][pool] |= {"lease_seconds": 8, "beat_seconds": 1, "accept_seconds": 4}
    policy["retries"] = {"delays_ms": [300, 600], "loss_delay_ms": 500, "losses_max": 50}
    policy["tenants"]["small"] = {"credits_month_micros": {"rehearsal": 2 * PRICE_MICROS}}
    for name, limits in {
        "brisk": {"per_minute": 2},
        "few": {"per_day": 2},
        "scarce": {"credits_month_micros": 2_500_000},
    }.items():
        policy["tiers"][name] = {
            "lane": "p1",
            "limits": {"rehearsal": _UNBOUNDED | limits},
            "lanes": {},
        }
    path.write_text(json.dumps(policy))
    return policy


class Platform:
    """An installation that is up; everything below goes through its api."""

    def __init__(
        self,
        directory: Path,
        *,
        change: Callable[[Json], None] = lambda _: None,
        runners: tuple[RunnerPlan, ...] = RUNNERS,
        scaled: tuple[str, ...] = (),
        processors: int = 2,
    ) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.policy = write_policy(directory / "policy.json")
        """The policy in force, as the last one that was published here."""
        change(self.policy)
        (directory / "policy.json").write_text(json.dumps(self.policy))
        plan = Plan(
            processors=processors,
            runners=runners,
            scaled=scaled,
            policy=directory / "policy.json",
            environ={"CUTLOG_KAFKA_SESSION_TIMEOUT_SECONDS": str(SESSION_SECONDS)},
        )
        self.installation = Installation(
            directory / "installation", plan=plan, die_with_parent=True
        )
        self.up = Up(self.installation)
        self._numbers = count(1)

    @property
    def url(self) -> str:
        return self.up.api_url

    @property
    def dsn(self) -> str:
        """Of Postgres, for looking at rows that the api does not show."""
        return self.installation.environ()["CUTLOG_POSTGRES_DSN"]

    def start(self) -> None:
        self.up.start()

    def stop(self) -> None:
        self.up.stop()

    def person(
        self, name: str = "ann", *, tenant: str = "", tier: str = "load", scope: str = ""
    ) -> Person:
        """Somebody new: nobody else's limits are his."""
        sub = f"{name}-{next(self._numbers)}-{uuid4().hex[:8]}"
        return self.person_of(sub, tenant=tenant, tier=tier, scope=scope)

    def person_of(
        self, sub: str, *, tenant: str = "", tier: str = "load", scope: str = ""
    ) -> Person:
        """Exactly this `sub`."""
        keep_clear_of_midnight()
        token = self.installation.token(sub, tenant=tenant, tier=tier, scope=scope)
        return Person(self.url, token)

    def operator(self) -> Person:
        return self.person("operator", scope="operate")

    def next_policy(self, changes: Mapping[str, Any] | None = None) -> Json:
        """The policy in force with the next version and these top-level members replaced."""
        return self.policy | {"version": self.policy["version"] + 1} | dict(changes or {})

    # --- faults ----------------------------------------------------------------------------------

    def kill(self, part: PartName) -> None:
        """End a part of the stack without a word."""
        self.installation.stack.kill(part)

    def restore(self) -> None:
        """Bring back whatever is away; returns when everything is ready."""
        self.installation.stack.start()
        self.up.await_ready(_READY_SECONDS)

    def left_overs(self) -> list[str]:
        """Every living process that carries the mark of this installation or of its stack."""
        marks = {str(self.installation.directory), str(self.installation.stack.directory)}
        found: list[str] = []
        for process in psutil.process_iter():
            try:
                marked = environ_of(process.pid).get(processes.MARK_STACK) in marks
                if marked and process.status() != psutil.STATUS_ZOMBIE:
                    found.append(f"{process.pid} {' '.join(process.cmdline())[:200]}")
            except (psutil.Error, OSError):
                continue
        return found
