"""A decision becomes records: the one place that knows which topic each kind of message goes to."""

from typing import Any

import msgspec

from commands.decider import Decision
from processors.engine import Step
from schema.codec import encode
from schema.replies import DeadLetter, InboxMessage
from schema.routes import Routed, route, route_inbox
from schema.topics import Topic


class Outbox:
    """Writes decisions into the step of their command; `partitions` is the number of each topic."""

    def __init__(self, partitions: int) -> None:
        self._partitions = partitions

    def event(self, step: Step, topic: Topic, key: str, event: msgspec.Struct) -> None:
        """A fact, to the partition that decided it."""
        step.send(topic, key.encode(), encode(event), step.partition)

    def write(
        self, step: Step, topic: Topic, key: str, decision: Decision[Any], reply_to: int | None
    ) -> None:
        """Events to `topic`, orders where they belong, the reply and the refusal, in this step."""
        key_bytes = key.encode()
        for event in decision.events:
            step.send(topic, key_bytes, encode(event), step.partition)
        for order in decision.orders:
            self.order(step, order)
        if decision.refusal is not None:
            step.send(Topic.REFUSALS, key_bytes, encode(decision.refusal), step.partition)
        if decision.reply is not None and reply_to is not None:
            self.reply(step, decision.reply.command_id, encode(decision.reply), reply_to)

    def reply(self, step: Step, command_id: str, value: bytes, reply_to: int) -> None:
        """An answer to the api instance that reads partition `reply_to`."""
        # A number from before the topic was made anew still finds a place: nobody waits there.
        step.send(Topic.REPLIES, command_id.encode(), value, reply_to % self._partitions)

    def order(self, step: Step, order: msgspec.Struct) -> None:
        """A command to another key, a message to a runner, or a dead letter."""
        if isinstance(order, InboxMessage):
            place = route_inbox(order.runner_id, self._partitions)
        elif isinstance(order, DeadLetter):
            key = (order.task_id or order.letter_id).encode()
            step.send(Topic.DEAD_LETTERS, key, encode(order), step.partition)
            return
        else:
            command: Routed = order  # type: ignore[assignment]
            place = route(command, self._partitions)
        step.send(place.topic, place.key.encode(), encode(order), place.partition)
