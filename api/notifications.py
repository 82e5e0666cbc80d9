"""What an object store's notification says, whichever store sends it: which object, come or gone.

Stores tell in one of a few shapes, and others wrap these: the `Records` of S3 (AWS, MinIO, Ceph,
RustFS), also inside messages of SNS and SQS; events of EventBridge; changes of a SeaweedFS filer.
All of it is anybody's word. Nothing is acted on here, no address in it is ever called, and a name
that none of our objects has ends here.
"""

import re
from collections import Counter
from collections.abc import Iterator
from enum import StrEnum
from typing import Any, Final, NamedTuple
from urllib.parse import unquote_plus

from api import strict_json
from schema.ids import AccountId, MaterialId, TaskId, UserId

PATH: Final = "/v1/store/notifications"
BODY_BYTES_MAX: Final = 256 << 10
"""As long as a message of SNS, SQS and EventBridge may be."""
RECORDS_MAX: Final = 100
"""Stores send one, forwarders of queues ten. More are not looked at: the sweep finds them."""
_WRAPS_MAX: Final = 3
"""A queue's record, of a topic's message, of a bucket's record."""
_CREATED: Final = ("ObjectCreated:",)
_REMOVED: Final = (
    "ObjectRemoved:",
    "LifecycleExpiration:",
    "ObjectLifecycle:Expiration:",
    "ReducedRedundancyLostObject",
)
_ID: Final = "[0-9a-z]{26}[0-9]{6}"
_UPLOAD: Final = re.compile(rf"uploads/([0-9a-z]{{20}}[0-9]{{6}})/({_ID})")
_RESULT: Final = re.compile(rf"results/({_ID})/[0-9]{{1,18}}/[^/]+")
_CONTENT: Final = re.compile(r"contents/([tu]-[A-Za-z0-9._:@-]{1,128})/([0-9a-f]{64})")
_TOPIC: Final = re.compile(
    r"arn:aws[a-z-]{0,12}:sns:[a-z0-9-]{1,32}:[0-9]{12}:[A-Za-z0-9_.-]{1,256}"
)
_TOKEN: Final = re.compile(r"[0-9A-Za-z]{1,1024}")
_INTEGER_MAX: Final = 2**64 - 1
Json = Any


class Change(StrEnum):
    """What happened to an object."""

    CREATED = "created"
    REMOVED = "removed"


class Ignored(StrEnum):
    """Why nothing follows from a record."""

    SHAPE = "shape"
    """It is of no shape that is known here."""
    TOO_MANY = "too_many"
    EVENT = "event"
    """Something else happened: tags, a copy of a replica, the test that S3 sends."""
    BUCKET = "bucket"
    KEY = "key"
    """No object of ours is called so."""
    NO_MATTER = "no_matter"
    """One of ours, of which this tells nothing new: a result that was stored, say."""
    UNKNOWN = "unknown"
    """The read model has no such material, task or content."""
    SETTLED = "settled"
    """It is looked at already, or decided, or was told before."""
    INCOMPLETE = "incomplete"
    """The store has not all of the upload."""
    THERE = "there"
    """It is not gone."""


class UploadObject(NamedTuple):
    """What the parts of an upload are joined to."""

    user_id: UserId
    material_id: MaterialId


class ResultObject(NamedTuple):
    """A file of an attempt's result."""

    task_id: TaskId


class ContentObject(NamedTuple):
    """The one object of a content."""

    owner: AccountId
    sha256: str


Named = UploadObject | ResultObject | ContentObject


class Hint(NamedTuple):
    """Something is said to have happened to an object that may be ours."""

    change: Change
    key: str
    named: Named


class Notification(NamedTuple):
    """All that a message says."""

    hints: tuple[Hint, ...]
    """Each once, in the order of the message."""
    ignored: Counter[Ignored]


class SubscriptionError(Exception):
    """SNS asks whether we want the messages of a topic; somebody has to say so."""

    def __init__(self, topic_arn: str, token: str) -> None:
        """Empty where they are not what SNS sends."""
        super().__init__(topic_arn)
        self.topic_arn = topic_arn
        self.token = token


class _Record(NamedTuple):
    """One change, as its store tells it; `change` None: something else happened."""

    change: Change | None
    bucket: str
    key: str


def decode(body: bytes) -> Json:
    """The document; raises NotStrictJsonError. SeaweedFS sends inodes of 64 bits without a sign."""
    return strict_json.decode(body, _INTEGER_MAX)


