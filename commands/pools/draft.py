"""A decision in the making: numbers its events and adds the orders that follow from each.

Events are said first and applied (`evolve`) later, so that a rule sees the rows as they were.
"""

from collections.abc import Callable
from typing import Any

import msgspec

from commands.decider import Decision, Now, wire_name
from commands.pools.evolve import evolve
from commands.pools.state import PoolState
from schema import commands as c
from schema import events as e
from schema.ids import (
    CommandId,
    IncarnationId,
    PoolId,
    RunnerId,
    TaskId,
    event_id_of,
    follow_up_id,
)
from schema.policy import Policy
from schema.refusals import Refusal
from schema.replies import (
    Accepted,
    CommandRefused,
    Refused,
    ReplyMessage,
    RunnerDismissed,
    StopAttempt,
    YieldAttempt,
)
from schema.words import LossCause

_OPERATORS = (c.PauseLane, c.ResumeLane, c.ResetBreaker, c.PublishPolicy)


class Draft:
    """One command's (or tick's) events, orders, reply and refusal."""

    __slots__ = ("applied", "command_id", "events", "now", "orders", "refusal", "reply", "state")

    def __init__(self, state: PoolState, command_id: CommandId, now: Now) -> None:
        self.state = state
        self.command_id = command_id
        self.now = now
        self.events: list[e.PoolEvent] = []
        self.orders: list[msgspec.Struct] = []
        self.reply: ReplyMessage | None = None
        self.refusal: CommandRefused | None = None
        self.applied = 0

    def apply(self) -> None:
        """Let the rows follow what has been said."""
        while self.applied < len(self.events):
            evolve(self.state, self.events[self.applied], self.now)
            self.applied += 1

    def decision(self) -> Decision[e.PoolEvent]:
        return Decision(tuple(self.events), tuple(self.orders), self.reply, self.refusal)

    # --- events ----------------------------------------------------------------------------------

    def say(
        self,
        kind: Callable[..., e.PoolEvent],
        pool_id: PoolId,
        **fields: Any,  # noqa: ANN401 - the fields of the event
    ) -> e.PoolEvent:
        """The next event of a pool.

        Its id has its number in the pool, not in the command: a command that is told again has
        nothing to say, but the free slots that are given away after it are other ones.
        """
        seq = self.state.pool(pool_id).seq + 1 + len(self.events) - self.applied
        event = kind(
            event_id=event_id_of(self.command_id, seq, pool_id),
            seq=seq,
            at=self.now.at,
            pool_id=pool_id,
            **fields,
        )
        self.events.append(event)
        return event

    def adopt(self, command: c.PublishPolicy, seq: int) -> None:
        self.events.append(
            e.PolicyAdopted(
                event_id=event_id_of(self.command_id, len(self.events)),
                seq=seq,
                at=self.now.at,
                policy=command.policy,
                who=command.who,
                why=command.why,
            )
        )

    def lose(
        self, pool_id: PoolId, attempt: c.HeldAttempt, runner_id: RunnerId, cause: LossCause
    ) -> None:
        """Give an attempt up and tell its task."""
        event = self.say(
            e.SlotLost,
            pool_id,
            task_id=attempt.task_id,
            token=attempt.token,
            runner_id=runner_id,
            cause=cause,
        )
        self.orders.append(
            c.LoseAttempt(
                command_id=follow_up_id(event.event_id, "l"),
                task_id=attempt.task_id,
                token=attempt.token,
                cause=cause,
            )
        )

    def propose(
        self,
        pool_id: PoolId,
        attempt: c.HeldAttempt,
        runner_id: RunnerId,
        incarnation_id: IncarnationId,
    ) -> None:
        """Hold a slot for a waiting task and ask the task to start."""
        event = self.say(
            e.SlotProposed,
            pool_id,
            task_id=attempt.task_id,
            token=attempt.token,
            runner_id=runner_id,
            incarnation_id=incarnation_id,
        )
        self.orders.append(
            c.StartAttempt(
                command_id=follow_up_id(event.event_id, "s"),
                task_id=attempt.task_id,
                token=attempt.token,
                pool_id=pool_id,
                runner_id=runner_id,
                incarnation_id=incarnation_id,
                lease_seconds=self.state.pool_policy(pool_id).lease_seconds,
            )
        )

    def expire(self, pool_id: PoolId, task_id: TaskId, token: int) -> None:
        """Let a task wait no longer, and tell it."""
        event = self.say(e.TaskDequeued, pool_id, task_id=task_id, token=token, expired=True)
        self.orders.append(
            c.ExpireTask(command_id=follow_up_id(event.event_id, "e"), task_id=task_id, token=token)
        )

    # --- to runners ------------------------------------------------------------------------------

    def stop(
        self,
        runner_id: RunnerId,
        incarnation_id: IncarnationId,
        attempt: c.HeldAttempt,
        reason: str,
    ) -> None:
        """Tell a runner to stop exactly this attempt."""
        self.orders.append(
            StopAttempt(
                runner_id=runner_id,
                incarnation_id=incarnation_id,
                at=self.now.at,
                task_id=attempt.task_id,
                token=attempt.token,
                reason=reason,
            )
        )

    def yield_attempt(
        self,
        runner_id: RunnerId,
        incarnation_id: IncarnationId,
        attempt: c.HeldAttempt,
        cause: LossCause,
        seconds: int,
    ) -> None:
        """Tell a runner to checkpoint exactly this attempt and give it up."""
        self.orders.append(
            YieldAttempt(
                runner_id=runner_id,
                incarnation_id=incarnation_id,
                at=self.now.at,
                task_id=attempt.task_id,
                token=attempt.token,
                reason=cause.value,
                seconds=seconds,
            )
        )

    def dismiss(self, runner_id: RunnerId, incarnation_id: IncarnationId, reason: Refusal) -> None:
        self.orders.append(
            RunnerDismissed(
                runner_id=runner_id,
                incarnation_id=incarnation_id,
                at=self.now.at,
                reason=reason.value,
            )
        )

    # --- answers ---------------------------------------------------------------------------------

    def accept(
        self, command: c.PauseLane | c.ResumeLane | c.ResetBreaker | c.PublishPolicy
    ) -> None:
        """Done, or already so."""
        if command.reply_to is None:
            return
        if isinstance(command, c.PublishPolicy):
            adopted = self.state.policy_row()
            seq = (0 if adopted is None else adopted.seq) + len(self.events)
            key = "policy"
        else:
            seq = self.state.pool(command.pool_id).seq + len(self.events)
            key = command.pool_id
        self.reply = Accepted(command_id=command.command_id, key=key, at=self.now.at, seq=seq)

    def refuse(self, command: c.PoolCommand, reason: Refusal, detail: str = "") -> None:
        """Record that a command was refused, and answer whoever waits."""
        key: str = getattr(command, "pool_id", "policy")
        self.refusal = CommandRefused(
            command_id=command.command_id,
            command=wire_name(command),
            key=key,
            at=self.now.at,
            reason=reason,
            detail=detail,
        )
        if isinstance(command, _OPERATORS) and command.reply_to is not None:
            self.reply = Refused(
                command_id=command.command_id, key=key, at=self.now.at, reason=reason, detail=detail
            )


def policy_names(policy: Policy | None, pool_id: PoolId) -> Refusal | None:
    """Why a pool cannot be worked with: no policy at all, or one that does not name it."""
    if policy is None:
        return Refusal.POLICY_MISSING
    return None if pool_id in policy.pools else Refusal.POOL_UNKNOWN
