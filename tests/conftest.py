"""Fixtures and settings that tests of every package share."""

import os
from collections.abc import Iterator

import pytest
from hypothesis import settings

from cutlog.stack import LocalStack
from tests.support.stack import running_stack

# The one place that says how the property tests are run. No example may fail for the time it took,
# and two runs on the same tree try the same examples; CHECK_SEED=random draws new ones.
settings.register_profile(
    "cutlog",
    deadline=None,
    derandomize=os.environ.get("CHECK_SEED") != "random",
    print_blob=True,
)
settings.load_profile("cutlog")


@pytest.fixture(scope="session")
def stack() -> Iterator[LocalStack]:
    """The real Kafka, Postgres, Valkey and S3, shared by the whole run.

    Whoever stops or kills a part brings it back before the test ends; topics, tables, keys and
    objects are named by each test for itself.
    """
    with running_stack() as running:
        yield running
