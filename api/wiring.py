"""What every route is wired with: parts, claims, answers as JSON, documented problems."""

from collections.abc import Mapping
from typing import Annotated, Any, TypeAlias

import orjson
from fastapi import Body, Depends, Request, Response, Security
from fastapi.security import HTTPBearer

from api import contracts
from api.auth import Claims, need_operator
from api.parts import Parts
from api.problems import MEDIA_TYPE

_bearer = HTTPBearer(auto_error=False, bearerFormat="JWT", description="A token of the issuer.")


async def parts_of(request: Request) -> Parts:
    """The parts of the app that serves this request."""
    parts: Parts = request.app.state.parts
    return parts


PartsHere: TypeAlias = Annotated[Parts, Depends(parts_of)]


async def _admitted(
    request: Request, parts: PartsHere, _shown: Annotated[object, Security(_bearer)]
) -> Claims:
    header = request.headers.get("authorization")
    return await parts.gatekeeper.admit(header.encode("latin-1") if header else None)


Caller: TypeAlias = Annotated[Claims, Depends(_admitted)]
"""The claims of the caller's token."""


async def _operating(claims: Caller) -> Claims:
    need_operator(claims)
    return claims


Operator: TypeAlias = Annotated[Claims, Depends(_operating)]
"""The same, of a token with the scope `operate`."""

NoBody: TypeAlias = Annotated[contracts.Nothing | None, Body()]
"""A route that takes no body, or an empty object."""


def answer(
    document: Mapping[str, Any], status: int = 200, headers: Mapping[str, str] | None = None
) -> Response:
    """A JSON answer that nobody keeps."""
    return Response(
        orjson.dumps(document, option=orjson.OPT_UTC_Z),
        status,
        {"cache-control": "no-store", **(headers or {})},
        "application/json",
    )


def problems(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """The problem answers of a route, for the document."""
    content = {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/ProblemView"}}}
    return {status: {"description": "A problem.", "content": content} for status in statuses}
