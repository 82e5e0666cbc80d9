"""A flow with a policy, people who ask and runners who answer: what the stories of shells play."""

from itertools import count
from typing import Any, TypeVar

import msgspec

from cutlog.installation import LOCAL_POLICY
from gpu_runners.attempts import attempt_command_id, fail, finish, free_slot
from gpu_runners.pipelines.pipeline import PipelineError, Product
from schema import commands as c
from schema import events as e
from schema import replies as r
from schema.failures import FailureClass
from schema.ids import (
    NO_TENANT,
    CommandId,
    IncarnationId,
    MaterialId,
    PoolId,
    RunnerId,
    TaskId,
    TenantId,
    UserId,
    account_of,
    command_id_of,
    material_id_of,
    task_id_of,
)
from schema.objects import content_key
from schema.policy import Policy, read_policy
from schema.topics import Topic
from schema.words import Lane, LossCause, MediaKind, Scene
from tests.support.flow import Flow

POLICY: Policy = read_policy(LOCAL_POLICY.read_bytes())
"""Lease 30 s, beat 5 s, accept 10 s; retries after 1 s and 3 s."""
ANN = UserId("annannannannannannan000007")
BEN = UserId("benbenbenbenbenbenbe000008")
POOL = PoolId("R")
TIER = "load"
MessageT = TypeVar("MessageT")


class Runner:
    """One incarnation that beats when it is told to."""

    def __init__(self, play: "Play", name: str, incarnation: str, slots: int) -> None:
        self.pool_id = POOL
        self.runner_id = RunnerId(name)
        self.incarnation_id = IncarnationId(incarnation)
        self._play = play
        self._beats = count(1)
        play.ask(
            c.RegisterRunner(
                command_id=CommandId(f"register-{incarnation}"), slots=slots, **self.place
            )
        )

    @property
    def place(self) -> dict[str, Any]:
        return {
            "pool_id": self.pool_id,
            "runner_id": self.runner_id,
            "incarnation_id": self.incarnation_id,
        }

    def inbox(self, kind: type[MessageT]) -> list[MessageT]:
        """What this incarnation was told."""
        return [
            message
            for message in self._play.told(Topic.RUNNER_INBOX, kind)
            if getattr(message, "incarnation_id", None) == self.incarnation_id
        ]

    def beat(self, *held: r.DispatchAttempt) -> None:
        number = next(self._beats)
        listed = tuple(c.HeldAttempt(task_id=one.task_id, token=one.token) for one in held)
        self._play.ask(
            c.BeatRunner(
                command_id=CommandId(f"beat-{self.incarnation_id}-{number}"),
                beat=number,
                held=listed,
                **self.place,
            )
        )

    def accept(self, dispatch: r.DispatchAttempt) -> None:
        self._play.ask(
            c.AcceptAttempt(
                command_id=attempt_command_id("accept", dispatch),
                task_id=dispatch.task_id,
                token=dispatch.token,
                **self.place,
            )
        )

    def finish(self, dispatch: r.DispatchAttempt, card_seconds: float = 2.0) -> None:
        product = Product(files=(), facts={}, card_seconds=card_seconds)
        self._play.ask(finish(dispatch, product, ()))
        self.free(dispatch)

    def fail(self, dispatch: r.DispatchAttempt, failure: FailureClass) -> None:
        self._play.ask(fail(dispatch, PipelineError(failure, "as the story wants"), 1_000))
        self.free(dispatch)

    def free(self, dispatch: r.DispatchAttempt) -> None:
        self._play.ask(free_slot(dispatch, self))

    def give_back(self, dispatch: r.DispatchAttempt) -> None:
        self._play.ask(
            c.AttemptYielded(
                command_id=attempt_command_id("yield", dispatch),
                task_id=dispatch.task_id,
                token=dispatch.token,
                cause=LossCause.DRAINED,
            )
        )
        self.free(dispatch)


