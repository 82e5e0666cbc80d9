"""compose.yaml and the Dockerfile, held against the local stack, the settings and the locks.

No Docker is needed (nor used) for it.
"""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from cutlog.stack import LocalStack
from cutlog.stack.state import State, load, save
from schema.settings import load as load_settings

ROOT = Path(__file__).parents[2]
COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "compose.yaml").read_text())
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
OURS = sorted(name for name in SERVICES if "profiles" in SERVICES[name])
_VARIABLE = re.compile(r"\$\{(\w+)(:[-?])?([^}]*)\}")


def settings_of(service: str) -> dict[str, str]:
    """A service's environment as its process sees it, with every variable of `.env` set."""
    found: dict[str, str] = {}
    for name, value in SERVICES[service]["environment"].items():
        found[name] = _VARIABLE.sub("x", str(value))
    return found


@pytest.mark.parametrize("service", OURS)
def test_a_container_gets_every_setting_that_the_local_stack_gives(
    service: str, tmp_path: Path
) -> None:
    ports = ("kafka", "postgres", "valkey", "s3-s3")
    numbers = {name: 1000 + number for number, name in enumerate(ports)}
    save(tmp_path, State(ports=numbers, secrets=load(tmp_path).secrets))
    local = LocalStack(tmp_path).environ()
    assert set(local) <= set(settings_of(service))
    for environ in (local, settings_of(service)):
        settings = load_settings(environ)
        assert None not in (settings.kafka, settings.postgres, settings.redis, settings.objects)


def test_a_setting_of_a_container_is_one_that_a_process_reads() -> None:
    for service in OURS:
        environ = settings_of(service)
        sections = {
            name: getattr(load_settings(environ), name)
            for name in load_settings(environ).__struct_fields__
        }
        for name in environ:
            section, _, field = name.removeprefix("CUTLOG_").lower().partition("_")
            assert hasattr(sections[section], field), name


def test_nothing_is_published_beyond_this_machine() -> None:
    published = [port for service in SERVICES.values() for port in service.get("ports", [])]
    assert published
    assert all(port.startswith("127.0.0.1:") for port in published)


def test_every_service_says_whether_it_is_healthy_and_comes_back() -> None:
    for name, service in SERVICES.items():
        assert service["healthcheck"]["test"], name
        assert service["restart"] == "unless-stopped", name


def test_secrets_have_no_default() -> None:
    text = (ROOT / "compose.yaml").read_text()
    variables = _VARIABLE.findall(text)
    secret = [one for one in variables if re.search("SECRET|PASSWORD|ACCESS_KEY", one[0])]
    assert len(secret) >= 8
    assert {operator for _, operator, _ in secret} == {":?"}


def test_kafka_is_configured_like_the_local_one() -> None:
    inside = SERVICES["kafka"]["environment"]
    assert inside["KAFKA_AUTO_CREATE_TOPICS_ENABLE"] == "false"
    for name in ("TRANSACTION_STATE_LOG_MIN_ISR", "TRANSACTION_STATE_LOG_REPLICATION_FACTOR"):
        assert inside[f"KAFKA_{name}"] == 1
    assert inside["KAFKA_GROUP_INITIAL_REBALANCE_DELAY_MS"] == 0


def test_each_process_that_joins_a_group_has_a_name_of_its_own() -> None:
    names = [
        SERVICES[service]["environment"][key]
        for service in OURS
        for key in ("CUTLOG_PROCESSORS_INSTANCE_ID", "CUTLOG_RUNNER_RUNNER_ID")
        if key in SERVICES[service]["environment"]
    ]
    assert len(names) == len(set(names)) == 5


def test_images_are_built_from_hashed_locks_and_run_without_rights() -> None:
    lines = (ROOT / "Dockerfile").read_text().replace("\\\n", " ").splitlines()
    installs = [line for line in lines if re.search("pip (install|sync)", line)]
    assert installs
    assert all("--require-hashes" in line for line in installs)
    users = [line.split()[1] for line in lines if line.startswith("USER ")]
    assert users == ["cutlog"]
    stages = {line.split()[-1] for line in lines if line.startswith("FROM ")}
    targets = {SERVICES[service]["build"]["target"] for service in OURS}
    assert targets <= stages
    for line in lines:
        if line.startswith("COPY ") and "--from" not in line:
            assert (ROOT / line.split()[1]).exists(), line


def test_locks_name_no_host_and_hash_everything() -> None:
    for lock in (ROOT / "requirements").glob("*.txt"):
        text = lock.read_text()
        assert "://" not in text, lock.name
        assert not re.search(r"^--", text, re.MULTILINE), lock.name
        pinned = re.findall(r"^[\w.\-]+(?:\[[\w,\-]+\])?==\S+[^\n]*\\$", text, re.MULTILINE)
        assert len(pinned) == len(re.findall(r"^\S", text, re.MULTILINE)), lock.name
        assert text.count("--hash=sha256:") >= len(pinned), lock.name
