"""Every process is ended in turn, at random instants, while rehearsals of some seconds run.

    python -m tests.platform.restarts --rounds 10 --seconds 30

In each round every process is sent SIGKILL or SIGTERM once, in another order each time; a new
rehearsal begins before each of these instants, and a stream of its own follows it to its end. In
the end every rehearsal must have succeeded with exactly one result, every stream must have told
each stored event once and in order, and the quota must have been charged once for each.
"""

import argparse
import hashlib
import random
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import httpx

from tests.platform.installed import Platform
from tests.platform.people import Json, Person, Watcher, eventually, told

_READY_SECONDS: Final = 120
_SIGNALS: Final = (signal.SIGKILL, signal.SIGTERM)


@dataclass
class Rehearsal:
    """One task under way, and who listens to it."""

    task_id: str
    watcher: Watcher


@dataclass
class Outcome:
    """What was done, and what was wrong with it."""

    ended: dict[str, int] = field(default_factory=dict)
    """How often each process was sent each signal."""
    rehearsals: int = 0
    attempts: int = 0
    violations: list[str] = field(default_factory=list)


def run(
    platform: Platform,
    *,
    rounds: int,
    seconds: float,
    seed: int,
    tell: Callable[[str], None] = lambda _: None,
) -> Outcome:
    """End every process once a round, and say what that did to the rehearsals."""
    rng = random.Random(seed)
    outcome = Outcome()
    first = rng.randrange(len(_SIGNALS))
    with platform.person(f"restarts-{seed}") as person:
        under_way: list[Rehearsal] = []
        for number in range(rounds):
            order = rng.sample(list(enumerate(platform.up.names)), len(platform.up.names))
            for place, name in order:
                under_way.append(_begin(person, seconds))
                # Half of the processes hear SIGKILL in this round, and SIGTERM in the next.
                what = _SIGNALS[(first + number + place) % len(_SIGNALS)]
                instant = rng.uniform(0, min(seconds, 3))
                time.sleep(instant)  # the fault itself: it comes at a random instant
                took = _end(platform, name, what)
                key = f"{what.name} {name}"
                outcome.ended[key] = outcome.ended.get(key, 0) + 1
                tell(
                    f"round {number + 1}: {key}, {instant:.2f} s after a beginning,"
                    f" all ready again after {took:.1f} s"
                )
        for rehearsal in under_way:
            _judge(person, rehearsal, outcome, patience=4 * seconds + 120)
        _judge_quota(person, under_way, outcome)
    outcome.rehearsals = len(under_way)
    return outcome


def _begin(person: Person, seconds: float) -> Rehearsal:
    parameters = {"seconds": seconds, "steps": 20, "reports": 20}
    key = f"{random.getrandbits(64):x}"

    def ask() -> httpx.Response | None:
        try:
            return person.submit(parameters, key=key)
        except httpx.TransportError:
            return None  # the api is the one that is away

    answer = eventually(ask, lambda found: found is not None and found.status_code == 202)
    assert answer is not None
    task_id: str = answer.json()["task_id"]
    return Rehearsal(task_id, Watcher(person, f"/v1/tasks/{task_id}/events"))


def _end(platform: Platform, name: str, what: signal.Signals) -> float:
    """End one process; the seconds until another has taken its place and all are ready."""
    began = time.monotonic()
    pid = platform.up.pid(name)
    platform.up.send(name, what)
    eventually(lambda: platform.up.pid(name), lambda found: found not in {None, pid})
    platform.up.await_ready(_READY_SECONDS)
    return time.monotonic() - began


def _judge(person: Person, rehearsal: Rehearsal, outcome: Outcome, patience: float) -> None:
    task_id = rehearsal.task_id

    def wrong(words: str) -> None:
        outcome.violations.append(f"{task_id}: {words}")

    heard = rehearsal.watcher.result(patience)
    task = person.await_end(task_id)
    outcome.attempts += task["token"]
    if task["status"] != "SUCCEEDED":
        wrong(f"it ended {task['status']} ({task['failure']}, {task['message']})")
        return
    stored = person.events(task_id)
    if [event["seq"] for event in stored] != list(range(1, len(stored) + 1)):
        wrong(f"stored events with gaps or doubles: {[event['seq'] for event in stored]}")
    if [event.id for event in heard] != [event["id"] for event in stored]:
        wrong(
            f"the stream told {[event.data['seq'] for event in heard]} of {len(stored)} events"
            f" in {rehearsal.watcher.connections} connections"
        )
    if rehearsal.watcher.snapshots:
        wrong("the stream fell back to a snapshot")
    ends = [event for event in stored if event["event"] == "task.succeeded.v1"]
    if len(ends) != 1 or ends[0]["token"] != task["token"]:
        wrong(f"ends: {ends}")
    _judge_result(person, task, wrong)


def _judge_result(person: Person, task: Json, wrong: Callable[[str], None]) -> None:
    """The result is one file, of the attempt that was granted, as it was told."""
    task_id = task["task_id"]
    files: list[dict[str, Any]] = told(person.http.get(f"/v1/tasks/{task_id}/result"), 200)["files"]
    if len(files) != 1:
        wrong(f"{len(files)} results")
        return
    fetched = httpx.get(files[0]["url"], timeout=30)
    if hashlib.sha256(fetched.content).hexdigest() != files[0]["sha256"]:
        wrong("the stored result is not what was told")
    if fetched.json()["token"] != task["token"]:
        wrong("the result is of another attempt")


def _judge_quota(person: Person, rehearsals: list[Rehearsal], outcome: Outcome) -> None:
    """Each was reserved once, and charged once for what its last attempt took."""
    quota = person.await_resolved()
    charges = [person.task(rehearsal.task_id)["charge_micros"] or 0 for rehearsal in rehearsals]
    if quota["month"]["spent_micros"] != sum(charges):
        outcome.violations.append(f"spent {quota['month']['spent_micros']}, charged {sum(charges)}")
    if quota["day"]["used"] != len(rehearsals):
        outcome.violations.append(f"{quota['day']['used']} counted of {len(rehearsals)}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--seconds", type=float, default=30)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 32))
    options = parser.parse_args()
    print(f"seed {options.seed}", flush=True)
    with tempfile.TemporaryDirectory(prefix="cutlog-restarts-") as folder:
        platform = Platform(Path(folder))
        platform.start()
        try:
            outcome = run(
                platform,
                rounds=options.rounds,
                seconds=options.seconds,
                seed=options.seed,
                tell=lambda line: print(line, flush=True),
            )
        finally:
            platform.stop()
    for name, count in sorted(outcome.ended.items()):
        print(f"{count:>4} x {name}")
    for words in outcome.violations:
        print(f"VIOLATION {words}")
    print(
        f"{outcome.rehearsals} rehearsals of {options.seconds:.0f} s in {outcome.attempts}"
        f" attempts, {sum(outcome.ended.values())} ends, {len(outcome.violations)} violations"
    )
    return 1 if outcome.violations else 0


if __name__ == "__main__":
    sys.exit(main())
