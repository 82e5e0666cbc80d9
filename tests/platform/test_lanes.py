"""Lanes, deadlines and objectives as operators and callers meet them, on the real stack."""

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.platform.installed import Platform
from tests.platform.people import Json, eventually, refused, told
from tests.platform.test_operators import lane_of, pool_of
from tests.support.pictures import noise_png

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]
LANE = "p2"


def cutlog(platform: Platform, *words: str) -> subprocess.CompletedProcess[str]:
    """A person types this."""
    command = [sys.executable, "-m", "cutlog", *words, "-d", str(platform.installation.directory)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def as_json(platform: Platform, *words: str) -> Json:
    found: Json = json.loads(cutlog(platform, *words, "--json").stdout)
    return found


@pytest.fixture
def batch_tier(platform: Platform) -> Iterator[str]:
    """A tier whose rehearsals wait in p2."""
    name = f"batch-{uuid4().hex[:8]}"
    limits = {"per_minute": 10**6, "per_day": 10**6, "credits_month_micros": 10**12}
    tier = {"lane": LANE, "limits": {"rehearsal": limits}}
    new = platform.next_policy({"tiers": platform.policy["tiers"] | {name: tier}})
    with platform.operator() as operator:
        body = {"policy": new, "why": "a test"}
        told(operator.http.post("/v1/operator/policy", json=body), 200)
    platform.policy = new
    with platform.person(tier=name) as person:
        eventually(person.submit, lambda answer: answer.status_code != 403)
    yield name
    cutlog(platform, "lanes", "resume", "R", LANE, "--why", "the test is over")


def test_a_lane_paused_by_hand_stays_so_over_restarts_and_loses_nothing(
    platform: Platform, batch_tier: str
) -> None:
    with platform.person(tier=batch_tier) as ann, platform.person(tier="load") as bob:
        content = noise_png()
        made = ann.register(content, "clip.png", "image/png")
        waiting = ann.submitted({}, materials=[made["material_id"]])["task_id"]
        done = cutlog(platform, "lanes", "pause", "R", LANE, "--why", "festival")
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout) == {"status": "done"}
        assert ann.send(made, content)["status"] == "READY"
        eventually(lambda: lane_of(ann, "R", LANE), lambda lane: lane["waiting"] >= 1)

        for name in platform.up.names:
            if name.startswith(("processor", "projector", "api")):
                pid = platform.up.pid(name)
                platform.up.send(name, signal.SIGKILL)
                eventually(
                    lambda name=name: platform.up.pid(name),  # type: ignore[misc]
                    lambda found, pid=pid: found not in {None, pid},  # type: ignore[misc]
                )
        platform.up.await_ready(120)

        problem = refused(
            eventually(ann.submit, lambda answer: answer.status_code == 429), 429, "lane_paused"
        )
        assert (problem["pool"], problem["lane"]) == ("R", LANE)
        assert bob.await_end(bob.submitted()["task_id"])["status"] == "SUCCEEDED"
        assert ann.task(waiting)["status"] == "QUEUED"
        (lane,) = [
            lane
            for pool in as_json(platform, "lanes", "list")["pools"]
            for lane in pool["lanes"]
            if pool["pool_id"] == "R" and lane["paused"]
        ]
        assert (lane["lane"], lane["paused_why"], lane["waiting"]) == (LANE, "festival", 1)
        assert "festival" in cutlog(platform, "lanes", "list").stdout

        done = cutlog(platform, "lanes", "resume", "R", LANE, "--why", "it is over")
        assert json.loads(done.stdout) == {"status": "done"}
        assert ann.await_end(waiting)["status"] == "SUCCEEDED"


def test_a_lane_that_is_not_there_is_told_in_one_line(platform: Platform) -> None:
    for words in (("pause", "Z", "p1"), ("resume", "R", "p9"), ("reset-breaker", "Z", "genai")):
        done = cutlog(platform, "lanes", *words, "--why", "a test")
        assert done.returncode == 1
        assert len(done.stderr.splitlines()) == 1, done.stderr
        assert "Traceback" not in done.stderr


def test_a_deadline_is_honoured_or_refused_at_the_door_with_the_estimate(
    platform: Platform,
) -> None:
    with platform.person() as ann:
        pool = eventually(lambda: pool_of(ann, "R"), lambda pool: pool["slots"] == 8)
        run = pool["held_seconds"] or platform.policy["pools"]["R"]["expected_seconds"]
        answer = ann.http.post(
            "/v1/tasks",
            json={"scene": "rehearsal", "deadline_seconds": 86_400, "parameters": {"no_op": True}},
            headers={"Idempotency-Key": uuid4().hex},
        )
        made = told(answer, 202)
        assert made["estimated_wait_seconds"] == 0
        task = ann.await_end(made["task_id"])
        assert (task["status"], task["deadline_seconds"]) == ("SUCCEEDED", 86_400)
        assert task["card_measured"] is True
        # Nobody serves pool C here, so no deadline can be promised; without one it may wait.
        late = ann.http.post(
            "/v1/tasks",
            json={"scene": "genai", "prompt": "a fox", "deadline_seconds": 86_400},
            headers={"Idempotency-Key": uuid4().hex},
        )
        problem = refused(late, 409, "deadline_too_soon")
        assert problem["estimated_done_seconds"] is None
        assert run > 0


def test_status_tells_what_waits_and_whether_the_objectives_are_kept(platform: Platform) -> None:
    with platform.person() as ann:
        for _ in range(5):
            ann.await_end(ann.submitted()["task_id"])

    def pool() -> Json:
        found: Json = next(
            pool for pool in as_json(platform, "status")["pools"] if pool["pool_id"] == "R"
        )
        return found

    def known(found: Json) -> bool:
        values = {one["name"]: one["value"] for one in found["objectives"]}
        return values["utilisation"] is not None and values["failure_share"] is not None

    found = eventually(pool, known)
    kept: dict[str, Any] = {one["name"]: one["kept"] for one in found["objectives"]}
    assert kept["failure_share"] is not None
    lane = next(lane for lane in found["lanes"] if lane["lane"] == "p1")
    assert lane["wait_p95_seconds"] >= lane["wait_p50_seconds"] >= 0
    shown = cutlog(platform, "status").stdout
    assert "failure share" in shown
    assert "utilisation" in shown
    # What the door told is held against what became of it.
    assert eventually(lambda: _promises_checked(platform), lambda count: count >= 5)
    metrics = httpx.get(f"{platform.url}/metrics").text
    families = {family.name for family in text_string_to_metric_families(metrics)}
    assert {
        "cutlog_queue_wait_seconds",
        "cutlog_objective",
        "cutlog_objective_kept",
        "cutlog_estimate_error_ratio",
    } <= families


def _promises_checked(platform: Platform) -> float:
    metrics = httpx.get(f"{platform.url}/metrics").text
    return sum(
        sample.value
        for family in text_string_to_metric_families(metrics)
        for sample in family.samples
        if sample.name == "cutlog_estimate_error_ratio_count" and sample.labels["pool"] == "R"
    )
