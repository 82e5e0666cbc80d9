"""Where messages go: every command somewhere, a user always to one partition."""

from operator import attrgetter
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schema import commands as c
from schema.ids import account_partition, runner_partition, user_partition
from schema.routes import route, route_inbox, route_submission
from schema.topics import (
    POOL_PARTITIONS,
    SPECS,
    SUBMISSIONS,
    Topic,
    UnmappedPoolError,
    pool_partition,
)
from schema.words import Lane
from tests.schema.samples import sample

ALL: set[type] = {
    kind
    for union in (
        c.QuotaCommand,
        c.TaskCommand,
        c.PoolCommand,
        c.MaterialCommand,
        c.ResultCommand,
    )
    for kind in get_args(union)
}
ANYWHERE = {c.PublishPolicy, c.ReleaseKey}
"""Sent to partitions that their sender names."""
ROUTED: list[type] = sorted(ALL - ANYWHERE - {c.SubmitTask}, key=attrgetter("__name__"))
TOPIC_OF = {
    **dict.fromkeys(get_args(c.TaskCommand), Topic.TASK_COMMANDS),
    **dict.fromkeys(get_args(c.PoolCommand), Topic.POOL_COMMANDS),
    **dict.fromkeys(get_args(c.QuotaCommand), Topic.QUOTA_COMMANDS),
    **dict.fromkeys(get_args(c.MaterialCommand), Topic.MATERIAL_COMMANDS),
    **dict.fromkeys(get_args(c.ResultCommand), Topic.MATERIAL_COMMANDS),
}


@pytest.mark.parametrize("kind", ROUTED)
@pytest.mark.parametrize("partitions", [1, 2, 64])
def test_every_command_goes_to_the_topic_that_reads_it(kind: type, partitions: int) -> None:
    command = sample(kind)
    found = route(command, partitions)
    assert found.topic is TOPIC_OF[kind]
    assert 0 <= found.partition < partitions
    assert found.key in {
        getattr(command, name, None)
        for name in ("task_id", "pool_id", "account_id", "material_id", "source")
    }


@pytest.mark.parametrize("lane", Lane)
def test_a_submission_goes_to_the_topic_of_its_lane_and_the_partition_of_its_account(
    lane: Lane,
) -> None:
    command = sample(c.SubmitTask)
    found = route_submission(command, lane, 64)
    assert found.topic is SUBMISSIONS[lane]
    assert found.partition == account_partition(command.origin.account_id, 64)


@given(st.text("0123456789abcdef", min_size=20, max_size=20), st.integers(0, 999_999))
def test_a_user_without_tenant_is_one_partition_for_tasks_and_quota(name: str, shard: int) -> None:
    user = f"{name}{shard:06d}"
    for partitions in (1, 2, 3, 64):
        assert user_partition(user, partitions) == shard % partitions
        assert account_partition(f"u-{user}", partitions) == shard % partitions
        assert 0 <= account_partition("t-acme", partitions) < partitions
        assert 0 <= runner_partition(name, partitions) < partitions


def test_partitions_that_the_log_was_written_by_never_change() -> None:
    assert account_partition("t-acme", 64) == 35
    assert runner_partition("runner-1", 64) == 20
    assert route_inbox("runner-1", 64)[:2] == (Topic.RUNNER_INBOX, 20)
    assert {name: POOL_PARTITIONS[name] for name in ("A", "B", "C", "C-spot", "M", "R")} == {
        "A": 0,
        "B": 1,
        "C": 2,
        "C-spot": 3,
        "M": 4,
        "R": 5,
    }


def test_a_pool_without_a_place_is_an_error_of_whoever_made_the_policy() -> None:
    with pytest.raises(UnmappedPoolError):
        pool_partition("Z", 2)


def test_every_topic_has_a_specification_and_sources_have_the_clock_of_the_broker() -> None:
    assert SPECS.keys() == set(Topic)
    assert all(spec.append_time for spec in SPECS.values() if spec.source)
