"""What operators do, and what tells them how it stands."""

from uuid import uuid4

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.platform.installed import Platform
from tests.platform.people import Json, Person, eventually, refused, told
from tests.support.pictures import noise_png

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]

WHY = {"why": "a test"}


def pool_of(person: Person, pool_id: str) -> Json:
    """A pool as everybody sees it."""
    pools = told(person.http.get("/v1/pools"), 200)["pools"]
    found: Json = next(pool for pool in pools if pool["pool_id"] == pool_id)
    return found


def lane_of(person: Person, pool_id: str, lane: str) -> Json:
    lanes = pool_of(person, pool_id)["lanes"]
    found: Json = next(one for one in lanes if one["lane"] == lane)
    return found


def test_the_pools_tell_their_cards_and_their_lanes(platform: Platform) -> None:
    with platform.person() as ann:
        pool = eventually(lambda: pool_of(ann, "R"), lambda pool: pool["slots"] == 8)
        assert pool["scenes"] == ["rehearsal"]
        assert [lane["lane"] for lane in pool["lanes"]] == ["p0", "p1", "p2"]
        assert {lane["paused"] for lane in pool["lanes"]} == {False}
        assert {lane["queue_limit"] for lane in pool["lanes"]} == {20_000, 50_000, 200_000}
        idle = pool_of(ann, "B")
        assert (idle["slots"], idle["lanes"][0]["estimated_wait_seconds"]) == (0, None)


def test_only_operators_operate(platform: Platform) -> None:
    with platform.person() as ann:
        for path, body in (
            ("top-up", {}),
            ("policy", {"policy": platform.next_policy(), **WHY}),
            ("lanes/R/p1/pause", WHY),
            ("lanes/R/p1/resume", WHY),
            ("keys/release", {}),
        ):
            refused(ann.http.post(f"/v1/operator/{path}", json=body), 403, "scope_missing")


def test_a_paused_lane_takes_nothing_and_keeps_what_waits(platform: Platform) -> None:
    """A lane of its own, p0, so that the other lanes go on."""
    with (
        platform.person(tier="team") as ann,
        platform.person(tier="load") as bob,
        platform.operator() as operator,
    ):
        content = noise_png()
        made = ann.register(content, "clip.png", "image/png")
        waiting = ann.submitted({}, materials=[made["material_id"]])["task_id"]
        running = ann.submitted({"seconds": 3})["task_id"]
        ann.await_event(running, "task.started.v1")
        paused = operator.http.post("/v1/operator/lanes/R/p0/pause", json=WHY)
        assert told(paused, 200) == {"status": "done"}
        try:
            answer = eventually(ann.submit, lambda answer: answer.status_code == 429)
            problem = refused(answer, 429, "lane_paused")
            assert (problem["pool"], problem["lane"]) == ("R", "p0")
            assert int(answer.headers["retry-after"]) > 0
            assert lane_of(ann, "R", "p0")["paused"]
            assert ann.send(made, content)["status"] == "READY"
            eventually(lambda: lane_of(ann, "R", "p0"), lambda lane: lane["waiting"] >= 1)
            # What runs goes on, and so do the other lanes.
            assert ann.await_end(running)["status"] == "SUCCEEDED"
            assert bob.await_end(bob.submitted()["task_id"])["status"] == "SUCCEEDED"
            assert ann.task(waiting)["status"] == "QUEUED"
        finally:
            resumed = operator.http.post("/v1/operator/lanes/R/p0/resume", json=WHY)
            assert told(resumed, 200) == {"status": "done"}
        assert ann.await_end(waiting)["status"] == "SUCCEEDED"
        again = eventually(ann.submit, lambda answer: answer.status_code == 202)
        ann.await_end(again.json()["task_id"])


def test_pausing_a_lane_that_is_not_there_is_refused(platform: Platform) -> None:
    with platform.operator() as operator:
        for place in ("X/p1", "C-spot/p0"):
            answer = operator.http.post(f"/v1/operator/lanes/{place}/pause", json=WHY)
            refused(answer, 404, "pool_unknown")


def test_a_new_policy_holds_for_the_next_submission(platform: Platform) -> None:
    limits = {"rehearsal": {"per_minute": 1000, "per_day": 1, "credits_month_micros": 10**9}}
    tier = {"lane": "p2", "limits": limits}
    name = f"tier-{uuid4().hex[:8]}"
    with platform.person(tier=name) as ann, platform.operator() as operator:
        refused(ann.submit(), 403, "tier_unknown")
        new = platform.next_policy({"tiers": platform.policy["tiers"] | {name: tier}})

        def publish(policy: Json) -> httpx.Response:
            return operator.http.post("/v1/operator/policy", json={"policy": policy, **WHY})

        assert told(publish(new), 200) == {"status": "done"}
        platform.policy = new
        first = eventually(ann.submit, lambda answer: answer.status_code != 403)
        told(first, 202)
        refused(ann.submit(), 429, "day_exhausted")
        assert told(ann.http.get("/v1/quotas"), 200)["policy_version"] == new["version"]
        # Told twice it is the same; another content needs another version; older ones are over.
        assert told(publish(new), 200) == {"status": "done"}
        changed = new | {"retries": new["retries"] | {"losses_max": 49}}
        refused(publish(changed), 409, "idempotency_conflict")
        refused(publish(new | {"version": new["version"] - 1}), 409, "policy_outdated")


def test_a_document_that_is_no_policy_is_refused_with_what_is_wrong(platform: Platform) -> None:
    with platform.operator() as operator:
        for changes, words in (
            ({"timezone": "Mars/Olympus"}, "timezone"),
            ({"colour": "blue"}, "colour"),
            ({"version": "two"}, "version"),
        ):
            body = {"policy": platform.next_policy(changes), **WHY}
            problem = refused(
                operator.http.post("/v1/operator/policy", json=body), 422, "policy_invalid"
            )
            assert words in problem["detail"]


def test_every_process_says_that_it_is_well_and_measures_itself(platform: Platform) -> None:
    wanted = {
        "processor": "engine_lag_records",
        "projector": "cutlog_projection_lag_records",
        "api": "cutlog_api_requests",
        "prober": "cutlog_probing_verdicts",
        "runner": "cutlog_runner_attempts",
    }
    for name in platform.up.names:
        url = platform.up.service(name).url
        assert httpx.get(f"{url}/healthz").status_code == 200, name
        assert httpx.get(f"{url}/readyz").status_code == 200, name
        metrics = httpx.get(f"{url}/metrics")
        assert metrics.headers["content-type"].startswith("text/plain"), name
        families = {family.name for family in text_string_to_metric_families(metrics.text)}
        assert wanted[name.partition("-")[0]] in families, (name, sorted(families))


def test_the_openapi_document_is_served_and_names_every_route_used_here(
    platform: Platform,
) -> None:
    document = told(httpx.get(f"{platform.url}/openapi.json"), 200)
    assert {
        "/v1/tasks",
        "/v1/tasks/{task_id}",
        "/v1/tasks/{task_id}/cancel",
        "/v1/tasks/{task_id}/retry",
        "/v1/tasks/{task_id}/events",
        "/v1/tasks/{task_id}/wait",
        "/v1/tasks/{task_id}/result",
        "/v1/events",
        "/v1/quotas",
        "/v1/materials",
        "/v1/materials/{material_id}/complete",
        "/v1/pools",
        "/v1/operator/policy",
        "/v1/operator/top-up",
        "/v1/operator/lanes/{pool_id}/{lane}/pause",
    } <= set(document["paths"])
