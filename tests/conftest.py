"""Fixtures that tests of every package share."""

from collections.abc import Iterator

import pytest

from cutlog.stack import LocalStack
from tests.support.stack import running_stack


@pytest.fixture(scope="session")
def stack() -> Iterator[LocalStack]:
    """The real Kafka, Postgres, Valkey and S3, shared by the whole run.

    Whoever stops or kills a part brings it back before the test ends; topics, tables, keys and
    objects are named by each test for itself.
    """
    with running_stack() as running:
        yield running
