"""The door for the object store, which sends its notifications here when an operator lets it.

It has a secret of its own and nothing to do with users' tokens. What is taken is answered with 200
whatever came of it, since a store tells anything else again and again.
"""

import base64
import binascii
import hmac
import logging
from typing import Annotated, Final

from fastapi import APIRouter, Depends, Request, Response, Security
from fastapi.security import HTTPBearer

from api import contracts, notifications, strict_json
from api.notifications import Ignored, SubscriptionError
from api.problems import Door, Problem, at_the_door
from api.wiring import PartsHere, answer, problems
from schema.wires.telemetry import facts

_CHALLENGE: Final = {"www-authenticate": 'Basic realm="cutlog store notifications"'}
"""SNS sends what it knows only when it is asked; the others send theirs at once."""
_log = logging.getLogger(__name__)
_secret = HTTPBearer(
    auto_error=False,
    scheme_name="StoreSecret",
    description="`CUTLOG_API_STORE_NOTIFICATIONS_SECRET`; or as the password of HTTP Basic.",
)
router = APIRouter(tags=["store"], responses=problems(400, 401, 404, 409, 413, 415, 503))


async def _admitted(
    request: Request, parts: PartsHere, _shown: Annotated[object, Security(_secret)]
) -> None:
    """Raises Problem: 404 where the door is closed, 401 for who does not know the secret."""
    secret = parts.settings.api.store_notifications_secret
    if not secret:
        raise at_the_door(Door.NOT_FOUND)
    header = request.headers.get("authorization")
    if not header:
        raise at_the_door(Door.TOKEN_MISSING, headers=_CHALLENGE)
    if not hmac.compare_digest(_shown_secret(header.encode("latin-1")), secret.encode()):
        raise at_the_door(
            Door.TOKEN_INVALID, "it is not the secret of this door", headers=_CHALLENGE
        )


def _shown_secret(header: bytes) -> bytes:
    """A bearer token, or the password of whatever user; empty: neither."""
    scheme, _, value = header.partition(b" ")
    match scheme.lower():
        case b"bearer":
            return value.strip()
        case b"basic":
            try:
                return base64.b64decode(value.strip(), validate=True).partition(b":")[2]
            except binascii.Error:
                return b""
        case _:
            return b""


@router.post(
    notifications.PATH,
    response_model=contracts.HintsView,
    dependencies=[Depends(_admitted)],
    openapi_extra={
        "requestBody": {
            "required": True,
            "content": {"application/json": {"schema": {"type": "object"}}},
        }
    },
)
async def notify(request: Request, parts: PartsHere) -> Response:
    """For the object store alone: what happened to objects. Each record makes somebody look.

    Taken are the `Records` of S3 (AWS, MinIO, Ceph), messages of SNS, SQS and EventBridge, and
    changes of a SeaweedFS filer. Told twice is told once; on 503 tell it again.
    """
    body = await request.body()
    try:
        told = notifications.read(notifications.decode(body), parts.objects.bucket)
    except strict_json.NotStrictJsonError as error:
        raise at_the_door(Door.BODY_UNREADABLE, str(error)) from None
    except SubscriptionError as error:
        raise _unconfirmed(error) from None
    found = await parts.hints.take(told)
    ignored = {one.value: count for one, count in found.items() if isinstance(one, Ignored)}
    return answer({"taken": found.total() - sum(ignored.values()), "ignored": ignored})


def _unconfirmed(asked: SubscriptionError) -> Problem:
    """Whoever may send here must not make us call an address of his: a person confirms it."""
    _log.warning(
        "a subscription waits to be confirmed by hand",
        extra=facts(topic_arn=asked.topic_arn, token=asked.token),
    )
    return at_the_door(Door.SUBSCRIPTION_BY_HAND)
