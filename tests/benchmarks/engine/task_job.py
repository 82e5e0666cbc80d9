"""The job of the real task decider: many tasks, each created, started, watched and finished.

The commands are the bytes that quotas, pools and runners append. Groups of tasks go through their
lives side by side, so that a batch holds commands of many tasks in different states.
"""

from collections.abc import Iterator

from cutlog.installation import LOCAL_POLICY
from processors.engine import Batch, Record, Routes, Source, Writer
from processors.rules import OUTPUTS, CutlogRules
from processors.tables import Tables
from schema.codec import encode
from schema.commands import (
    CreateTask,
    FinishAttempt,
    Origin,
    PublishPolicy,
    ReportMilestone,
    ResultFile,
    StartAttempt,
)
from schema.ids import (
    CommandId,
    IncarnationId,
    PoolId,
    ReservationId,
    RunnerId,
    TaskId,
    TenantId,
    account_of,
    pseudonym,
    task_id_of,
)
from schema.objects import result_key
from schema.policy import Price, read_policy
from schema.routes import Routed, route
from schema.topics import Topic
from schema.words import Lane, Scene

Raw = tuple[bytes, bytes, int]
"""Key, value and partition of a record."""

SOURCES = (Source(Topic.TASK_COMMANDS, 0, ticked=True),)
GROUP = 250
"""Tasks that go through their lives side by side."""
USERS = 1_000
_TENANT = TenantId("acme")
_POOL, _RUNNER, _INCARNATION = PoolId("R"), RunnerId("runner-1"), IncarnationId("incarnation-1")
_PRICE = Price(
    base_micros=100_000, card_second_micros=10_000, card_seconds_max=90, cancel_share_base=0.5
)


def life(number: int) -> list[Routed]:
    """Every command of a task that succeeds at once."""
    user = pseudonym(b"a secret of the benchmark", _TENANT, f"user-{number % USERS}")
    task_id = task_id_of(_TENANT, user, f"key-{number}")
    return [
        CreateTask(
            command_id=CommandId(f"{task_id}-create"),
            task_id=task_id,
            origin=Origin(
                user_id=user,
                tenant_id=_TENANT,
                account_id=account_of(_TENANT, user),
                scene=Scene.REHEARSAL,
                tier="load",
                fingerprint="0123456789abcdef",
                parameters={"seconds": 0.5, "steps": 20, "reports": 5},
            ),
            pool_id=_POOL,
            lane=Lane.P1,
            price=_PRICE,
            policy_version=1,
            reservation_id=ReservationId(f"{task_id}-submit"),
            reserved_micros=1_000_000,
            run_limit_seconds=600,
            created_wait_seconds=900,
        ),
        StartAttempt(
            command_id=CommandId(f"{task_id}-start"),
            task_id=task_id,
            token=1,
            pool_id=_POOL,
            runner_id=_RUNNER,
            incarnation_id=_INCARNATION,
            lease_seconds=120,
        ),
        _milestone(task_id, 30),
        _milestone(task_id, 60),
        FinishAttempt(
            command_id=CommandId(f"{task_id}-finish"),
            task_id=task_id,
            token=1,
            files=(
                ResultFile(
                    name="out.json",
                    object_key=result_key(task_id, 1, "out.json"),
                    content_type="application/json",
                    size=1_000,
                    sha256="0" * 64,
                ),
            ),
            card_ms=500,
        ),
    ]


def _milestone(task_id: TaskId, percent: int) -> ReportMilestone:
    return ReportMilestone(
        command_id=CommandId(f"{task_id}-{percent}"), task_id=task_id, token=1, percent=percent
    )


COMMANDS_A_LIFE = len(life(0))


def commands(tasks: int, partitions: int) -> Iterator[Raw]:
    """The records of so many tasks, in the order in which they are appended."""
    for start in range(0, tasks, GROUP):
        lives = [life(number) for number in range(start, min(tasks, start + GROUP))]
        for stage in zip(*lives, strict=True):
            for command in stage:
                place = route(command, partitions)
                yield place.key.encode(), encode(command), place.partition


def adopted(number: int, partitions: int) -> dict[bytes, bytes | None]:
    """The changelog of a partition that has adopted the local policy and read no task command."""
    writer = _writer(number, partitions)
    command = PublishPolicy(
        command_id=CommandId("first"), policy=read_policy(LOCAL_POLICY.read_bytes())
    )
    record = Record(Topic.QUOTA_COMMANDS, number, 0, 1, b"policy", encode(command))
    writer.apply(Batch(Topic.QUOTA_COMMANDS, number, [record], 0, 1))
    effects = writer.take()
    assert effects is not None
    return effects.changes


def events_of_a_life(partitions: int) -> int:
    """How many records of task-events one task comes to; decided here, by the same rules."""
    (place,) = {route(command, partitions) for command in life(0)}
    writer = _writer(place.partition, partitions)
    records = [
        Record(place.topic, place.partition, offset, 1, place.key.encode(), encode(command))
        for offset, command in enumerate(life(0))
    ]
    writer.apply(Batch(place.topic, place.partition, list(records), 0, len(records)))
    effects = writer.take()
    assert effects is not None
    return len(effects.sends[Topic.TASK_EVENTS, place.partition])


def _writer(number: int, partitions: int) -> Writer:
    tables = Tables()
    sources = (*SOURCES, Source(Topic.QUOTA_COMMANDS, 1))
    writer = Writer(
        number,
        partitions=partitions,
        sources=sources,
        tables=tables.all(),
        rules=CutlogRules(tables, partitions),
        routes=Routes({str(topic): partitions for topic in OUTPUTS}),
    )
    writer.loaded()
    writer.positions = {source.topic: 0 for source in sources}
    return writer
