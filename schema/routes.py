"""Where each message goes: topic, partition and key, as functions of the message alone.

The key of a record is what its order is kept for; the partition follows from it (user shard,
account, pool, runner), never from a hash that a client library chooses.
"""

from typing import Any, NamedTuple
from zlib import crc32

from schema import commands as c
from schema.ids import (
    account_partition,
    runner_partition,
    user_partition,
)
from schema.topics import SUBMISSIONS, Topic, pool_partition
from schema.words import Lane


class Route(NamedTuple):
    topic: Topic
    partition: int
    key: str


_BY_TASK = (
    c.CreateTask
    | c.RequeueTask
    | c.ConfirmMaterial
    | c.ExtendWait
    | c.RejectMaterial
    | c.StartAttempt
    | c.MoveTask
    | c.LoseAttempt
    | c.AttemptYielded
    | c.ReportMilestone
    | c.StoreAttempt
    | c.FinishAttempt
    | c.FailAttempt
    | c.CancelTask
    | c.ExpireTask
)
_BY_POOL = (
    c.EnqueueTask
    | c.DequeueTask
    | c.GrantAttempt
    | c.RefuseAttempt
    | c.EndAttempt
    | c.RegisterRunner
    | c.BeatRunner
    | c.AcceptAttempt
    | c.FreeSlot
    | c.DrainRunner
    | c.PauseLane
    | c.ResumeLane
    | c.ResetBreaker
)
_BY_ACCOUNT = (
    c.RetryTask | c.CommitReservation | c.ReleaseReservation | c.RefundCharge | c.TopUpQuota
)
_BY_MATERIAL = (
    c.RegisterMaterial
    | c.TouchUpload
    | c.CompleteMaterial
    | c.ConcludeMaterial
    | c.AdoptMaterial
    | c.AbandonMaterial
    | c.ChillMaterial
    | c.AttachMaterial
)
_OF_RESULT = c.ChillResult | c.DeleteResult | c.WithholdResult | c.RestoreResult | c.PublishResult

TaskBound = _BY_TASK
PoolBound = _BY_POOL
AccountBound = _BY_ACCOUNT
MaterialBound = _BY_MATERIAL
ResultBound = _OF_RESULT
Routed = TaskBound | PoolBound | AccountBound | MaterialBound | ResultBound | c.CountDeliveries

_KINDS: dict[type, Topic] = {
    **dict.fromkeys(_BY_TASK.__args__, Topic.TASK_COMMANDS),
    **dict.fromkeys(_BY_POOL.__args__, Topic.POOL_COMMANDS),
    **dict.fromkeys(_BY_ACCOUNT.__args__, Topic.QUOTA_COMMANDS),
    **dict.fromkeys(_BY_MATERIAL.__args__, Topic.MATERIAL_COMMANDS),
    **dict.fromkeys(_OF_RESULT.__args__, Topic.MATERIAL_COMMANDS),
    c.CountDeliveries: Topic.MATERIAL_COMMANDS,
}


def route(command: Routed, partitions: int) -> Route:
    """Where a command goes when every source topic has `partitions` partitions."""
    topic = _KINDS[type(command)]
    fields: Any = command
    if topic is Topic.TASK_COMMANDS:
        task_id: str = fields.task_id
        return Route(topic, user_partition(task_id, partitions), task_id)
    if topic is Topic.POOL_COMMANDS:
        pool_id: str = fields.pool_id
        return Route(topic, pool_partition(pool_id, partitions), pool_id)
    if topic is Topic.QUOTA_COMMANDS:
        account_id: str = fields.account_id
        return Route(topic, account_partition(account_id, partitions), account_id)
    if isinstance(command, c.CountDeliveries):
        return Route(topic, crc32(command.source.encode()) % partitions, command.source)
    name: str = fields.task_id if isinstance(command, _OF_RESULT) else fields.material_id
    return Route(topic, user_partition(name, partitions), name)


def route_submission(command: c.SubmitTask, lane: Lane, partitions: int) -> Route:
    """A submission goes to its lane's topic; lane = policy(tier, scene)."""
    account_id = command.origin.account_id
    return Route(SUBMISSIONS[lane], account_partition(account_id, partitions), account_id)


def route_inbox(runner_id: str, partitions: int) -> Route:
    """The inbox of a runner."""
    return Route(Topic.RUNNER_INBOX, runner_partition(runner_id, partitions), runner_id)


__all__ = [
    "AccountBound",
    "MaterialBound",
    "PoolBound",
    "ResultBound",
    "Route",
    "Routed",
    "TaskBound",
    "route",
    "route_inbox",
    "route_submission",
]
