"""Answers, notices and orders that are neither commands nor events.

`replies`: what the api instance that asked is told, in the transaction of the decision.
`refusals`: a command that was refused, as a fact. `dead-letters`: what could not be worked on.
`runner-inbox`: what a runner is told.
"""

from schema.commands import HeldAttempt
from schema.events import Window
from schema.failures import FailureClass
from schema.ids import (
    CommandId,
    IncarnationId,
    MaterialId,
    RunnerId,
    TaskId,
    TraceId,
    UserId,
)
from schema.message import Instant, Message, Micros, Parameters, Part, Seq, Token
from schema.refusals import Refusal
from schema.words import Scene

# --- replies ------------------------------------------------------------------------------------


class Remaining(Part):
    """What a user has left in a scene, after this answer. None: no such limit."""

    minute: int
    day: int
    credits_micros: Micros
    contract_micros: Micros | None = None
    minute_window: Window
    day_window: Window
    month_window: Window


class Reply(Message):
    command_id: CommandId
    key: str
    """The task, account, pool or material that was asked about."""
    at: Instant


class Accepted(Reply, tag="reply.accepted.v1"):
    """Done, or already so. `seq` is the key's newest event of the answer (0: none)."""

    seq: Seq = 0
    status: str = ""
    remaining: Remaining | None = None
    reserved_micros: Micros | None = None
    upload_id: str = ""
    """Of a material whose parts may come in: the upload that they belong to."""


class Refused(Reply, tag="reply.refused.v1"):
    reason: Refusal
    detail: str = ""
    remaining: Remaining | None = None
    resets_at: Instant | None = None
    """When the limit that refused begins anew."""


ReplyMessage = Accepted | Refused

# --- refusals -----------------------------------------------------------------------------------


class CommandRefused(Message, tag="command.refused.v1"):
    """A fact of its own kind: it has no `seq` and is never an input of `evolve`."""

    command_id: CommandId
    command: str
    """The wire name of what was asked."""
    key: str
    user_id: UserId | None = None
    at: Instant
    reason: Refusal
    detail: str = ""
    remaining: Remaining | None = None
    resets_at: Instant | None = None


# --- dead-letters -------------------------------------------------------------------------------


class DeadLetter(Message, tag="dead_letter.v1"):
    """A record that could not be read or applied, whole, or a task whose retries are spent."""

    letter_id: str
    at: Instant
    topic: str
    partition: int
    offset: int
    key: bytes | None = None
    value: bytes | None = None
    cause: str
    """The error, one line, or `retries_spent`."""
    quarantined_key: str = ""
    task_id: TaskId | None = None
    failure: FailureClass | None = None
    trace_id: TraceId | None = None
    replaces: str = ""
    """The letter that was redriven and is poison again: this one stands for it from here on."""


class KeyReleased(Message, tag="key.released.v1"):
    """Nothing waits behind a key any more, or an operator is done with a letter, or both."""

    command_id: CommandId
    at: Instant
    key: str
    """Empty: none was quarantined."""
    letter_id: str = ""
    redriven: bool = False
    """The letter's record was applied, or its task tried again."""
    discarded: bool = False
    who: str
    why: str


DeadLetterMessage = DeadLetter | KeyReleased

# --- runner-inbox -------------------------------------------------------------------------------


class InboxMessage(Message):
    runner_id: RunnerId
    incarnation_id: IncarnationId
    at: Instant


class DispatchAttempt(InboxMessage, tag="inbox.dispatch.v1"):
    """Do this attempt. The lease counts from the last answered beat (or from the receipt)."""

    task_id: TaskId
    user_id: UserId
    token: Token
    scene: Scene
    parameters: Parameters = {}
    material_ids: tuple[MaterialId, ...] = ()
    lease_seconds: int
    run_limit_seconds: int
    trace_id: TraceId = TraceId("")
    checkpoint: str = ""
    percent: int = 0
    """The highest milestone that stands; lower ones need not be told."""
    lower_spec: bool = False
    """Make it with less (size, steps)."""
    content_keys: dict[MaterialId, str] = {}
    """Where its materials stand; one that is not named here: `schema.objects.material_key`."""
    private: bytes | None = None
    """What its user said in words, sealed with his key: a prompt is for the pipeline alone."""


class StopAttempt(InboxMessage, tag="inbox.stop.v1"):
    """Stop exactly this attempt (task and token); no match is a no-op."""

    task_id: TaskId
    token: Token
    reason: str


class YieldAttempt(InboxMessage, tag="inbox.yield.v1"):
    """Checkpoint if you can, then give it back (`AttemptYielded`)."""

    task_id: TaskId
    token: Token
    reason: str
    seconds: int = 30
    """How long that may take; then it is stopped."""


class BeatAnswered(InboxMessage, tag="inbox.beat_answered.v1"):
    """The attempts that this incarnation still holds; it stops everything else."""

    beat: int
    """The beat that is answered; 0: the registration."""
    lease_seconds: int
    beat_seconds: int = 15
    """How often this pool wants to be told."""
    held: tuple[HeldAttempt, ...] = ()


class RunnerDismissed(InboxMessage, tag="inbox.dismissed.v1"):
    """This incarnation is not known (any more): stop all, register anew under a new incarnation."""

    reason: str


RunnerMessage = DispatchAttempt | StopAttempt | YieldAttempt | BeatAnswered | RunnerDismissed
