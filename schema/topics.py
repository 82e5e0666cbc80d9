"""Every topic: what its partition is computed from, who writes it, and how long it is kept."""

from enum import StrEnum
from typing import Final

from schema.message import Part
from schema.words import Lane

HOUR_MS: Final = 3_600_000
DAY_MS: Final = 24 * HOUR_MS


class Topic(StrEnum):
    SUBMISSIONS_P0 = "submissions.p0"
    SUBMISSIONS_P1 = "submissions.p1"
    SUBMISSIONS_P2 = "submissions.p2"
    QUOTA_COMMANDS = "quota-commands"
    QUOTA_EVENTS = "quota-events"
    TASK_COMMANDS = "task-commands"
    TASK_EVENTS = "task-events"
    POOL_COMMANDS = "pool-commands"
    POOL_EVENTS = "pool-events"
    MATERIAL_COMMANDS = "material-commands"
    MATERIAL_EVENTS = "material-events"
    REPLIES = "replies"
    REFUSALS = "refusals"
    JOURNAL = "journal"
    RUNNER_INBOX = "runner-inbox"
    PROGRESS = "progress"
    DEAD_LETTERS = "dead-letters"


SUBMISSIONS: Final[dict[Lane, Topic]] = {
    Lane.P0: Topic.SUBMISSIONS_P0,
    Lane.P1: Topic.SUBMISSIONS_P1,
    Lane.P2: Topic.SUBMISSIONS_P2,
}


class TopicSpec(Part):
    """How a topic is created."""

    partition_by: str
    retention_ms: int
    append_time: bool
    """LogAppendTime: the broker's clock is the only one (command topics)."""
    source: bool
    """A source of the processors: all of them have the same number of partitions."""


def _commands(partition_by: str) -> TopicSpec:
    return TopicSpec(
        partition_by=partition_by, retention_ms=7 * DAY_MS, append_time=True, source=True
    )


def _facts(partition_by: str, retention_ms: int = 90 * DAY_MS) -> TopicSpec:
    return TopicSpec(
        partition_by=partition_by, retention_ms=retention_ms, append_time=False, source=False
    )


SPECS: Final[dict[Topic, TopicSpec]] = {
    Topic.SUBMISSIONS_P0: _commands("account"),
    Topic.SUBMISSIONS_P1: _commands("account"),
    Topic.SUBMISSIONS_P2: _commands("account"),
    Topic.QUOTA_COMMANDS: _commands("account"),
    Topic.TASK_COMMANDS: _commands("user shard"),
    Topic.POOL_COMMANDS: _commands("pool"),
    Topic.MATERIAL_COMMANDS: _commands("user shard"),
    Topic.QUOTA_EVENTS: _facts("account"),
    Topic.TASK_EVENTS: _facts("user shard"),
    Topic.POOL_EVENTS: _facts("pool"),
    Topic.MATERIAL_EVENTS: _facts("user shard"),
    Topic.REPLIES: _facts("api instance", HOUR_MS),
    Topic.REFUSALS: _facts("as the source"),
    Topic.JOURNAL: _facts("partition number", 7 * DAY_MS),
    Topic.RUNNER_INBOX: _facts("runner", DAY_MS),
    Topic.PROGRESS: _facts("task", HOUR_MS),
    Topic.DEAD_LETTERS: _facts("as the source"),
}

POOL_PARTITIONS: Final[dict[str, int]] = {"A": 0, "B": 1, "C": 2, "C-spot": 3, "M": 4, "R": 5}
"""The explicit map of pools; the partition is this number modulo the number of partitions."""


class UnmappedPoolError(LookupError):
    """A pool of the policy has no place in the map: add it to POOL_PARTITIONS, never change one."""


def pool_partition(pool_id: str, partitions: int) -> int:
    """The partition of a pool's commands and events; raises UnmappedPoolError."""
    try:
        return POOL_PARTITIONS[pool_id] % partitions
    except KeyError:
        raise UnmappedPoolError(pool_id) from None
