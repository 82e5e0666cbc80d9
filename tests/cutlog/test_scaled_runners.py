"""Which runners `up` starts itself, and which it leaves to the pools that ask for them."""

import json
from pathlib import Path

import pytest

from cutlog.installation import LOCAL_POLICY, Installation, Plan, RunnerPlan, plan_runners
from schema.policy import PolicyError


@pytest.fixture
def policy(tmp_path: Path) -> Path:
    """The local one; A and M scale."""
    document = json.loads(LOCAL_POLICY.read_bytes())
    for name, pool in document["pools"].items():
        pool.pop("scaling", None)
        if name in {"A", "M"}:
            pool["scaling"] = {"cards_max": 3}
    path = tmp_path / "policy.json"
    path.write_text(json.dumps(document))
    return path


def test_a_pool_that_scales_has_no_fixed_runner_unless_one_is_asked_for(policy: Path) -> None:
    assert plan_runners(None, policy) == ((RunnerPlan("R", 64),), ("A", "M"))
    asked = (RunnerPlan("A", 2), RunnerPlan("R", 1))
    assert plan_runners(asked, policy) == (asked, ("M",))


def test_where_no_pool_scales_there_is_no_scaling_process(tmp_path: Path) -> None:
    document = json.loads(LOCAL_POLICY.read_bytes())
    for pool in document["pools"].values():
        pool.pop("scaling", None)
    path = tmp_path / "policy.json"
    path.write_text(json.dumps(document))
    runners, scaled = plan_runners(None, path)
    assert (runners, scaled) == (Plan().runners, ())
    installation = Installation(tmp_path / "one", plan=Plan(scaled=scaled))
    ports = dict.fromkeys(["processor-1", "projector", "api", "prober", "runner-1", "runner-2"], 1)
    assert "scaling" not in {service.name for service in installation.services(ports)}


def test_the_scaling_process_is_told_its_pools_and_is_in_the_next_status(
    tmp_path: Path, policy: Path
) -> None:
    runners, scaled = plan_runners(None, policy)
    installation = Installation(
        tmp_path / "one", plan=Plan(runners=runners, scaled=scaled, policy=policy)
    )
    installation.prepare()
    again = Installation(tmp_path / "one")
    ports = dict.fromkeys(["processor-1", "projector", "api", "prober", "runner-1", "scaling"], 1)
    (service,) = [one for one in again.services(ports) if one.name == "scaling"]
    assert service.module == "gpu_runners.scaling"
    assert service.environ["CUTLOG_SCALING_POOLS"] == "A,M"


def test_a_policy_that_is_none_is_told_before_anything_starts(tmp_path: Path) -> None:
    path = tmp_path / "policy.json"
    path.write_text("{}")
    with pytest.raises(PolicyError):
        plan_runners(None, path)
