"""Every refusal as problem+json (RFC 9457): what is wrong, its `code`, and what to do about it.

`code` is the refusal of the deciders where one refused, or one of `Door` where nothing was asked
of them. The status is a function of the code and of nothing else.
"""

import math
from collections.abc import Mapping
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, Final, assert_never

import orjson

from schema.policy import UserLimits
from schema.refusals import Refusal
from schema.replies import CommandRefused, Refused, Remaining

MEDIA_TYPE = "application/problem+json"
TYPE_PREFIX = "urn:cutlog:problem:"
_RETRY_SECONDS = 5


class Door(StrEnum):
    """Why a request ended here, before any decider was asked. Closed; never reused."""

    BAD_REQUEST = "bad_request"
    BODY_INVALID = "body_invalid"
    BODY_UNREADABLE = "body_unreadable"
    BODY_TOO_LARGE = "body_too_large"
    BODY_TIMEOUT = "body_timeout"
    BODY_NOT_JSON = "body_not_json"
    HEADERS_TOO_LARGE = "headers_too_large"
    PARAMETER_INVALID = "parameter_invalid"
    KEY_MISSING = "idempotency_key_missing"
    KEY_INVALID = "idempotency_key_invalid"
    TOKEN_MISSING = "token_missing"  # noqa: S105 - a code
    TOKEN_INVALID = "token_invalid"  # noqa: S105 - a code
    SCOPE_MISSING = "scope_missing"
    NOT_FOUND = "not_found"
    METHOD_NOT_ALLOWED = "method_not_allowed"
    CONSISTENCY_INVALID = "consistency_token_invalid"
    CURSOR_INVALID = "cursor_invalid"
    RESULT_NOT_READY = "result_not_ready"
    PUBLISHED_IN_VAIN = "published_in_vain"
    PARTS_MISSING = "parts_missing"
    PIECES_MISSING = "pieces_missing"
    PART_UNKNOWN = "part_unknown"
    UPLOAD_LOST = "upload_lost"
    UPLOAD_OVER = "upload_over"
    SUBSCRIPTION_BY_HAND = "subscription_by_hand"
    MATERIAL_TOO_LARGE = "material_too_large"
    MATERIAL_TOO_LONG = "material_too_long"
    LETTER_UNKNOWN = "letter_unknown"
    LANE_PAUSED = "lane_paused"
    LANE_FULL = "lane_full"
    DEADLINE_TOO_SOON = "deadline_too_soon"
    BACKLOG = "backlog"
    LOG_AWAY = "log_away"
    READ_MODEL_AWAY = "read_model_away"
    STORE_AWAY = "store_away"
    TOO_MANY_STREAMS = "too_many_streams"
    STOPPING = "stopping"
    INTERNAL = "internal"

    @property
    def status(self) -> int:
        """The HTTP status of this code."""
        return _DOOR[self][0]

    @property
    def headline(self) -> str:
        return _DOOR[self][1]

    @property
    def help(self) -> str:
        return _DOOR[self][2]


