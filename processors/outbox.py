"""A decision becomes records: the one place that knows which topic each kind of message goes to.

Every record names its cause in a header: topic, partition and offset of the command at work.
"""

from typing import Any

import msgspec

from commands.decider import Decision
from processors.engine import Record, Step
from schema.codec import encode
from schema.message import CAUSE_HEADER
from schema.replies import DeadLetter, InboxMessage, KeyReleased
from schema.routes import Routed, route, route_inbox
from schema.topics import Topic

Headers = tuple[tuple[str, bytes], ...]


class Outbox:
    """Writes decisions into the step of their command; `partitions` is the number of each topic."""

    def __init__(self, partitions: int) -> None:
        self._partitions = partitions

    def event(self, step: Step, topic: Topic, key: str, event: msgspec.Struct) -> None:
        """A fact, to the partition that decided it."""
        step.send(topic, key.encode(), encode(event), step.partition, _cause(step.cause))

    def write(
        self, step: Step, topic: Topic, key: str, decision: Decision[Any], reply_to: int | None
    ) -> None:
        """Events to `topic`, orders where they belong, the reply and the refusal, in this step."""
        key_bytes, cause = key.encode(), _cause(step.cause)
        for event in decision.events:
            step.send(topic, key_bytes, encode(event), step.partition, cause)
        for order in decision.orders:
            self._order(step, order, cause)
        if decision.refusal is not None:
            step.send(Topic.REFUSALS, key_bytes, encode(decision.refusal), step.partition, cause)
        if decision.reply is not None and reply_to is not None:
            self.reply(step, decision.reply.command_id, encode(decision.reply), reply_to)

    def reply(self, step: Step, command_id: str, value: bytes, reply_to: int) -> None:
        """An answer to the api instance that reads partition `reply_to`."""
        # A number from before the topic was made anew still finds a place: nobody waits there.
        place = reply_to % self._partitions
        step.send(Topic.REPLIES, command_id.encode(), value, place, _cause(step.cause))

    def order(self, step: Step, order: msgspec.Struct) -> None:
        """A command to another key, a message to a runner, or a dead letter."""
        self._order(step, order, _cause(step.cause))

    def _order(self, step: Step, order: msgspec.Struct, cause: Headers) -> None:
        if isinstance(order, InboxMessage):
            place = route_inbox(order.runner_id, self._partitions)
        elif isinstance(order, DeadLetter):
            letter = _placed(order, step.cause)
            key = (letter.task_id or letter.letter_id).encode()
            step.send(Topic.DEAD_LETTERS, key, encode(letter), step.partition, cause)
            return
        elif isinstance(order, KeyReleased):
            key = (order.key or order.letter_id).encode()
            step.send(Topic.DEAD_LETTERS, key, encode(order), step.partition, cause)
            return
        else:
            command: Routed = order  # type: ignore[assignment]
            place = route(command, self._partitions)
        step.send(place.topic, place.key.encode(), encode(order), place.partition, cause)


def _cause(record: Record) -> Headers:
    name = f"{record.topic}/{record.partition}/{record.offset}"
    return ((CAUSE_HEADER, name.encode()),)


def _placed(letter: DeadLetter, cause: Record) -> DeadLetter:
    """The letter of a task whose retries are spent: only here is known where the last word is."""
    if letter.offset >= 0:
        return letter
    return msgspec.structs.replace(
        letter, topic=cause.topic, partition=cause.partition, offset=cause.offset
    )
