"""What operators ask for, against the whole product."""

import json
from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import httpx
import pytest

from cutlog.installation import Installation
from tests.api.system import REHEARSAL, Caller, System

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]


def _policy(installation: Installation) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(installation.plan.policy.read_bytes())
    return found


def _ask(operator: Caller, path: str, body: dict[str, Any], key: str = "") -> httpx.Response:
    headers = {"Idempotency-Key": key} if key else {}
    return operator.http.post(f"/v1/operator/{path}", json=body, headers=headers)


def test_a_policy_is_published_everywhere_and_versions_only_rise(
    operator: Caller, system: System
) -> None:
    policy = _policy(system.installation)
    policy["version"] = 2
    policy["tiers"]["new"] = policy["tiers"]["load"]
    body = {"policy": policy, "why": "a new tier"}
    for _ in range(2):  # again is already so
        answer = _ask(operator, "policy", body)
        assert (answer.status_code, answer.json()) == (200, {"status": "done"}), answer.text
    other = {**policy, "timezone": "Asia/Shanghai"}
    answer = _ask(operator, "policy", {"policy": other, "why": "the same version"})
    assert (answer.status_code, answer.json()["code"]) == (409, "idempotency_conflict")
    older = {**policy, "version": 1}
    answer = _ask(operator, "policy", {"policy": older, "why": "an old one"})
    assert (answer.status_code, answer.json()["code"]) == (409, "policy_outdated")
    caller = system.caller(tier="new")
    answer = caller.post(REHEARSAL)
    while answer.json().get("code") == "tier_unknown":
        answer = caller.post(REHEARSAL)  # the door hears of a policy within a second or two
    assert answer.status_code == 202


def test_a_policy_that_leads_nowhere_is_refused_with_its_place(
    operator: Caller, system: System
) -> None:
    policy = _policy(system.installation)
    policy["version"] = 99
    policy["scenes"]["genai"]["pool_id"] = "Z"
    answer = _ask(operator, "policy", {"policy": policy, "why": "a test"})
    assert (answer.status_code, answer.json()["code"]) == (422, "policy_invalid")
    assert "genai" in answer.json()["detail"]


def test_a_top_up_is_once_for_each_key_and_raises_the_limit(
    operator: Caller, system: System
) -> None:
    caller = system.caller(tier="free")
    quotas = caller.http.get("/v1/quotas").json()
    body = {
        "account_id": quotas["account_id"],
        "user_id": caller.user_id,
        "scene": "rehearsal",
        "amount_micros": 7_000_000,
        "why": "a gift",
    }
    key = uuid4().hex
    for _ in range(2):
        assert _ask(operator, "top-up", body, key).json() == {"status": "done"}
    conflict = _ask(operator, "top-up", {**body, "amount_micros": 1}, key)
    assert (conflict.status_code, conflict.json()["code"]) == (409, "idempotency_conflict")
    left = caller.post(REHEARSAL).json()["remaining"]["credits_micros"]
    rehearsal = next(scene for scene in quotas["scenes"] if scene["scene"] == "rehearsal")
    price = 1_000_000
    assert left == rehearsal["month"]["limit_micros"] + 7_000_000 - price


@pytest.fixture
def paused_lane(operator: Caller) -> Iterator[str]:
    """Lane p0 of the pool of rehearsals, paused."""
    path = "lanes/R/p0"
    assert _ask(operator, f"{path}/pause", {"why": "a test"}).json() == {"status": "done"}
    yield path
    assert _ask(operator, f"{path}/resume", {"why": "a test"}).json() == {"status": "done"}


def test_a_paused_lane_takes_nothing_and_says_when_to_come_back(
    paused_lane: str, operator: Caller, system: System
) -> None:
    caller = system.caller(tier="studio")  # p0
    answer = caller.post(REHEARSAL)
    while answer.status_code == 202:
        answer = caller.post(REHEARSAL)  # the door looks once a second
    assert (answer.status_code, answer.json()["code"]) == (429, "lane_paused")
    assert int(answer.headers["retry-after"]) > 0
    pools = caller.http.get("/v1/pools").json()["pools"]
    lanes = next(pool for pool in pools if pool["pool_id"] == "R")["lanes"]
    assert [(lane["lane"], lane["paused_why"]) for lane in lanes if lane["paused"]] == [
        ("p0", "a test")
    ]
    other = system.caller(tier="pro")  # p1
    assert other.post(REHEARSAL).status_code == 202
    assert _ask(operator, f"{paused_lane}/resume", {"why": "a test"}).status_code == 200
    while (answer := caller.post(REHEARSAL)).status_code == 429:
        assert answer.json()["code"] == "lane_paused"
    assert answer.status_code == 202


def test_a_pool_or_lane_that_is_none_is_told(operator: Caller) -> None:
    for path in ("lanes/Z/p0/pause", "lanes/B/p2/pause", "breakers/Z/genai/reset"):
        answer = _ask(operator, path, {"why": "a test"})
        assert (answer.status_code, answer.json()["code"]) == (404, "pool_unknown")


def test_releasing_a_key_that_is_not_quarantined_changes_nothing(operator: Caller) -> None:
    body = {"topic": "task-commands", "partition": 0, "key": "task:nothing", "why": "a test"}
    answer = _ask(operator, "keys/release", body)
    assert (answer.status_code, answer.json()) == (202, {"status": "pending"})
    beyond = _ask(operator, "keys/release", {**body, "partition": 1_000})
    assert beyond.status_code == 404


def test_without_the_scope_nothing_of_it_is_done(ann: Caller) -> None:
    for path in (
        "policy",
        "top-up",
        "lanes/R/p0/pause",
        "lanes/R/p0/resume",
        "breakers/R/rehearsal/reset",
        "keys/release",
    ):
        answer = _ask(ann, path, {"why": "a test"})
        assert answer.status_code in {403, 422}
    body = {"account_id": "t-a", "scene": "genai", "amount_micros": 1, "why": "a test"}
    answer = _ask(ann, "top-up", body)
    assert (answer.status_code, answer.json()["code"]) == (403, "scope_missing")


def test_closing_a_breaker_that_is_closed_changes_nothing(operator: Caller) -> None:
    key = uuid4().hex
    for _ in range(2):
        answer = _ask(operator, "breakers/R/rehearsal/reset", {"why": "a test"}, key)
        assert (answer.status_code, answer.json()) == (200, {"status": "done"}), answer.text
    pools = operator.http.get("/v1/pools").json()["pools"]
    assert all(breaker["state"] == "closed" for pool in pools for breaker in pool["breakers"])
