"""The platforms that these tests share: each brought up once, by the first test that asks."""

from collections.abc import Iterator

import pytest

from cutlog.client import Client
from cutlog.installation import RunnerPlan
from tests.platform.installed import Platform
from tests.platform.scenes import Works


@pytest.fixture(scope="session")
def platform(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Platform]:
    """A whole installation. Whoever breaks a part brings it back before the test ends."""
    found = Platform(tmp_path_factory.mktemp("platform"))
    found.start()
    try:
        yield found
    finally:
        found.stop()
    assert found.left_overs() == []


@pytest.fixture(scope="package")
def studio(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Platform]:
    """A platform with a runner for each kind of work."""
    found = Platform(
        tmp_path_factory.mktemp("studio"),
        runners=tuple(RunnerPlan(pool, 1) for pool in ("A", "B", "C", "M", "R")),
        processors=1,
    )
    found.start()
    try:
        yield found
    finally:
        found.stop()


@pytest.fixture(scope="package")
def works(studio: Platform, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Works]:
    """What a person of the studio has made there."""
    token = studio.installation.token("ann", tier="studio")
    with Client(studio.url, token) as client:
        yield Works(client, tmp_path_factory.mktemp("works"))