class Play:
    """The flow, worked on after everything that is asked."""

    def __init__(self, partitions: int = 2, policy: Policy = POLICY) -> None:
        self.flow = Flow(partitions)
        self._numbers = count(1)
        self.flow.publish(policy)
        self.flow.settle()

    def ask(self, command: c.Command, lane: Lane = Lane.P1) -> None:
        self.flow.append(command, lane)
        self.flow.settle()

    def runner(self, name: str = "runner-1", *, incarnation: str = "", slots: int = 1) -> Runner:
        return Runner(self, name, incarnation or f"{name}-{next(self._numbers)}", slots)

    # --- asking ----------------------------------------------------------------------------------

    def submission(
        self,
        key: str,
        *,
        user: UserId = ANN,
        tenant: TenantId = NO_TENANT,
        tier: str = TIER,
        materials: tuple[MaterialId, ...] = (),
    ) -> c.SubmitTask:
        task_id = task_id_of(tenant, user, key)
        return c.SubmitTask(
            command_id=command_id_of("submit", task_id),
            task_id=task_id,
            origin=c.Origin(
                user_id=user,
                tenant_id=tenant,
                account_id=account_of(tenant, user),
                scene=Scene.REHEARSAL,
                tier=tier,
                fingerprint="f",
                material_ids=materials,
            ),
            reply_to=0,
        )

    def submit(self, key: str, **how: Any) -> TaskId:  # noqa: ANN401 - of `submission`
        command = self.submission(key, **how)
        self.ask(command)
        return command.task_id

    def register(self, number: int = 0, size: int = 9) -> c.RegisterMaterial:
        """A material of Ann is declared."""
        sha256 = f"{number:064d}"
        command = c.RegisterMaterial(
            command_id=CommandId(f"register-{number}"),
            material_id=material_id_of(ANN, sha256, "clip.mp4"),
            user_id=ANN,
            tenant_id=NO_TENANT,
            content_type="video/mp4",
            size=size,
            sha256=sha256,
            reply_to=0,
        )
        self.ask(command)
        return command

    def complete(self, declared: c.RegisterMaterial) -> c.CompleteMaterial:
        """All of it is sent."""
        command = c.CompleteMaterial(
            command_id=CommandId(f"complete-{declared.material_id}"),
            material_id=declared.material_id,
            user_id=declared.user_id,
            tenant_id=declared.tenant_id,
            reply_to=0,
        )
        self.ask(command)
        return command

    def touch(self, declared: c.RegisterMaterial, number: int) -> None:
        """Some of it came in."""
        self.ask(
            c.TouchUpload(
                command_id=CommandId(f"touch-{declared.material_id}-{number}"),
                material_id=declared.material_id,
                user_id=declared.user_id,
                tenant_id=declared.tenant_id,
            )
        )

    def conclude(self, declared: c.RegisterMaterial, size: int = 9, seconds: int = 5) -> None:
        """What the prober finds, of the newest try."""
        tries = [
            event.number
            for event in self.told(Topic.MATERIAL_EVENTS, e.MaterialAssembling)
            if event.material_id == declared.material_id
        ]
        self.ask(
            c.ConcludeMaterial(
                command_id=CommandId(f"conclude-{declared.material_id}-{len(tries)}"),
                material_id=declared.material_id,
                user_id=declared.user_id,
                tenant_id=declared.tenant_id,
                number=tries[-1],
                size=size,
                sha256=declared.sha256,
                content_key=content_key(declared.tenant_id, declared.user_id, declared.sha256),
                facts=c.MediaFacts(
                    kind=MediaKind.VIDEO, container="mp4", duration_ms=seconds * 1000
                ),
            )
        )

    def store(self, declared: c.RegisterMaterial, size: int = 9) -> c.CompleteMaterial:
        """It is sent and looked at."""
        command = self.complete(declared)
        self.conclude(declared, size)
        return command

    def adopt(self, declared: c.RegisterMaterial, size: int = 9) -> c.AdoptMaterial:
        """Its content is known, and Ann holds it."""
        command = c.AdoptMaterial(
            command_id=CommandId(f"adopt-{declared.material_id}"),
            material_id=declared.material_id,
            user_id=declared.user_id,
            tenant_id=declared.tenant_id,
            size=size,
            sha256=declared.sha256,
            content_key=content_key(declared.tenant_id, declared.user_id, declared.sha256),
            facts=c.MediaFacts(kind=MediaKind.VIDEO, container="mp4"),
            reply_to=0,
        )
        self.ask(command)
        return command

    def cancel(self, task_id: TaskId, user: UserId = ANN, name: str = "") -> c.CancelTask:
        command = c.CancelTask(
            command_id=CommandId(name or f"cancel-{task_id}"),
            task_id=task_id,
            user_id=user,
            tenant_id=NO_TENANT,
            reply_to=1,
        )
        self.ask(command)
        return command

    def retry(self, task_id: TaskId, user: UserId = ANN, name: str = "") -> c.RetryTask:
        command = c.RetryTask(
            command_id=CommandId(name or f"retry-{task_id}"),
            task_id=task_id,
            user_id=user,
            tenant_id=NO_TENANT,
            account_id=account_of(NO_TENANT, user),
            scene=Scene.REHEARSAL,
            tier="load",
            reply_to=0,
        )
        self.ask(command)
        return command

    def release(self, topic: Topic, partition: int, key: str) -> None:
        command = c.ReleaseKey(
            command_id=CommandId(f"release-{key}"), key=key, who="anna", why="the code is mended"
        )
        self.flow.append_bytes(topic, partition, key.encode(), msgspec.json.encode(command))
        self.flow.settle()

    # --- looking ---------------------------------------------------------------------------------

    def told(self, topic: Topic, kind: type[MessageT]) -> list[MessageT]:
        return [one for one in self.flow.messages(topic) if isinstance(one, kind)]

    def story(self, task_id: TaskId) -> list[str]:
        """The kinds of the events of a task."""
        return [
            type(event).__name__
            for event in self.flow.messages(Topic.TASK_EVENTS)
            if event.task_id == task_id
        ]

    def replies(self, command: c.Command) -> list[r.ReplyMessage]:
        found: list[r.ReplyMessage] = self.flow.messages(Topic.REPLIES)
        return [reply for reply in found if reply.command_id == command.command_id]

    def ledger(self) -> list[str]:
        """The kinds of the events of all accounts."""
        kinds = [type(event).__name__ for event in self.flow.messages(Topic.QUOTA_EVENTS)]
        return [kind for kind in kinds if kind != "PolicyAdopted"]

    def free_slots(self) -> int:
        """Of the pool that rehearsals go to."""
        states = self.flow.rules.pools.states()
        return sum(state.depths(POOL).free for state in states if POOL in state.pools)
