"""Fixtures of the api's tests."""

from collections.abc import Iterator

import pytest

from tests.api.door import environ_without_parts, running_api


@pytest.fixture(scope="session")
def lonely_api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Address of a real api process with every part away: it answers, and takes nothing."""
    environ = environ_without_parts(tmp_path_factory.mktemp("lonely-api"))
    with running_api(environ) as (url, _process):
        yield url
