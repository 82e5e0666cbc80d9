"""Fixtures of the api's tests."""

from collections.abc import Iterator

import pytest

from tests.api.door import environ_without_parts, running_api
from tests.api.system import Caller, System, start_system


@pytest.fixture(scope="session")
def lonely_api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Address of a real api process with every part away: it answers, and takes nothing."""
    environ = environ_without_parts(tmp_path_factory.mktemp("lonely-api"))
    with running_api(environ) as (url, _process):
        yield url


@pytest.fixture(scope="session")
def system(tmp_path_factory: pytest.TempPathFactory) -> Iterator[System]:
    """The whole product on this machine, shared by all tests of the api."""
    found = start_system(tmp_path_factory.mktemp("system"))
    try:
        yield found
    finally:
        found.stop()


@pytest.fixture
def ann(system: System) -> Caller:
    """A user without limits."""
    return system.caller()


@pytest.fixture
def bob(system: System) -> Caller:
    """Another user without limits."""
    return system.caller()


@pytest.fixture
def operator(system: System) -> Caller:
    """An operator."""
    return system.caller(scope="operate")