_DOOR: dict[Door, tuple[int, str, str]] = {
    Door.BAD_REQUEST: (400, "This is not a request that can be read", "Send well-formed HTTP/1.1."),
    Door.BODY_INVALID: (422, "The body does not fit", "Correct the fields named in `errors`."),
    Door.BODY_UNREADABLE: (
        400,
        "The body is not strict JSON",
        "Send one JSON document in UTF-8: no NaN or Infinity, no NUL, no key twice.",
    ),
    Door.BODY_TOO_LARGE: (413, "The body is too large", "Send less; files go to /v1/materials."),
    Door.BODY_TIMEOUT: (408, "The body did not arrive in time", "Send it again, in one go."),
    Door.BODY_NOT_JSON: (415, "The body is not JSON", "Set Content-Type: application/json."),
    Door.HEADERS_TOO_LARGE: (431, "The headers are too large", "Send fewer or shorter headers."),
    Door.PARAMETER_INVALID: (
        422,
        "A parameter of the address or a header does not fit",
        "Correct the parameters named in `errors`.",
    ),
    Door.KEY_MISSING: (
        400,
        "Idempotency-Key is missing",
        "Send a header Idempotency-Key with 1 to 128 printable characters, new for each new task.",
    ),
    Door.KEY_INVALID: (
        400,
        "Idempotency-Key is not a key",
        "Use 1 to 128 printable ASCII characters, without spaces at its ends.",
    ),
    Door.TOKEN_MISSING: (401, "A token is missing", "Send Authorization: Bearer <token>."),
    Door.TOKEN_INVALID: (401, "The token is not valid", "Get a new token and send it again."),
    Door.SCOPE_MISSING: (403, "The token may not do this", "Use a token with the scope `operate`."),
    Door.NOT_FOUND: (404, "There is nothing under this address", "See /openapi.json."),
    Door.METHOD_NOT_ALLOWED: (405, "This address does not know the method", "See /openapi.json."),
    Door.CONSISTENCY_INVALID: (
        400,
        "The consistency token is not one of ours, or is of another task",
        "Send the token of the answer that you want to read, or none.",
    ),
    Door.CURSOR_INVALID: (400, "The cursor is not one of ours", "Begin again without a cursor."),
    Door.RESULT_NOT_READY: (
        409,
        "There is no result",
        "Wait until the task is SUCCEEDED; one that ended otherwise has none.",
    ),
    Door.PUBLISHED_IN_VAIN: (
        409,
        "Making it in full size has come to nothing each time",
        "Read the task in `task_id` for the reason; then submit it anew.",
    ),
    Door.PARTS_MISSING: (
        409,
        "Not all parts are stored",
        "Send the parts in `missing` (GET .../parts has their addresses), then complete it again.",
    ),
    Door.PIECES_MISSING: (
        409,
        "Not all pieces of this part are stored",
        "Send those that GET .../pieces tells, then join it again.",
    ),
    Door.PART_UNKNOWN: (404, "The upload has no such part", "GET .../parts tells its parts."),
    Door.UPLOAD_LOST: (
        409,
        "The store knows this upload no more",
        "Announce the file again with POST /v1/materials, and send what that tells.",
    ),
    Door.UPLOAD_OVER: (
        409,
        "No part is taken any more",
        "GET the material: it tells what it waits for, or why it was refused.",
    ),
    Door.SUBSCRIPTION_BY_HAND: (
        409,
        "A subscription is confirmed by hand: no address that is sent here is ever called",
        "The api's log tells topic and token for `aws sns confirm-subscription`.",
    ),
    Door.MATERIAL_TOO_LARGE: (413, "The file is too large", "Send a smaller one."),
    Door.MATERIAL_TOO_LONG: (413, "The film is too long", "Send a shorter one."),
    Door.LETTER_UNKNOWN: (
        404,
        "There is no such open letter",
        "GET /v1/operator/dead-letters lists them; `of` is the id of a letter, a task or a trace.",
    ),
    Door.LANE_PAUSED: (429, "This lane is paused", "Come back after Retry-After."),
    Door.LANE_FULL: (429, "Too many tasks wait in this lane", "Come back after Retry-After."),
    Door.DEADLINE_TOO_SOON: (
        409,
        "It cannot be done by then",
        "Ask for a deadline beyond `estimated_done_seconds`, for none, or again when less waits.",
    ),
    Door.BACKLOG: (
        503,
        "Answers are late, so nothing more is taken for now",
        "Send it again after Retry-After, with the same Idempotency-Key.",
    ),
    Door.LOG_AWAY: (
        503,
        "The log did not confirm the request in time",
        "It may have been taken: send it again after Retry-After, with the same Idempotency-Key.",
    ),
    Door.READ_MODEL_AWAY: (503, "The read model is away", "Send it again after Retry-After."),
    Door.STORE_AWAY: (503, "The object store is away", "Send it again after Retry-After."),
    Door.TOO_MANY_STREAMS: (
        503,
        "No stream is free",
        "Use the long poll GET /v1/tasks/{id}/wait, or come back after Retry-After.",
    ),
    Door.STOPPING: (503, "This instance is stopping", "Send it again: another one answers."),
    Door.INTERNAL: (500, "Something broke here", "Send it again; operators see the cause."),
}


