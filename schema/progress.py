"""Progress between milestones, and how two reports of one task become one."""

from schema.ids import TaskId, UserId
from schema.message import Instant, Message, Percent, Token


class ProgressReported(Message, tag="progress.reported.v1"):
    """Short-lived (10 s) and never the truth."""

    task_id: TaskId
    user_id: UserId
    token: Token
    percent: Percent
    phase: str = ""
    eta_seconds: float | None = None
    ended: bool = False
    at: Instant


def _rank(report: ProgressReported) -> tuple[bool, int, float, Instant, str, float]:
    eta = -1.0 if report.eta_seconds is None else report.eta_seconds
    return (report.ended, report.token, report.percent, report.at, report.phase, eta)


def merge(left: ProgressReported, right: ProgressReported) -> ProgressReported:
    """The one of two reports of a task that stands: an end, else the later (attempt, percent).

    Associative, commutative and idempotent: a total order decides, and equals are the same.
    """
    return left if _rank(left) >= _rank(right) else right