def read(document: Json, bucket: str) -> Notification:
    """The hints of a message, of this bucket; raises SubscriptionError."""
    hints: dict[Hint, None] = {}
    ignored: Counter[Ignored] = Counter()
    for number, record in enumerate(_records(document, _WRAPS_MAX)):
        found = Ignored.TOO_MANY if number >= RECORDS_MAX else _hint(record, bucket)
        if isinstance(found, Hint) and found not in hints:
            hints[found] = None
        else:
            ignored[found if isinstance(found, Ignored) else Ignored.SETTLED] += 1
    return Notification(tuple(hints), ignored)


def _hint(record: _Record | Ignored, bucket: str) -> Hint | Ignored:
    if isinstance(record, Ignored):
        return record
    if record.change is None:
        return Ignored.EVENT
    if record.bucket != bucket:
        return Ignored.BUCKET
    named = named_by(record.key)
    if named is None:
        return Ignored.KEY
    if isinstance(named, UploadObject) is not (record.change is Change.CREATED):
        return Ignored.NO_MATTER
    return Hint(record.change, record.key, named)


def named_by(key: str) -> Named | None:
    """What an object's name says that it is; None: none of those that matter here."""
    if found := _UPLOAD.fullmatch(key):
        return UploadObject(UserId(found[1]), MaterialId(found[2]))
    if found := _RESULT.fullmatch(key):
        return ResultObject(TaskId(found[1]))
    if found := _CONTENT.fullmatch(key):
        return ContentObject(AccountId(found[1]), found[2])
    return None


# --- shapes --------------------------------------------------------------------------------------


def _records(document: Json, wraps: int) -> Iterator[_Record | Ignored]:
    """What a message says, out of all its wraps."""
    match document:
        case {"Records": list(records)}:
            for record in records:
                yield from _of_list(record, wraps)
        case {"Type": "Notification", "Message": str(message)}:
            yield from _inside(message, wraps)
        case {"Type": "SubscriptionConfirmation"}:
            raise SubscriptionError(
                _if_like(_TOPIC, document.get("TopicArn")), _if_like(_TOKEN, document.get("Token"))
            )
        case {
            "detail-type": str(kind),
            "detail": {"bucket": {"name": str(bucket)}, "object": {"key": str(key)}},
        }:
            yield _Record(_EVENT_BRIDGE.get(kind), bucket, key)
        case {"key": str(path), "event_type": str(kind), "message": dict()}:
            yield _of_filer(path, kind)
        case {"Event": "s3:TestEvent"}:
            yield Ignored.EVENT
        case _:
            yield Ignored.SHAPE


def _of_list(record: Json, wraps: int) -> Iterator[_Record | Ignored]:
    match record:
        case {
            "eventName": str(event),
            "s3": {"bucket": {"name": str(bucket)}, "object": {"key": str(key)}},
        }:
            # A query's encoding. Where a store leaves it out it changes nothing: no name of ours
            # has a plus or a percent sign.
            yield _Record(_change(event.removeprefix("s3:")), bucket, unquote_plus(key))
        case {"eventSource": "aws:sqs", "body": str(message)}:
            yield from _inside(message, wraps)
        case {"EventSource": "aws:sns", "Sns": {"Message": str(message)}}:
            yield from _inside(message, wraps)
        case _:
            yield Ignored.SHAPE


def _inside(message: str, wraps: int) -> Iterator[_Record | Ignored]:
    if wraps == 0:
        yield Ignored.SHAPE
        return
    try:
        document = decode(message.encode())
    except strict_json.NotStrictJsonError:
        yield Ignored.SHAPE
        return
    yield from _records(document, wraps - 1)


def _change(event: str) -> Change | None:
    if event.startswith(_CREATED):
        return Change.CREATED
    return Change.REMOVED if event.startswith(_REMOVED) else None


_EVENT_BRIDGE: Final = {"Object Created": Change.CREATED, "Object Deleted": Change.REMOVED}
_FILER: Final = {
    "create": Change.CREATED,
    "update": Change.CREATED,
    "delete": Change.REMOVED,
}


def _of_filer(path: str, kind: str) -> _Record | Ignored:
    """SeaweedFS names the path of its file system; a bucket is a folder of `/buckets`."""
    match path.split("/", 3):
        case ["", "buckets", bucket, key]:
            return _Record(_FILER.get(kind), bucket, key)
        case _:
            return Ignored.BUCKET


def _if_like(pattern: re.Pattern[str], value: Json) -> str:
    return value if isinstance(value, str) and pattern.fullmatch(value) else ""
