"""Bytes to messages and back. The only place that knows the encoding."""

from collections.abc import Callable, Mapping
from typing import Any, Generic, TypeVar, cast

import msgspec

from schema.commands import (
    MaterialCommand,
    PoolCommand,
    QuotaCommand,
    ResultCommand,
    TaskCommand,
)
from schema.events import MaterialEvent, PoolEvent, QuotaEvent, ResultEvent, TaskEvent
from schema.progress import ProgressReported
from schema.replies import CommandRefused, DeadLetterMessage, ReplyMessage, RunnerMessage
from schema.topics import Topic
from schema.upcasts import UPCASTS, Upcast

Union = TypeVar("Union")
MESSAGE_BYTES_MAX = 65_536
"""A command is at most this long."""

encode: Callable[[Any], bytes] = msgspec.json.Encoder().encode


class UnreadableMessageError(Exception):
    """The bytes are not a message of this contract. They go to the dead letters, whole."""


class UnknownVersionError(Exception):
    """A well-formed message of a name or version that this release does not know.

    Not poison: a newer release wrote it and an older one must not judge it. The process ends.
    """


class Codec(Generic[Union]):
    """Reads one union of messages; older versions are lifted by upcasts first."""

    def __init__(
        self,
        union: Any,  # noqa: ANN401 - a union of types is no type
        upcasts: Mapping[str, Upcast] = UPCASTS,
    ) -> None:
        self._decoder: msgspec.json.Decoder[Union] = msgspec.json.Decoder(union)
        self._union = union
        self._upcasts = upcasts
        self._tags = frozenset(_tags(union))

    @property
    def tags(self) -> frozenset[str]:
        """The wire names of the union."""
        return self._tags

    @property
    def union(self) -> Any:  # noqa: ANN401 - a union of types is no type
        """The union of messages, or the one message."""
        return self._union

    def decode(self, data: bytes) -> Union:
        """The message; raises UnreadableMessageError or UnknownVersionError."""
        try:
            return self._decoder.decode(data)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            return self._second_look(data, error)

    def _second_look(self, data: bytes, error: Exception) -> Union:
        """Why the fast way failed: an old version, a newer one, or no message at all."""
        try:
            read: Any = msgspec.json.decode(data)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            raise UnreadableMessageError(str(error)) from error
        fields = cast("dict[str, Any]", read) if isinstance(read, dict) else {}
        tag = fields.get("type")
        if not isinstance(tag, str) or tag in self._tags:
            raise UnreadableMessageError(str(error)) from error
        if tag not in self._upcasts:
            if _is_wire_name(tag):
                raise UnknownVersionError(tag) from error
            raise UnreadableMessageError(str(error)) from error
        while tag in self._upcasts:
            fields = self._upcasts[tag](fields)
            tag = str(fields["type"])
        try:
            message: Union = msgspec.convert(fields, self._union, strict=True, builtin_types=())
        except msgspec.ValidationError as invalid:
            raise UnreadableMessageError(str(invalid)) from invalid
        return message


def _tags(union: Any) -> list[str]:  # noqa: ANN401 - a union of types is no type
    members = getattr(union, "__args__", (union,))
    return [str(member.__struct_config__.tag) for member in members]


def _is_wire_name(tag: str) -> bool:
    """`noun.verb.v1`, the form of every name that a release of ours ever wrote."""
    name, _, version = tag.rpartition(".v")
    return bool(name) and version.isdigit() and name.replace(".", "").replace("_", "").isalpha()


QUOTA_COMMANDS: Codec[QuotaCommand] = Codec(QuotaCommand)
TASK_COMMANDS: Codec[TaskCommand] = Codec(TaskCommand)
POOL_COMMANDS: Codec[PoolCommand] = Codec(PoolCommand)
MATERIAL_COMMANDS: Codec[MaterialCommand | ResultCommand] = Codec(MaterialCommand | ResultCommand)
QUOTA_EVENTS: Codec[QuotaEvent] = Codec(QuotaEvent)
TASK_EVENTS: Codec[TaskEvent] = Codec(TaskEvent)
POOL_EVENTS: Codec[PoolEvent] = Codec(PoolEvent)
MATERIAL_EVENTS: Codec[MaterialEvent | ResultEvent] = Codec(MaterialEvent | ResultEvent)
REPLIES: Codec[ReplyMessage] = Codec(ReplyMessage)
REFUSALS: Codec[CommandRefused] = Codec(CommandRefused)
DEAD_LETTERS: Codec[DeadLetterMessage] = Codec(DeadLetterMessage)
RUNNER_INBOX: Codec[RunnerMessage] = Codec(RunnerMessage)
PROGRESS: Codec[ProgressReported] = Codec(ProgressReported)

CODECS: dict[Topic, Codec[Any]] = {
    Topic.SUBMISSIONS_P0: QUOTA_COMMANDS,
    Topic.SUBMISSIONS_P1: QUOTA_COMMANDS,
    Topic.SUBMISSIONS_P2: QUOTA_COMMANDS,
    Topic.QUOTA_COMMANDS: QUOTA_COMMANDS,
    Topic.TASK_COMMANDS: TASK_COMMANDS,
    Topic.POOL_COMMANDS: POOL_COMMANDS,
    Topic.MATERIAL_COMMANDS: MATERIAL_COMMANDS,
    Topic.QUOTA_EVENTS: QUOTA_EVENTS,
    Topic.TASK_EVENTS: TASK_EVENTS,
    Topic.POOL_EVENTS: POOL_EVENTS,
    Topic.MATERIAL_EVENTS: MATERIAL_EVENTS,
    Topic.REPLIES: REPLIES,
    Topic.REFUSALS: REFUSALS,
    Topic.DEAD_LETTERS: DEAD_LETTERS,
    Topic.RUNNER_INBOX: RUNNER_INBOX,
    Topic.PROGRESS: PROGRESS,
}
"""What stands in each topic. `journal` is the engine's own and has its own reader."""
