"""Where things stand in the object store: names are functions of what they hold."""

from hashlib import blake2b
from typing import Final, NamedTuple

from schema.ids import (
    SHARD_DIGITS,
    AccountId,
    MaterialId,
    TaskId,
    TenantId,
    UserId,
    account_of,
)

RESULTS: Final = "results/"
CHECKPOINTS: Final = "checkpoints/"


def upload_key(user_id: UserId, material_id: MaterialId) -> str:
    """What the parts of a caller are joined to.

    Only addresses of parts are handed out: once they are joined, no caller can write here.
    """
    return f"uploads/{user_id}/{material_id}"


def content_owner(tenant_id: TenantId, user_id: UserId) -> AccountId:
    """Who shares a content: a tenant with all its users, or a user without tenant."""
    return account_of(tenant_id, user_id)


def content_key(tenant_id: TenantId, user_id: UserId, sha256: str) -> str:
    """The one object of a content of that owner, whatever it is called and whoever uploaded it.

    The prober puts nothing here but bytes of that digest: whoever writes it, and however often,
    writes the same. No address to write here is ever handed out.
    """
    return f"contents/{content_owner(tenant_id, user_id)}/{sha256}"


def pieces_key(
    user_id: UserId, material_id: MaterialId, upload_id: str, number: int, offset: int | None = None
) -> str:
    """A piece of one part of an upload, from this offset of the part on; None: what all begin with.

    Of this upload only: another upload of the same material has other pieces.
    """
    folder = f"{pieces_of(user_id, material_id, upload_id)}{number}/"
    return folder if offset is None else f"{folder}{offset}"


def pieces_of(user_id: UserId, material_id: MaterialId, upload_id: str) -> str:
    """What the names of all pieces of all parts of an upload begin with."""
    once = blake2b(upload_id.encode(), digest_size=8).hexdigest()
    return f"pieces/{user_id}/{material_id}.{once}/"


def material_key(user_id: UserId, material_id: MaterialId) -> str:
    """The object of a material of older releases, whose event names no `content_key`."""
    return f"materials/{user_id}/{material_id}"


def result_key(task_id: TaskId, token: int, name: str) -> str:
    """The object of one file of a result: only the granted token's name ever becomes the task's."""
    return f"results/{task_id}/{token}/{name}"


def results_of(task_id: TaskId) -> str:
    """What the names of all objects of all attempts of a task's result begin with."""
    return f"{RESULTS}{task_id}/"


def checkpoint_key(task_id: TaskId, token: int) -> str:
    """What an attempt that gave up early saved, for the next one to go on from."""
    return f"checkpoints/{task_id}/{token}"


class ObjectOfAttempt(NamedTuple):
    """Whose an object is, by its name."""

    task_id: TaskId
    token: int


def attempt_of(key: str) -> ObjectOfAttempt | None:
    """The attempt that made a result or a checkpoint; None: the name is of something else."""
    match key.split("/"):
        case ["results", task_id, token, _] | ["checkpoints", task_id, token]:
            if token.isdecimal() and task_id[-SHARD_DIGITS:].isdecimal():
                return ObjectOfAttempt(TaskId(task_id), int(token))
            return None
        case _:
            return None


def failure_key(day: str, task_id: TaskId, token: int) -> str:
    """What led to the failure of a task; `day` is that of the failure, as 2026-03-02."""
    return f"failures/{day}/{task_id}-{token}.json"


def letter_key(day: str, letter_id: str) -> str:
    """A command that could not be worked on."""
    return f"failures/{day}/letter-{letter_id.replace('/', '-')}.json"
