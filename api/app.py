"""The app, composed by hand: parts, routes, handlers of what is raised, the OpenAPI document."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.openapi.utils import get_openapi
from starlette.exceptions import HTTPException

from api import (
    contracts,
    health,
    letters,
    materials,
    operators,
    progress,
    quotas,
    results,
    store,
    tasks,
)
from api.edge import Edge
from api.parts import Parts, build_parts
from api.problems import Door, Problem, at_the_door
from api.submissions import PATH
from schema.settings import Settings

TITLE = "Cutlog"
VERSION = "1"
_DESCRIPTION = """\
The backend of an AI editing platform: submit a task, watch it become a film.

Every refusal is `application/problem+json` with a stable `code` and a `help` that says what to do.
Amounts are integers in micros, times are UTC instants."""


def build_app(settings: Settings) -> Edge:
    """The whole api. Connects to nothing until it is started; raises SettingsError."""
    parts = build_parts(settings)
    rest = build_rest(parts)
    return Edge(
        rest,
        parts.submissions,
        parts.measures,
        body_bytes_max=settings.api.body_bytes_max,
        begin_stop=parts.begin_stop,
    )


def build_rest(parts: Parts) -> FastAPI:
    """Everything but the submission."""

    @asynccontextmanager
    async def lifespan(_app: FastAPI) -> AsyncGenerator[None]:
        await parts.start()
        try:
            yield
        finally:
            await parts.stop()

    app = FastAPI(
        title=TITLE,
        version=VERSION,
        lifespan=lifespan,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
    )
    app.state.parts = parts
    for module in (
        tasks,
        results,
        progress,
        materials,
        store,
        quotas,
        operators,
        letters,
        health,
    ):
        app.include_router(module.router)
    app.add_exception_handler(Problem, _problem)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(HTTPException, _http)
    app.add_exception_handler(Exception, _unexpected)
    app.openapi = lambda: document(app)  # type: ignore[method-assign]
    return app


async def _problem(_request: Request, problem: Exception) -> Response:
    if not isinstance(problem, Problem):
        raise problem
    return Response(problem.body(), problem.status, problem.all_headers())


async def _invalid(request: Request, error: Exception) -> Response:
    """What FastAPI found wrong with a request, without repeating what was sent."""
    if not isinstance(error, RequestValidationError):
        raise error
    errors = [
        {"field": ".".join(str(part) for part in item["loc"]), "message": str(item["msg"])}
        for item in error.errors()
    ]
    in_body = all(item["loc"][0] == "body" for item in error.errors())
    door = Door.BODY_INVALID if in_body else Door.PARAMETER_INVALID
    return await _problem(request, at_the_door(door, members={"errors": errors}))


async def _http(request: Request, error: Exception) -> Response:
    """What the router refuses."""
    if not isinstance(error, HTTPException):
        raise error
    match error.status_code:
        case 404:
            problem = at_the_door(Door.NOT_FOUND)
        case 405:
            problem = at_the_door(Door.METHOD_NOT_ALLOWED, headers=dict(error.headers or {}))
        case _:
            problem = at_the_door(Door.BAD_REQUEST, str(error.detail))
    return await _problem(request, problem)


async def _unexpected(request: Request, _error: Exception) -> Response:
    """What nobody expected. It goes on to the edge, which logs it."""
    return await _problem(request, at_the_door(Door.INTERNAL))


# --- the document -------------------------------------------------------------------------------


def document(app: FastAPI) -> dict[str, Any]:
    """OpenAPI of everything, the submission included."""
    described = FastAPI()
    described.post(
        PATH,
        tags=["tasks"],
        status_code=202,
        response_model=contracts.SubmissionView,
        responses=_SUBMISSION_PROBLEMS,
        openapi_extra={
            "parameters": [_KEY_PARAMETER],
            "security": [{"HTTPBearer": []}],
        },
    )(submit_task)
    found = get_openapi(
        title=TITLE,
        version=VERSION,
        description=_DESCRIPTION,
        routes=[*described.routes[-1:], *app.routes],
    )
    schemas = found["components"]["schemas"]
    problem = contracts.ProblemView.model_json_schema(ref_template="#/components/schemas/{model}")
    schemas["ProblemView"] = problem
    # FastAPI documents its own 422; ours is a problem like any other.
    for path in found["paths"].values():
        for operation in path.values():
            operation["responses"].pop("422", None)
    for name in ("HTTPValidationError", "ValidationError"):
        schemas.pop(name, None)
    return found


async def submit_task(body: contracts.Submission) -> None:
    """Ask for a task. The same `Idempotency-Key` again is the same task, for ever.

    `status` `pending` says that it stands in the log and its decision is on the way; GET tells it.
    """


_KEY_PARAMETER = {
    "name": "Idempotency-Key",
    "in": "header",
    "required": True,
    "schema": {"type": "string", "minLength": 1, "maxLength": 128},
}
_PROBLEM_CONTENT = {
    "application/problem+json": {"schema": {"$ref": "#/components/schemas/ProblemView"}}
}
_SUBMISSION_PROBLEMS: dict[int | str, dict[str, Any]] = {
    status: {"description": text, "content": _PROBLEM_CONTENT}
    for status, text in {
        400: "Not strict JSON, or no Idempotency-Key.",
        401: "No valid token.",
        403: "The scene is not offered to the tier.",
        409: "The key was used for another body.",
        413: "Too large.",
        415: "Not JSON.",
        429: "Over a limit: `remaining`, `resets_at`, Retry-After; or the lane is paused or full.",
        503: "A part is away: send the same key again after Retry-After.",
    }.items()
}
