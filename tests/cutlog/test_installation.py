"""An installation's folder: made once, remembered, told apart from none."""

from pathlib import Path

import jwt
import pytest

from cutlog.installation import Installation, NotInstalledError, Plan, RunnerPlan

PLAN = Plan(processors=2, runners=(RunnerPlan("A", 1),))


def test_the_plan_of_the_last_start_is_known_to_whoever_looks(tmp_path: Path) -> None:
    first = Installation(tmp_path, plan=PLAN)
    first.prepare()
    assigned = first.settle_ports()
    looking = Installation(tmp_path)
    names = [service.name for service in looking.services(looking.ports())]
    assert names == ["processor-1", "processor-2", "projector", "api", "prober", "runner-1"]
    assert looking.ports() == assigned


def test_secrets_and_ports_are_the_same_after_another_start(tmp_path: Path) -> None:
    first = Installation(tmp_path, plan=PLAN)
    first.prepare()
    ports, secrets = first.settle_ports(), (tmp_path / "secrets.json").read_bytes()
    second = Installation(tmp_path, plan=PLAN)
    second.prepare()
    assert second.settle_ports() == ports
    assert (tmp_path / "secrets.json").read_bytes() == secrets
    assert (tmp_path / "secrets.json").stat().st_mode & 0o077 == 0


def test_a_token_is_signed_with_the_key_that_the_api_checks(tmp_path: Path) -> None:
    installation = Installation(tmp_path)
    installation.prepare()
    token = installation.token("maya", tenant="acme", tier="pro", scope="operate")
    public = (tmp_path / "token-key.public.pem").read_text()
    claims = jwt.decode(token, public, algorithms=["EdDSA"], audience="cutlog", issuer="cutlog")
    assert (claims["sub"], claims["tenant"], claims["tier"]) == ("maya", "acme", "pro")


def test_a_folder_without_installation_is_said_in_words(tmp_path: Path) -> None:
    with pytest.raises(NotInstalledError, match="up"):
        Installation(tmp_path / "nothing").token("maya")
