"""The platform that all these tests share: brought up once, by the first one that asks."""

from collections.abc import Iterator

import pytest

from tests.platform.installed import Platform


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
