"""What a test says to a task: every command with sensible fields, and a world with one policy."""

from functools import partial

from commands import tasks
from commands.decider import TimerDue
from schema import commands as c
from schema.failures import FailureClass
from schema.ids import (
    AccountId,
    CommandId,
    IncarnationId,
    MaterialId,
    PoolId,
    ReservationId,
    RunnerId,
    TaskId,
    TenantId,
    UserId,
)
from schema.message import Parameters
from schema.policy import Policy, Price, RetryPolicy
from schema.words import CancelCause, Lane, LossCause, MoveReason, Scene
from tests.support.spec import Story

TASK = TaskId("0123456789abcdefghjkmnpqrs000007")
USER = UserId("alicealicealicealice000007")
TENANT = TenantId("acme")
ACCOUNT = AccountId("t-acme")
POOL = PoolId("A")
SPARE = PoolId("B")
CLIP = MaterialId("clipclipclipclipclipclipcl000007")
LOGO = MaterialId("logologologologologologolo000007")
PRICE = Price(
    base_micros=1_000_000,
    card_second_micros=100_000,
    card_seconds_max=60,
    cancel_share_base=0.5,
)
RESERVED = 7_000_000
RETRIES = RetryPolicy(jitter=0.0)
"""10 s, 30 s; 120 s after a loss; 5 losses; without jitter."""
POLICY = Policy(version=1, scenes={}, tiers={}, pools={}, retries=RETRIES)
RUN_LIMIT = 600
BACKSTOP = RUN_LIMIT + RETRIES.backstop_seconds


def world(policy: Policy = POLICY) -> Story:
    return Story(
        handle=partial(tasks.handle, policy=policy),
        on_due=partial(tasks.on_due, policy=policy),
        due_ms=tasks.due_ms,
        row=tasks.ROW,
    )


def create(  # noqa: PLR0913 - what a story changes
    *materials: MaterialId,
    reservation: str = "submit-1",
    task: TaskId = TASK,
    wait: int = 900,
    weight: int = 0,
    deadline: int | None = None,
    lower: bool = False,
    parameters: Parameters | None = None,
    limits: c.InputLimits | None = None,
) -> c.CreateTask:
    return c.CreateTask(
        command_id=CommandId(f"create-{reservation}"),
        task_id=task,
        origin=c.Origin(
            user_id=USER,
            tenant_id=TENANT,
            account_id=ACCOUNT,
            scene=Scene.AUTOCUT,
            tier="member",
            fingerprint="f",
            parameters={"target_seconds": 12} if parameters is None else parameters,
            material_ids=materials,
        ),
        pool_id=POOL,
        lane=Lane.P0,
        price=PRICE,
        policy_version=1,
        reservation_id=ReservationId(reservation),
        reserved_micros=RESERVED,
        run_limit_seconds=RUN_LIMIT,
        created_wait_seconds=wait,
        weight=weight,
        deadline_seconds=deadline,
        lower_spec=lower,
        input_limits=limits,
    )


def requeue(
    reservation: str = "retry-1", *, user: UserId = USER, reply_to: int | None = 0
) -> c.RequeueTask:
    return c.RequeueTask(
        command_id=CommandId(f"requeue-{reservation}"),
        task_id=TASK,
        user_id=user,
        tenant_id=TENANT,
        account_id=ACCOUNT,
        price=PRICE,
        policy_version=2,
        reservation_id=ReservationId(reservation),
        reserved_micros=RESERVED,
        reply_to=reply_to,
    )


def confirm(
    material: MaterialId = CLIP,
    *,
    key: str = "",
    seconds: float = 0,
    pixels: int = 0,
    size: int = 0,
) -> c.ConfirmMaterial:
    return c.ConfirmMaterial(
        command_id=CommandId(f"confirm-{material}"),
        task_id=TASK,
        material_id=material,
        content_key=key,
        seconds_ms=round(seconds * 1000),
        pixels=pixels,
        size=size,
    )


