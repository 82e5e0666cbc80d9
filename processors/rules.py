"""The rules of Cutlog, as the engine sees them: who handles which topic, what poison does."""

import logging
from collections.abc import Callable
from typing import Any

from processors import materials, pools, quotas, tasks
from processors.clock import instant
from processors.engine import Record, Source, Step
from processors.engine import UnknownVersionError as EngineUnknownVersionError
from processors.materials import Materials
from processors.outbox import Outbox
from processors.poison import inner, letter
from processors.pools import Pools
from processors.quotas import Quotas
from processors.tables import Tables
from processors.tasks import Tasks
from schema.codec import CODECS, UnknownVersionError, UnreadableMessageError, encode
from schema.commands import Command, ReleaseKey, RequeueTask, StartAttempt, SubmitTask
from schema.ids import CommandId
from schema.refusals import Refusal
from schema.replies import Refused
from schema.topics import Topic
from schema.wires.telemetry import facts

log = logging.getLogger(__name__)

RULES_VERSION = 4
"""Goes to the journal; raised when the same commands would lead to other events."""

TICK_TIMERS_MAX = 500

SOURCES = (
    Source(Topic.TASK_COMMANDS, 0, ticked=True),
    Source(Topic.POOL_COMMANDS, 1, ticked=True),
    Source(Topic.QUOTA_COMMANDS, 2),
    Source(Topic.MATERIAL_COMMANDS, 3),
    Source(Topic.SUBMISSIONS_P0, 4, kind="submission"),
    Source(Topic.SUBMISSIONS_P1, 5, kind="submission"),
    Source(Topic.SUBMISSIONS_P2, 6, kind="submission"),
)
"""In the order of work inside a transaction: admission never starves completion."""

OUTPUTS = (
    Topic.QUOTA_EVENTS,
    Topic.TASK_EVENTS,
    Topic.POOL_EVENTS,
    Topic.MATERIAL_EVENTS,
    Topic.QUOTA_COMMANDS,
    Topic.TASK_COMMANDS,
    Topic.POOL_COMMANDS,
    Topic.MATERIAL_COMMANDS,
    Topic.REPLIES,
    Topic.REFUSALS,
    Topic.RUNNER_INBOX,
    Topic.DEAD_LETTERS,
)

_QUARANTINE_KEYS: dict[Topic, Callable[[Any], str | None]] = {
    Topic.TASK_COMMANDS: tasks.quarantine_key,
    Topic.POOL_COMMANDS: pools.quarantine_key,
    Topic.QUOTA_COMMANDS: quotas.quarantine_key,
    Topic.MATERIAL_COMMANDS: materials.quarantine_key,
    Topic.SUBMISSIONS_P0: quotas.quarantine_key,
    Topic.SUBMISSIONS_P1: quotas.quarantine_key,
    Topic.SUBMISSIONS_P2: quotas.quarantine_key,
}


class CutlogRules:
    """`processors.engine.Rules` for all nouns of a partition."""

    version = RULES_VERSION

    def __init__(self, tables: Tables, partitions: int) -> None:
        self.outbox = Outbox(partitions)
        self.quotas = Quotas(tables, self.outbox)
        self.tasks = Tasks(tables, self.outbox, self.quotas)
        self.pools = Pools(tables, self.outbox, partitions)
        self.materials = Materials(tables, self.outbox)
        self._handlers: dict[str, Callable[[Step, Record], None]] = {
            Topic.TASK_COMMANDS: self.tasks.handle,
            Topic.POOL_COMMANDS: self.pools.handle,
            Topic.QUOTA_COMMANDS: self.quotas.handle,
            Topic.MATERIAL_COMMANDS: self.materials.handle,
            Topic.SUBMISSIONS_P0: self.quotas.handle,
            Topic.SUBMISSIONS_P1: self.quotas.handle,
            Topic.SUBMISSIONS_P2: self.quotas.handle,
        }

    def handle(self, step: Step, record: Record) -> None:
        """One command, by its topic."""
        try:
            self._handlers[record.topic](step, record)
        except UnknownVersionError as error:
            raise EngineUnknownVersionError(str(error)) from error

    def tick(self, step: Step, topic: str) -> bool:
        """What is due; ticks of pool-commands look after pools, others after everything else."""
        if topic == Topic.POOL_COMMANDS:
            return self.pools.tick(step, TICK_TIMERS_MAX)
        more = self.tasks.tick(step, TICK_TIMERS_MAX)
        more = self.materials.tick(step, TICK_TIMERS_MAX) or more
        return self.quotas.tick(step, TICK_TIMERS_MAX) or more

    def key_of(self, record: Record) -> bytes | None:
        """The smallest key that must wait, or None."""
        command = _decoded(record)
        if isinstance(command, ReleaseKey) and command.redrive is not None:
            return command.key.encode() or self.key_of(inner(record, command))
        key = None if command is None else _QUARANTINE_KEYS[Topic(record.topic)](command)
        return None if key is None else key.encode()

    def poisoned(self, step: Step, record: Record, error: BaseException) -> None:
        """Write the record whole to the dead letters; whoever waits for an answer gets INTERNAL."""
        self.pools.undo(step)
        log.error(  # the engine logs the error itself
            "a command is poison",
            extra=facts(topic=record.topic, partition=record.partition, offset=record.offset),
        )
        command, redriven = _decoded(record), None
        if isinstance(command, ReleaseKey) and command.redrive is not None:
            redriven, command = command, _decoded(inner(record, command))
        key = self.key_of(record)
        named = None if key is None else key.decode()
        told = letter(step, error, named, command=command, redriven=redriven)
        self.outbox.order(step, told)
        if isinstance(command, StartAttempt):
            self.tasks.refuse(step, command)
        reply_to = getattr(command, "reply_to", None)
        if command is not None and reply_to is not None:
            command_id = _asked_by(command)
            reply = Refused(
                command_id=command_id,
                key=_asked_about(command),
                at=instant(step.now),
                reason=Refusal.INTERNAL,
                detail="The command could not be worked on; operators have it.",
            )
            self.outbox.reply(step, command_id, encode(reply), reply_to)

    def parked(self, step: Step, record: Record) -> None:
        """A quarantined task answers no proposal; its slot must not wait with it."""
        command = _decoded(record) if record.topic == Topic.TASK_COMMANDS else None
        if isinstance(command, StartAttempt):
            self.tasks.refuse(step, command)

    def released(self, record: Record) -> bytes | None:
        """The key that a ReleaseKey names."""
        command = _decoded(record)
        return command.key.encode() if isinstance(command, ReleaseKey) else None


def _decoded(record: Record) -> Command | None:
    try:
        command: Command = CODECS[Topic(record.topic)].decode(record.value or b"")
    except (UnreadableMessageError, UnknownVersionError):
        return None
    return command


def _asked_by(command: Command) -> CommandId:
    """The command that somebody waits for: a requeue is asked for by the retry that reserved."""
    if isinstance(command, RequeueTask):
        return CommandId(command.reservation_id)
    return command.command_id


def _asked_about(command: Command) -> str:
    if isinstance(command, SubmitTask):
        return command.task_id
    for field in ("task_id", "material_id", "pool_id", "account_id"):
        value = getattr(command, field, None)
        if value is not None:
            return str(value)
    return str(command.command_id)
