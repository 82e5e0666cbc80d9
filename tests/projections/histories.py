"""Made-up histories that could have happened: every event in an order that its key allows."""

import random
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from schema import events as e
from schema.codec import encode
from schema.commands import HeldAttempt, MediaFacts, Origin, ResultFile
from schema.failures import FailureClass
from schema.ids import (
    AccountId,
    ChargeId,
    CommandId,
    EventId,
    IncarnationId,
    MaterialId,
    PoolId,
    ReservationId,
    RunnerId,
    TaskId,
    TenantId,
    UserId,
    account_of,
    account_partition,
    task_id_of,
    user_partition,
)
from schema.objects import content_key
from schema.policy import Price
from schema.refusals import Refusal
from schema.replies import CommandRefused, DeadLetter
from schema.topics import Topic, pool_partition
from schema.words import CancelCause, Lane, LossCause, MediaKind, MoveReason, ScaleReason, Scene

NOON = datetime(2026, 3, 2, 12, tzinfo=UTC)
PRICE = Price(base_micros=1_000, card_second_micros=10, card_seconds_max=60)
Placed = tuple[Topic, int, str, Any]
"""Topic, partition, key, message."""


class History:
    """A seeded source of events; `seq` and time go on over all that it is asked for."""

    def __init__(self, seed: int, partitions: int = 2, users: int = 40) -> None:
        self.random = random.Random(seed)
        self.partitions = partitions
        self.name = f"s{seed}-{self.random.getrandbits(32):08x}"
        self.at = NOON
        self._seqs: dict[str, int] = {}
        self._events = 0
        self._tasks = 0
        self.users = [
            UserId(f"{self.random.getrandbits(96):020x}"[:20] + f"{number * 7919 % 10**6:06d}")
            for number in range(1, users + 1)
        ]

    def take(self, tasks: int) -> list[Placed]:
        """Whole lives of so many tasks, interleaved, with everything around them."""
        lives = [list(self.life()) for _ in range(tasks)]
        placed: list[Placed] = []
        while lives:
            life = self.random.choice(lives)
            placed.append(life.pop(0))
            if not life:
                lives.remove(life)
        return [self._number(one) for one in placed]

    def _number(self, placed: Placed) -> Placed:
        """Time and the next seq of its key, now that the order is known."""
        topic, partition, key, message = placed
        self.at += timedelta(milliseconds=self.random.randint(0, 40))
        changes: dict[str, Any] = {"at": self.at}
        if hasattr(message, "seq"):
            name = f"{topic}/{key}"
            self._seqs[name] = changes["seq"] = self._seqs.get(name, 0) + 1
            self._events += 1
            changes["event_id"] = EventId(f"{self.name}-{self._events}")
        return topic, partition, key, msgspec.structs.replace(message, **changes)

    # --- lives -----------------------------------------------------------------------------------

    def life(self) -> Iterator[Placed]:
        """One task: reserved, made, queued, tried, ended; sometimes refused instead."""
        user = self.random.choice(self.users)
        tenant = TenantId("acme" if self.random.random() < 0.5 else "")
        account = account_of(tenant, user)
        self._tasks += 1
        number = self._tasks
        task = task_id_of(tenant, user, f"{self.name}-{number}")
        if self.random.random() < 0.1:
            yield self._refusal(user, task)
            return
        if self.random.random() < 0.2:
            yield from self._material(user, number)
        reservation = ReservationId(f"submit-{self.name}-{number}")
        yield self._reserved(account, user, task, reservation)
        yield self._task(self._created(account, tenant, user, task, reservation))
        yield self._task(e.TaskQueued(**self._of(task, user), pool_id=PoolId("A"), lane=Lane.P1))
        yield from self._work(account, user, task, reservation)

    def _work(
        self, account: AccountId, user: UserId, task: TaskId, reservation: ReservationId
    ) -> Iterator[Placed]:
        token, ran = 0, False
        while True:
            yield self._pool(
                e.TaskEnqueued(
                    **self._in_pool(),
                    task_id=task,
                    token=token,
                    lane=Lane.P1,
                    account_id=account,
                    scene=Scene.REHEARSAL,
                )
            )
            if self.random.random() < 0.15:
                yield from self._move(account, user, task, token)
            fate = self.random.random()
            if fate < 0.15:
                yield self._pool(e.TaskDequeued(**self._in_pool(), task_id=task, token=token))
                if fate < 0.1:
                    yield self._task(self._canceled(task, user, token, 0, card_ms=0))
                else:
                    yield self._task(e.TaskExpired(**self._of(task, user), token=token))
                yield self._released(account, user, task, reservation, returned=not ran)
                return
            token, ran = token + 1, True
            yield from self._attempt(task, user, token)
            fate = self.random.random()
            if fate < 0.2 and token < 3:
                preempted = e.SlotPreempted(
                    **self._in_pool(),
                    task_id=task,
                    token=token,
                    runner_id=RunnerId("runner-1"),
                    for_task_id=TaskId("t"),
                )
                yield self._pool(preempted)
                yield self._task(self._requeued(task, user, token))
                yield self._pool(self._slot(e.SlotLost, task, token, cause=LossCause.DRAINED))
                continue
            yield from self._end(account, user, task, reservation, token, fate)
            return

    def _move(self, account: AccountId, user: UserId, task: TaskId, token: int) -> Iterator[Placed]:
        """Its pool asks it to wait in the lower lane, with less to make; it does."""
        yield self._pool(
            e.TaskMoveAsked(
                **self._in_pool(),
                task_id=task,
                token=token,
                to_pool_id=PoolId("A"),
                to_lane=Lane.P2,
                to_lower_spec=True,
                reason=MoveReason.POOL_FULL,
            )
        )
        yield self._task(
            e.TaskMoved(
                **self._of(task, user),
                token=token,
                pool_id=PoolId("A"),
                lane=Lane.P2,
                lower_spec=True,
                reason=MoveReason.POOL_FULL,
            )
        )
        yield self._pool(e.TaskDequeued(**self._in_pool(), task_id=task, token=token))
        yield self._pool(
            e.TaskEnqueued(
                **self._in_pool(),
                task_id=task,
                token=token,
                lane=Lane.P2,
                account_id=account,
                scene=Scene.REHEARSAL,
                weight=2,
                moved=True,
            )
        )

    def _end(
        self,
        account: AccountId,
        user: UserId,
        task: TaskId,
        reservation: ReservationId,
        token: int,
        fate: float,
    ) -> Iterator[Placed]:
        over = self._pool(e.AttemptOver(**self._in_pool(), task_id=task, token=token))
        freed = self._pool(self._slot(e.SlotFreed, task, token))
        if fate < 0.7:
            yield self._task(e.TaskStoring(**self._of(task, user), token=token, card_ms=900))
            yield freed
            yield self._task(self._succeeded(task, user, token))
            yield self._committed(account, user, task, reservation)
            yield over
            if self.random.random() < 0.2:
                yield self._refunded(account, user, reservation)
        elif fate < 0.85:
            yield self._task(self._failed(task, user, token))
            yield self._released(account, user, task, reservation, returned=False)
            yield over
            yield freed
            yield self._letter(task)
        else:
            yield self._task(self._canceled(task, user, token, 400))
            yield self._committed(account, user, task, reservation, amount=400)
            yield over
            yield freed

    def _attempt(self, task: TaskId, user: UserId, token: int) -> Iterator[Placed]:
        runner: dict[str, Any] = {
            "runner_id": RunnerId("runner-1"),
            "incarnation_id": IncarnationId("runner-1.1"),
        }
        yield self._pool(e.SlotProposed(**self._in_pool(), task_id=task, token=token, **runner))
        yield self._task(
            e.TaskStarted(
                **self._of(task, user),
                token=token,
                pool_id=PoolId("A"),
                lease_seconds=120,
                **runner,
            )
        )
        yield self._pool(e.SlotGranted(**self._in_pool(), task_id=task, token=token))
        yield self._pool(e.AttemptAccepted(**self._in_pool(), task_id=task, token=token))
        for percent in (10, 30, 60, 90):
            yield self._task(e.TaskProgressed(**self._of(task, user), token=token, percent=percent))

    # --- single events ---------------------------------------------------------------------------

    def start(self) -> list[Placed]:
        """A runner registers, beats; a lane is paused and resumed; a breaker opens and closes."""
        runner: dict[str, Any] = {
            "runner_id": RunnerId("runner-1"),
            "incarnation_id": IncarnationId("runner-1.1"),
        }
        held = (HeldAttempt(task_id=TaskId("t"), token=1),)
        beat = e.LeaseExtended(beat=1, missing=held, **runner)
        why: dict[str, Any] = {"lane": Lane.P2, "who": "ops", "why": "drill"}
        return [
            self._number(self._pool(one))
            for one in (
                e.RunnerRegistered(**self._in_pool(), slots=4, **runner),
                e.LeasesExtended(**self._in_pool(), runners=(beat,)),
                e.LanePaused(**self._in_pool(), **why),
                e.LaneResumed(**self._in_pool(), stood_ms=1_000, **why),
                e.BreakerOpened(**self._in_pool(), scene=Scene.GENAI, failed=9, counted=300),
                e.BreakerHalfOpened(**self._in_pool(), scene=Scene.GENAI),
                e.BreakerClosed(**self._in_pool(), scene=Scene.GENAI, who="ops", why="mended"),
                e.BreakerOpened(**self._in_pool(), scene=Scene.SMART, failed=3, counted=200),
                self._scaled(3),
                self._scaled(5),
            )
        ]

    def _scaled(self, cards: int) -> e.PoolScaled:
        return e.PoolScaled(
            **self._in_pool(),
            cards=cards,
            cards_before=cards - 1,
            reason=ScaleReason.DEMAND,
            demand_card_seconds=400,
            wait_p95_ms=31_000,
            oldest_wait_ms=40_000,
        )

    def _event(self) -> dict[str, Any]:
        return {"event_id": EventId(""), "seq": 0, "at": self.at}

    def _of(self, task: TaskId, user: UserId) -> dict[str, Any]:
        return {**self._event(), "task_id": task, "user_id": user}

    def _in_pool(self) -> dict[str, Any]:
        return {**self._event(), "pool_id": PoolId("A")}

    def _task(self, event: e.OfTask) -> Placed:
        partition = user_partition(event.task_id, self.partitions)
        return Topic.TASK_EVENTS, partition, event.task_id, event

    def _pool(self, event: e.OfPool) -> Placed:
        return Topic.POOL_EVENTS, pool_partition("A", self.partitions), "A", event

    def _quota(self, event: e.OfAccount) -> Placed:
        partition = account_partition(event.account_id, self.partitions)
        return Topic.QUOTA_EVENTS, partition, event.account_id, event

    def _slot(self, kind: type[Any], task: TaskId, token: int, **more: Any) -> Any:  # noqa: ANN401 - one of several
        runner = RunnerId("runner-1")
        return kind(**self._in_pool(), task_id=task, token=token, runner_id=runner, **more)

    def _created(
        self,
        account: AccountId,
        tenant: TenantId,
        user: UserId,
        task: TaskId,
        reservation: ReservationId,
    ) -> e.TaskCreated:
        return e.TaskCreated(
            **self._of(task, user),
            origin=Origin(
                user_id=user,
                tenant_id=tenant,
                account_id=account,
                scene=Scene.REHEARSAL,
                tier="member",
                fingerprint=f"f-{task}",
                parameters={"seconds": self.random.randint(1, 9), "note": 'é "quoted"'},
                private=self.random.randbytes(12),
            ),
            pool_id=PoolId("A"),
            lane=Lane.P1,
            price=PRICE,
            policy_version=1,
            reservation_id=reservation,
            reserved_micros=1_600,
            run_limit_seconds=600,
            created_wait_seconds=900,
        )

    def _requeued(self, task: TaskId, user: UserId, token: int) -> e.TaskRequeued:
        lost = self.random.random() < 0.5
        return e.TaskRequeued(
            **self._of(task, user),
            token=token,
            loss=LossCause.LEASE_EXPIRED if lost else None,
            failure=None if lost else FailureClass.NETWORK,
            message="" if lost else "reset by peer",
            counted=not lost,
            delay_ms=100,
            card_ms=self.random.randint(100, 500),
            card_measured=not lost,
            saved_ms=self.random.randint(0, 100),
            lower_spec=self.random.random() < 0.2,
            started_anew=lost and self.random.random() < 0.2,
        )

    def _succeeded(self, task: TaskId, user: UserId, token: int) -> e.TaskSucceeded:
        film = ResultFile(
            name="film.mp4",
            object_key=f"results/{task}/{token}/film.mp4",
            content_type="video/mp4",
            size=10**6,
            sha256="0" * 64,
        )
        return e.TaskSucceeded(
            **self._of(task, user),
            token=token,
            files=(film,),
            facts={
                "keep": [[0, 1.5]],
                "started_anew": "another card" if self.random.random() < 0.2 else None,
            },
            card_ms=1_200,
            charge_micros=1_012,
        )

    def _failed(self, task: TaskId, user: UserId, token: int) -> e.TaskFailed:
        return e.TaskFailed(
            **self._of(task, user),
            token=token,
            failure=FailureClass.RETRIES_SPENT,
            last_failure=FailureClass.HUNG,
            message="no sign of life",
            card_ms=70,
        )

    def _canceled(
        self, task: TaskId, user: UserId, token: int, charge: int, card_ms: int = 340
    ) -> e.TaskCanceled:
        return e.TaskCanceled(
            **self._of(task, user),
            cause=CancelCause.USER,
            token=token,
            charge_micros=charge,
            card_ms=card_ms,
            card_measured=card_ms == 0,
        )

    def _reserved(
        self, account: AccountId, user: UserId, task: TaskId, reservation: ReservationId
    ) -> Placed:
        day = NOON.replace(hour=0)
        return self._quota(
            e.QuotaReserved(
                **self._event(),
                account_id=account,
                reservation_id=reservation,
                task_id=task,
                user_id=user,
                scene=Scene.REHEARSAL,
                fingerprint=f"f-{task}",
                amount_micros=1_600,
                month=e.Window(start=day.replace(day=1), end=day.replace(month=4, day=1)),
                day=e.Window(start=day, end=day + timedelta(days=1)),
                minute=e.Window(start=NOON, end=NOON + timedelta(minutes=1)),
                limit_micros=10**9,
                contract_micros=10**10 if account.startswith("t-") else None,
                policy_version=1,
            )
        )

    def _resolution(self, account: AccountId, user: UserId) -> dict[str, Any]:
        return {
            **self._event(),
            "account_id": account,
            "user_id": user,
            "scene": Scene.REHEARSAL,
            "month_start": NOON.replace(day=1, hour=0),
        }

    def _committed(
        self,
        account: AccountId,
        user: UserId,
        task: TaskId,
        reservation: ReservationId,
        amount: int = 1_012,
    ) -> Placed:
        return self._quota(
            e.QuotaCommitted(
                **self._resolution(account, user),
                reservation_id=reservation,
                charge_id=ChargeId(reservation),
                task_id=task,
                amount_micros=amount,
                released_micros=1_600 - amount,
            )
        )

    def _released(
        self,
        account: AccountId,
        user: UserId,
        task: TaskId,
        reservation: ReservationId,
        *,
        returned: bool,
    ) -> Placed:
        return self._quota(
            e.QuotaReleased(
                **self._resolution(account, user),
                reservation_id=reservation,
                task_id=task,
                amount_micros=1_600,
                day_returned=returned,
            )
        )

    def _refunded(self, account: AccountId, user: UserId, reservation: ReservationId) -> Placed:
        return self._quota(
            e.ChargeRefunded(
                **self._resolution(account, user),
                charge_id=ChargeId(reservation),
                amount_micros=12,
                reason="moderation",
                who="ops",
            )
        )

    def _material(self, user: UserId, number: int) -> Iterator[Placed]:
        """Declared, sent, looked at; known to be one of a few contents, or of no use."""
        material = MaterialId(f"m{number:025d}"[:26] + user[-6:])
        partition = user_partition(material, self.partitions)
        for event in self._upload(material, user):
            yield Topic.MATERIAL_EVENTS, partition, material, event

    def _upload(self, material: MaterialId, user: UserId) -> Iterator[e.OfMaterial]:
        dice = self.random
        of: dict[str, Any] = {**self._event(), "material_id": material, "user_id": user}
        tenant = TenantId(dice.choice(("", "acme")))
        sha256 = f"{dice.randrange(4):064d}"
        declared: dict[str, Any] = {
            "tenant_id": tenant,
            "content_type": "video/mp4",
            "size": 5,
            "sha256": sha256,
            "part_bytes": 5,
            "upload_id": f"upload-{dice.randrange(99)}",
        }
        registered = e.MaterialRegistered(**of, **declared, private=b"\x01p", seconds_max=60)
        yield registered
        if dice.random() < 0.5:
            yield e.UploadTouched(**of)
        if dice.random() < 0.2:
            yield e.MaterialAborted(**of)
            yield registered
        yield e.MaterialAttached(**of, task_id=TaskId("t"))
        yield e.MaterialAssembling(**of, **declared, number=1)
        tries = 1
        if dice.random() < 0.3:
            yield e.MaterialReopened(**of, number=1, detail="part 3\0")
            yield e.MaterialAssembling(**of, **declared, number=2)
            yield e.MaterialAssembling(**of, **declared, number=3, again=True)
            tries = 3
        if dice.random() < 0.3:
            yield e.MaterialRefused(**of, reason="truncated", detail="42 of 75")
            if dice.random() < 0.5:
                return
            yield registered
            yield e.MaterialAssembling(**of, **declared, number=tries + 1)
        yield e.MaterialReady(
            **of,
            size=5,
            sha256=sha256,
            content_key=content_key(tenant, user, sha256),
            facts=MediaFacts(kind=MediaKind.VIDEO, container="mp4", duration_ms=1_500),
        )
        yield e.MaterialAttached(**of, task_id=TaskId("t"))
        if dice.random() < 0.5:
            yield e.MaterialChilled(**of)
            if dice.random() < 0.5:
                yield e.MaterialAttached(**of, task_id=TaskId("t2"))

    def _refusal(self, user: UserId, task: TaskId) -> Placed:
        refused = CommandRefused(
            command_id=CommandId(f"submit-{task}"),
            command="task.submit.v1",
            key=task,
            user_id=user,
            at=self.at,
            reason=Refusal.QUOTA_EXHAUSTED,
            detail="12 left",
            resets_at=NOON,
        )
        return Topic.REFUSALS, user_partition(task, self.partitions), task, refused

    def _letter(self, task: TaskId) -> Placed:
        letter = DeadLetter(
            letter_id=f"{self.name}-{task}",
            at=self.at,
            topic="task-commands",
            partition=0,
            offset=1,
            cause="retries_spent",
            quarantined_key="task:x" if self.random.random() < 0.3 else "",
            task_id=task,
            failure=FailureClass.HUNG,
        )
        return Topic.DEAD_LETTERS, user_partition(task, self.partitions), task, letter


def value_of(placed: Placed) -> bytes:
    """The bytes of the message."""
    return encode(placed[3])