def extend(material: MaterialId = CLIP, number: int = 1) -> c.ExtendWait:
    return c.ExtendWait(
        command_id=CommandId(f"extend-{material}-{number}"), task_id=TASK, material_id=material
    )


def reject(material: MaterialId = CLIP) -> c.RejectMaterial:
    return c.RejectMaterial(
        command_id=CommandId(f"reject-{material}"),
        task_id=TASK,
        material_id=material,
        reason="material_mismatch",
    )


def start(token: int = 1, runner: str = "gpu-1", incarnation: str = "i1") -> c.StartAttempt:
    return c.StartAttempt(
        command_id=CommandId(f"start-{token}-{runner}-{incarnation}"),
        task_id=TASK,
        token=token,
        pool_id=POOL,
        runner_id=RunnerId(runner),
        incarnation_id=IncarnationId(incarnation),
        lease_seconds=120,
    )


def move(
    token: int = 0, pool: PoolId = SPARE, lane: Lane = Lane.P1, *, lower: bool = False
) -> c.MoveTask:
    return c.MoveTask(
        command_id=CommandId(f"move-{token}-{pool}-{lane}-{lower}"),
        task_id=TASK,
        token=token,
        pool_id=pool,
        lane=lane,
        lower_spec=lower,
        reason=MoveReason.POOL_FULL,
    )


def milestone(percent: int, token: int = 1) -> c.ReportMilestone:
    return c.ReportMilestone(
        command_id=CommandId(f"milestone-{token}-{percent}"),
        task_id=TASK,
        token=token,
        percent=percent,
    )


def store(token: int = 1, card_ms: int = 20_000) -> c.StoreAttempt:
    return c.StoreAttempt(
        command_id=CommandId(f"store-{token}"), task_id=TASK, token=token, card_ms=card_ms
    )


def finish(token: int = 1, card_ms: int = 20_000) -> c.FinishAttempt:
    film = c.ResultFile(
        name="film.mp4",
        object_key=f"results/{TASK}/{token}/film.mp4",
        content_type="video/mp4",
        size=1_000,
        sha256="ab",
    )
    return c.FinishAttempt(
        command_id=CommandId(f"finish-{token}"),
        task_id=TASK,
        token=token,
        files=(film,),
        card_ms=card_ms,
    )


def fail(token: int = 1, failure: FailureClass = FailureClass.OUT_OF_MEMORY) -> c.FailAttempt:
    return c.FailAttempt(
        command_id=CommandId(f"fail-{token}-{failure}"),
        task_id=TASK,
        token=token,
        failure=failure,
        message="as told",
        card_ms=5_000,
    )


def lose(token: int = 1, cause: LossCause = LossCause.LEASE_EXPIRED) -> c.LoseAttempt:
    return c.LoseAttempt(
        command_id=CommandId(f"lose-{token}-{cause}"), task_id=TASK, token=token, cause=cause
    )


def give_back(
    token: int = 1,
    cause: LossCause = LossCause.PREEMPTED,
    checkpoint: str = "",
    saved_ms: int = 0,
) -> c.AttemptYielded:
    return c.AttemptYielded(
        command_id=CommandId(f"yield-{token}-{cause}"),
        task_id=TASK,
        token=token,
        cause=cause,
        checkpoint=checkpoint,
        card_ms=3_000,
        saved_ms=saved_ms,
    )


def cancel(
    *,
    user: UserId = USER,
    tenant: TenantId = TENANT,
    cause: CancelCause = CancelCause.USER,
    reply_to: int | None = 3,
) -> c.CancelTask:
    return c.CancelTask(
        command_id=CommandId(f"cancel-{user}"),
        task_id=TASK,
        user_id=user,
        tenant_id=tenant,
        cause=cause,
        reply_to=reply_to,
    )


def expire(token: int = 0) -> c.ExpireTask:
    return c.ExpireTask(command_id=CommandId(f"expire-{token}"), task_id=TASK, token=token)


def timer() -> TimerDue:
    return TimerDue(CommandId("tick-0"), TASK)
