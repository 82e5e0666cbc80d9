"""Identifiers that cannot be mistaken for one another, and the rules that derive them.

Nothing here is random: an id is a function of what it names, so that the same request made twice
names the same task. The *user shard* is the last six digits of a user's pseudonym and of every task
and material id, and is what the partition of that user is computed from.
"""

import hashlib
import hmac
from typing import NewType
from zlib import crc32

TaskId = NewType("TaskId", str)
UserId = NewType("UserId", str)
"""A pseudonym (see `pseudonym`), never the `sub` of a token."""
TenantId = NewType("TenantId", str)
AccountId = NewType("AccountId", str)
MaterialId = NewType("MaterialId", str)
PoolId = NewType("PoolId", str)
RunnerId = NewType("RunnerId", str)
IncarnationId = NewType("IncarnationId", str)
CommandId = NewType("CommandId", str)
EventId = NewType("EventId", str)
ReservationId = NewType("ReservationId", str)
ChargeId = NewType("ChargeId", str)
TraceId = NewType("TraceId", str)

NO_TENANT = TenantId("")
SHARD_DIGITS = 6
SHARDS = 10**SHARD_DIGITS
DIGEST_CHARACTERS = 26
TASK_ID_LENGTH = DIGEST_CHARACTERS + SHARD_DIGITS
_CROCKFORD = "0123456789abcdefghjkmnpqrstvwxyz"
_SEPARATOR = (
    "\x1f"  # cannot stand in any part (ids refuse control characters), so parts never run together
)


def _digest(*parts: str) -> str:
    """26 characters of a 128-bit hash in Crockford base32, most significant first."""
    digest = hashlib.blake2b(_SEPARATOR.join(parts).encode(), digest_size=16).digest()
    number = int.from_bytes(digest, "big")
    return "".join(
        _CROCKFORD[(number >> shift) & 31] for shift in range(5 * (DIGEST_CHARACTERS - 1), -1, -5)
    )


def pseudonym(secret: bytes, tenant_id: TenantId, sub: str) -> UserId:
    """The user id in messages: HMAC of tenant and `sub`, 20 characters and 6 digits of shard."""
    mac = hmac.new(secret, f"{tenant_id}{_SEPARATOR}{sub}".encode(), hashlib.sha256).digest()
    number = int.from_bytes(mac[:13], "big")
    name = "".join(_CROCKFORD[(number >> shift) & 31] for shift in range(95, -1, -5))
    shard = int.from_bytes(mac[16:24], "big") % SHARDS
    return UserId(f"{name}{shard:0{SHARD_DIGITS}d}")


def shard_of(identifier: str) -> int:
    """The user shard that ends a user, task or material id, 0..999999."""
    return int(identifier[-SHARD_DIGITS:])


def user_partition(identifier: str, partitions: int) -> int:
    """Where the commands and events of a user's tasks and materials stand."""
    return int(identifier[-SHARD_DIGITS:]) % partitions


def account_of(tenant_id: TenantId, user_id: UserId) -> AccountId:
    """One account for a tenant and all its users, or for a user without tenant."""
    return AccountId(f"t-{tenant_id}" if tenant_id else f"u-{user_id}")


def account_partition(account_id: str, partitions: int) -> int:
    """Where an account's quota is decided; a user without tenant: the partition of his tasks."""
    if account_id.startswith("u-"):
        return user_partition(account_id, partitions)
    return crc32(account_id.encode()) % partitions


def runner_partition(runner_id: str, partitions: int) -> int:
    """The partition of `runner-inbox` that a runner reads."""
    return crc32(runner_id.encode()) % partitions


def task_id_of(tenant_id: TenantId, user_id: UserId, idempotency_key: str) -> TaskId:
    """The task that this key of this user names: 26 characters of hash and the user's shard."""
    return TaskId(_digest("task", tenant_id, user_id, idempotency_key) + user_id[-SHARD_DIGITS:])


def material_id_of(user_id: UserId, sha256: str, name: str) -> MaterialId:
    """The material that this content under this name of this user is."""
    return MaterialId(_digest("material", user_id, sha256, name) + user_id[-SHARD_DIGITS:])


def command_id_of(kind: str, *parts: str) -> CommandId:
    """The id of a command that a request asks for; the same request asks for the same command."""
    return CommandId(f"{kind}-{_digest(kind, *parts)}")


def completion_id_of(material_id: MaterialId, seq: int) -> CommandId:
    """The id of the command that completes an upload, whoever asks for it: it is done once."""
    return command_id_of("complete", material_id, str(seq))


def event_id_of(command_id: CommandId, index: int, within: str = "") -> EventId:
    """The id of the event number `index` (from 0) that a command led to.

    With `within` the number counts there (in a pool), and tells apart what the same command leads
    to when it is worked on again.
    """
    return EventId(f"{command_id}.{within}.{index}" if within else f"{command_id}.{index}")


def follow_up_id(event_id: EventId, suffix: str) -> CommandId:
    """The id of a command that an event leads to; `suffix` tells several of one event apart.

    It begins with a letter, so that what follows event 1 is never taken for something of event 10.
    """
    if not suffix[:1].isalpha():
        raise ValueError(f"the suffix {suffix!r} does not begin with a letter")
    return CommandId(f"{event_id}{suffix}")


def reservation_id_of(command_id: CommandId) -> ReservationId:
    """Within its account a reservation is named by the command that reserved it."""
    return ReservationId(command_id)
