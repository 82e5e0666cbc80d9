"""Alive, ready, metrics; and `GET /v1/pools`, which is the health of the cards."""

from fastapi import APIRouter, Response
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from api import contracts
from api.parts import Parts
from api.wiring import Caller, PartsHere, answer, problems

router = APIRouter()


@router.get("/healthz", tags=["health"])
async def healthz() -> Response:
    """The process answers."""
    return answer({"status": "alive"})


@router.get("/readyz", tags=["health"])
async def readyz(parts: PartsHere) -> Response:
    """Whether a submission would be taken now; if not, why (503)."""
    problem = parts.problem()
    if problem is not None:
        return answer({"status": "not ready", "reason": problem}, 503)
    return answer({"status": "ready"})


@router.get("/metrics", tags=["health"])
async def metrics(parts: PartsHere) -> Response:
    """For Prometheus."""
    _measure(parts)
    return Response(generate_latest(parts.measures.registry), media_type=CONTENT_TYPE_LATEST)


@router.get(
    "/v1/pools",
    tags=["pools"],
    response_model=contracts.PoolsView,
    responses=problems(401, 503),
)
async def get_pools(parts: PartsHere, claims: Caller) -> Response:
    """How busy the pools are, how long a new task would wait, what of late was as it should be."""
    policy = parts.standing.policy()
    return answer({"pools": parts.objectives.views(policy, operates=claims.operates)})


def _measure(parts: Parts) -> None:
    """What is cheaper to look at than to keep."""
    for place, (count, age) in parts.answers.unanswered().items():
        labels = (place.topic, str(place.partition))
        parts.measures.unanswered.labels(*labels).set(count)
        parts.measures.unanswered_seconds.labels(*labels).set(age)