class Problem(Exception):  # noqa: N818 - the word of the RFC
    """A refusal on its way to the caller."""

    def __init__(  # noqa: PLR0913 - the members of a problem document
        self,
        code: str,
        *,
        status: int,
        title: str,
        help: str,  # noqa: A002 - the member's name on the wire
        detail: str = "",
        retry_after: float | None = None,
        members: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(f"{status} {code}: {detail or title}")
        self.code = code
        self.status = status
        self.title = title
        self.help = help
        self.detail = detail
        self.retry_after = retry_after
        self.members = dict(members or {})
        self.headers = dict(headers or {})

    def document(self) -> dict[str, Any]:
        """The body, as a JSON object."""
        document: dict[str, Any] = {
            "type": TYPE_PREFIX + self.code,
            "title": self.title,
            "status": self.status,
            "code": self.code,
            "help": self.help,
        }
        if self.detail:
            document["detail"] = self.detail
        if self.retry_after is not None:
            document["retry_after_seconds"] = _whole(self.retry_after)
        return document | self.members

    def body(self) -> bytes:
        return orjson.dumps(self.document())

    def all_headers(self) -> dict[str, str]:
        """Headers of the answer, content type included."""
        headers = {"content-type": MEDIA_TYPE, "cache-control": "no-store", **self.headers}
        if self.retry_after is not None:
            headers["retry-after"] = str(_whole(self.retry_after))
        if self.status == 401:  # noqa: PLR2004
            headers.setdefault("www-authenticate", 'Bearer realm="cutlog"')
        return headers


def _whole(seconds: float) -> int:
    """Whole seconds, at least one: a client that comes back at once helps nobody."""
    return max(1, math.ceil(seconds))


def at_the_door(
    door: Door,
    detail: str = "",
    *,
    retry_after: float | None = None,
    members: Mapping[str, Any] | None = None,
    headers: Mapping[str, str] | None = None,
) -> Problem:
    """A refusal of the api's own. One with status 503 always has a Retry-After."""
    if door.status == 503 and retry_after is None:  # noqa: PLR2004
        retry_after = _RETRY_SECONDS
    return Problem(
        door.value,
        status=door.status,
        title=door.headline,
        help=door.help,
        detail=detail,
        retry_after=retry_after,
        members=members,
        headers=headers,
    )


def status_of(refusal: Refusal) -> int:
    """The HTTP status of a refusal."""
    match refusal:
        case Refusal.INTERNAL | Refusal.POLICY_MISSING:
            return 503
        case (
            Refusal.NOT_YOURS
            | Refusal.TASK_UNKNOWN
            | Refusal.CONTRACT_UNKNOWN
            | Refusal.MATERIAL_UNKNOWN
            | Refusal.RESERVATION_UNKNOWN
            | Refusal.CHARGE_UNKNOWN
            | Refusal.POOL_UNKNOWN
            | Refusal.RUNNER_UNKNOWN
            | Refusal.ATTEMPT_UNKNOWN
        ):
            return 404
        case (
            Refusal.POLICY_OUTDATED
            | Refusal.IDEMPOTENCY_CONFLICT
            | Refusal.TASK_ENDED
            | Refusal.TASK_NOT_CREATED
            | Refusal.TASK_NOT_FAILED
            | Refusal.TASK_NOT_QUEUED
            | Refusal.TASK_NOT_RUNNING
            | Refusal.TOKEN_STALE
            | Refusal.TOKEN_NOT_NEXT
            | Refusal.TASK_NOT_MOVABLE
            | Refusal.MATERIAL_ABORTED
            | Refusal.MATERIAL_NOT_ASSEMBLING
            | Refusal.RESERVATION_RESOLVED
            | Refusal.CHARGE_REFUNDED
            | Refusal.INCARNATION_STALE
        ):
            return 409
        case Refusal.RESULT_DELETED | Refusal.RESULT_WITHHELD:
            return 410
        case Refusal.SCENE_NOT_OFFERED | Refusal.TIER_UNKNOWN:
            return 403
        case Refusal.MATERIAL_REFUSED | Refusal.MATERIAL_MISMATCH | Refusal.POLICY_INVALID:
            return 422
        case (
            Refusal.RATE_EXCEEDED
            | Refusal.DAY_EXHAUSTED
            | Refusal.QUOTA_EXHAUSTED
            | Refusal.CONTRACT_EXHAUSTED
        ):
            return 429
        case _:
            assert_never(refusal)


_AGAIN: Final = "Send it again after Retry-After, with the same Idempotency-Key."
_STATE: Final = "Read the task: it does not stand where this request needs it."
_WORDS: Final[dict[Refusal, tuple[str, str]]] = {
    Refusal.INTERNAL: ("The request could not be worked on and was set aside", _AGAIN),
    Refusal.POLICY_MISSING: (
        "No policy is published yet",
        "An operator publishes one; then send it again.",
    ),
    Refusal.POLICY_INVALID: ("The document is not a policy", "Correct what `detail` names."),
    Refusal.POLICY_OUTDATED: ("A newer policy stands", "Publish with a higher version."),
    Refusal.IDEMPOTENCY_CONFLICT: (
        "This was asked for before, with another content",
        "Send the first content again, or a new Idempotency-Key (a policy: a new version).",
    ),
    Refusal.NOT_YOURS: ("There is no such task", "Check the id, and whose token is sent."),
    Refusal.TASK_UNKNOWN: ("There is no such task", "Check the id, and whose token is sent."),
    Refusal.TASK_ENDED: (
        "The task has ended",
        "Nothing is left to do; submit a new one if needed.",
    ),
    Refusal.TASK_NOT_FAILED: ("Only a FAILED task can be retried", _STATE),
    Refusal.TASK_NOT_CREATED: ("The task stands elsewhere", _STATE),
    Refusal.TASK_NOT_QUEUED: ("The task stands elsewhere", _STATE),
    Refusal.TASK_NOT_RUNNING: ("The task stands elsewhere", _STATE),
    Refusal.TASK_NOT_MOVABLE: ("The task has been moved before", "It waits where it is."),
    Refusal.TOKEN_STALE: ("Another attempt is current", "An older attempt has no say any more."),
    Refusal.TOKEN_NOT_NEXT: ("Another attempt is current", "An older attempt has no say any more."),
    Refusal.MATERIAL_NOT_ASSEMBLING: (
        "Another attempt is current",
        "An older attempt has no say any more.",
    ),
    Refusal.SCENE_NOT_OFFERED: (
        "This scene is not offered to your tier",
        "GET /v1/quotas lists what is.",
    ),
    Refusal.TIER_UNKNOWN: (
        "The tier of your token is not known",
        "Get a token with a tier of the policy.",
    ),
    Refusal.MATERIAL_UNKNOWN: ("There is no such material", "Register it with POST /v1/materials."),
    Refusal.MATERIAL_REFUSED: (
        "The material was refused",
        "Do what `advice` says, then announce it again.",
    ),
    Refusal.MATERIAL_ABORTED: (
        "The upload was left lying and is over",
        "Announce it with POST /v1/materials.",
    ),
    Refusal.MATERIAL_MISMATCH: (
        "What is stored is not what was declared",
        "Announce the file as it is now.",
    ),
    Refusal.RATE_EXCEEDED: ("Too many submissions in this minute", "Wait until `resets_at`."),
    Refusal.DAY_EXHAUSTED: ("The submissions of this day are used up", "Wait until `resets_at`."),
    Refusal.QUOTA_EXHAUSTED: (
        "Your credits of this month do not suffice",
        "Top up, or wait until `resets_at`.",
    ),
    Refusal.CONTRACT_UNKNOWN: (
        "The account has no contract",
        "Name a `user_id`, or the account of a tenant.",
    ),
    Refusal.CONTRACT_EXHAUSTED: (
        "The contract's credits of this month do not suffice",
        "Ask the admin of your tenant, or wait until `resets_at`.",
    ),
    Refusal.RESULT_DELETED: (
        "The result was deleted",
        "Results are kept for a while; make it anew.",
    ),
    Refusal.RESULT_WITHHELD: ("The result is withheld", "`detail` says why; ask support."),
    Refusal.RESERVATION_UNKNOWN: ("The reservation is not open", "Nothing is left to do."),
    Refusal.RESERVATION_RESOLVED: ("The reservation is not open", "Nothing is left to do."),
    Refusal.CHARGE_UNKNOWN: ("The charge cannot be refunded (again)", "Nothing is left to do."),
    Refusal.CHARGE_REFUNDED: ("The charge cannot be refunded (again)", "Nothing is left to do."),
    Refusal.POOL_UNKNOWN: ("There is no such pool or lane", "GET /v1/pools lists them."),
    Refusal.RUNNER_UNKNOWN: (
        "There is no such runner or attempt",
        "It has gone; nothing is left to do.",
    ),
    Refusal.INCARNATION_STALE: (
        "There is no such runner or attempt",
        "It has gone; nothing is left to do.",
    ),
    Refusal.ATTEMPT_UNKNOWN: (
        "There is no such runner or attempt",
        "It has gone; nothing is left to do.",
    ),
}
"""Every refusal has its words: a test counts them."""


def words_of(refusal: Refusal) -> tuple[str, str]:
    """Title and help of a refusal, for people."""
    return _WORDS[refusal]


def refused(
    reply: Refused | CommandRefused,
    now: datetime,
    limits: UserLimits | None = None,
    unknown: Refusal = Refusal.TASK_UNKNOWN,
) -> Problem:
    """A refusal of a decider, with what is left and when it resets where that is known."""
    return refusal(
        reply.reason,
        now=now,
        detail=reply.detail,
        remaining=reply.remaining,
        resets_at=reply.resets_at,
        limits=limits,
        unknown=unknown,
    )


def refusal(
    reason: Refusal,
    *,
    now: datetime | None = None,
    detail: str = "",
    remaining: Remaining | None = None,
    resets_at: datetime | None = None,
    limits: UserLimits | None = None,
    unknown: Refusal = Refusal.TASK_UNKNOWN,
) -> Problem:
    """A refusal in the words of the deciders. What is another's is told like what is not there."""
    now = now or datetime.now(UTC)
    if reason is Refusal.NOT_YOURS:
        reason, detail = unknown, ""
    title, help_ = words_of(reason)
    status = status_of(reason)
    members: dict[str, Any] = {}
    headers: dict[str, str] = {}
    if remaining is not None:
        members["remaining"] = remaining_view(remaining)
        headers = rate_headers(remaining, now, limits)
    retry_after: float | None = None
    if resets_at is not None:
        members["resets_at"] = resets_at
        retry_after = (resets_at - now).total_seconds()
    elif status in {429, 503}:
        retry_after = _RETRY_SECONDS
    return Problem(
        reason.value,
        status=status,
        title=title,
        help=help_,
        detail=detail,
        retry_after=retry_after,
        members=members,
        headers=headers,
    )


def remaining_view(remaining: Remaining) -> dict[str, Any]:
    """What is left, as callers read it: credits in micros, windows by their ends."""
    return {
        "minute": remaining.minute,
        "minute_resets_at": remaining.minute_window.end,
        "day": remaining.day,
        "day_resets_at": remaining.day_window.end,
        "credits_micros": remaining.credits_micros,
        "credits_reset_at": remaining.month_window.end,
        "contract_micros": remaining.contract_micros,
    }


def rate_headers(remaining: Remaining, now: datetime, limits: UserLimits | None) -> dict[str, str]:
    """RateLimit-* of the tighter count: the limit, what is left, seconds until it resets."""
    if remaining.day < remaining.minute:
        left, window = remaining.day, remaining.day_window
        limit = limits.per_day if limits else None
    else:
        left, window = remaining.minute, remaining.minute_window
        limit = limits.per_minute if limits else None
    headers = {
        "ratelimit-remaining": str(max(0, left)),
        "ratelimit-reset": str(max(0, math.ceil((window.end - now).total_seconds()))),
    }
    return headers if limit is None else {"ratelimit-limit": str(limit), **headers}
