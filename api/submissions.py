"""`POST /v1/tasks`, the one path that must be fast, from the bytes of a request to its answer.

One check of a token (remembered), one decode, one judgement of what is asked, one look-up (shared
with others), one append (shared with others), one answer. It runs straight under the server, beside
the framework that serves everything else; `documented` gives it its place in the OpenAPI document.
"""

import asyncio
import re
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

import orjson
from pydantic import ValidationError

from api import strict_json
from api.asking import Asker
from api.auth import Claims, Gatekeeper
from api.consistency import ConsistencyTokens
from api.contracts import Request
from api.lookups import Lookups
from api.measures import Measures
from api.pools import Estimate, Pools
from api.problems import Door, Problem, at_the_door, rate_headers, refusal, refused, remaining_view
from api.promises import Promises
from api.rates import RateHint
from api.reads import KnownMaterial, KnownTask, ReadModel
from api.standing import Standing
from schema.commands import Origin, SubmitTask
from schema.ids import CommandId, MaterialId, TaskId, TraceId, command_id_of, task_id_of
from schema.policy import Policy, TierPolicy
from schema.refusals import Refusal
from schema.replies import Accepted, Refused, ReplyMessage
from schema.routes import Route, route_submission
from schema.scenes.judging import Fault
from schema.scenes.submissions import faults_of, faults_of_kinds
from schema.wires.keys import KeyStore
from schema.words import Scene

PATH = "/v1/tasks"
_KEY = re.compile(rb"[\x21-\x7e](?:[\x20-\x7e]{0,126}[\x21-\x7e])?")
_TRACE = re.compile(rb"00-([0-9a-f]{32})-[0-9a-f]{16}-[0-9a-f]{2}")
_JSON = b"application/json"
_PENDING = "pending"
_SCENES: Final = frozenset(scene.value for scene in Scene)
_KINDS_MAX = 40
"""Materials of a submission that are looked up; of more than that one misfit spoils nothing."""


class Answer(NamedTuple):
    """Status, headers and body of an answer."""

    status: int
    headers: list[tuple[bytes, bytes]]
    body: bytes


class _Asked(NamedTuple):
    """One submission at the door."""

    claims: Claims
    request: Request
    task_id: TaskId
    trace: str = ""
    publishes: TaskId | None = None


def submit_id(task_id: TaskId) -> CommandId:
    """The command that asks for a task: one for ever, so that asking twice is asking once."""
    return command_id_of("submit", task_id)


def publishing_id(claims: Claims, task_id: TaskId, number: int) -> TaskId:
    """The task that makes this one's result in full size; `number`: after so many in vain.

    No caller names it otherwise: a key of his begins with no space.
    """
    return task_id_of(claims.tenant_id, claims.user_id, f" publish {task_id} {number}")


def idempotency_key(raw: bytes | None) -> str:
    """The key of a request; raises Problem (400) when it is missing or is not one."""
    if raw is None:
        raise at_the_door(Door.KEY_MISSING)
    if not _KEY.fullmatch(raw):
        raise at_the_door(Door.KEY_INVALID)
    return raw.decode("ascii")


_PUBLISH_IT: Final = (
    "The full size is made once the preview is there: POST /v1/tasks/{task_id}/publish"
)


def invalid_body(error: ValidationError) -> Problem:
    """What is wrong with which field, without repeating what people wrote."""
    errors = [
        {"field": _field(item["loc"]), "message": _message(item)}
        for item in error.errors(include_url=False, include_context=False)
    ]
    return at_the_door(Door.BODY_INVALID, members={"errors": errors})


def _field(place: tuple[int | str, ...]) -> str:
    """As it stands in the body: the scene that a part of the schema is for is no part of it."""
    if len(place) > 1 and place[0] in _SCENES:
        place = place[1:]
    return ".".join(str(part) for part in place)


def _message(item: Mapping[str, Any]) -> str:
    """With the value, where it is a number: what people wrote is not told back."""
    given = item.get("input")
    if "parameters" in item["loc"] and isinstance(given, bool | int | float):
        return f"{item['msg']}; given was {orjson.dumps(given).decode()}"
    return str(item["msg"])


def _wrong(field: str, message: str) -> Problem:
    return _faulty([Fault(field, message)])


def _faulty(faults: Iterable[Fault]) -> Problem:
    errors = [{"field": fault.field, "message": fault.message} for fault in faults]
    return at_the_door(Door.BODY_INVALID, members={"errors": errors})


class Submissions:
    """The door for submissions."""

    def __init__(  # noqa: PLR0913 - composed by hand, once
        self,
        *,
        gatekeeper: Gatekeeper,
        standing: Standing,
        reads: ReadModel,
        pools: Pools,
        promises: Promises,
        rates: RateHint,
        asker: Asker,
        keys: KeyStore,
        tokens: ConsistencyTokens,
        measures: Measures,
        fingerprint_key: bytes,
    ) -> None:
        self._gatekeeper = gatekeeper
        self._standing = standing
        self._known: Lookups[TaskId, KnownTask] = Lookups(reads.known_tasks)
        self._kinds: Lookups[MaterialId, KnownMaterial] = Lookups(reads.material_kinds)
        self._pools = pools
        self._promises = promises
        self._rates = rates
        self._asker = asker
        self._keys = keys
        self._tokens = tokens
        self._outcomes = {
            outcome: measures.submissions.labels(outcome)
            for outcome in ("accepted", "pending", "known")
        }
        self._refused = measures.submissions
        self._fingerprint_key = fingerprint_key

    async def submit(self, headers: Mapping[bytes, bytes], body: bytes) -> Answer:
        """The answer to a submission; raises Problem for every refusal."""
        try:
            return await self._submit(headers, body)
        except Problem as problem:
            self._refused.labels(problem.code).inc()
            raise

    async def _submit(self, headers: Mapping[bytes, bytes], body: bytes) -> Answer:
        claims = await self._gatekeeper.admit(headers.get(b"authorization"))
        key = idempotency_key(headers.get(b"idempotency-key"))
        request = self._request(headers, body)
        task_id = task_id_of(claims.tenant_id, claims.user_id, key)
        trace = _TRACE.fullmatch(headers.get(b"traceparent", b""))
        asked = _Asked(claims, request, task_id, trace[1].decode() if trace else "")
        return await self._take(asked)

    async def publish(
        self, claims: Claims, publishes: TaskId, task_id: TaskId, document: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Ask for the task that makes a result in full size, as for any other; its answer."""
        try:
            request = Request(document, self._fingerprint_key)
        except ValidationError as error:
            raise invalid_body(error) from None
        taken = await self._take(_Asked(claims, request, task_id, publishes=publishes))
        shown: dict[str, Any] = orjson.loads(taken.body)
        return shown

    async def _take(self, asked: "_Asked") -> Answer:
        claims, request, task_id = asked.claims, asked.request, asked.task_id
        policy = self._standing.policy()
        tier = _tier(policy, claims, request)
        lane = tier.lane_of(request.scene)
        known, misfits = await self._looked_up(asked)
        if known is not None:
            return self._answer_known(request, task_id, known)
        if misfits:
            raise _faulty(misfits)
        self._standing.check_fresh()
        limits = tier.limits[request.scene]
        rate_key = (claims.user_id, request.scene)
        resets_at = self._rates.resets_at(rate_key, task_id, limits.per_minute)
        if resets_at is not None:
            raise refusal(Refusal.RATE_EXCEEDED, resets_at=resets_at)
        estimate = self._pools.admit(
            policy, request.scene, lane, claims.account_id, request.deadline_seconds
        )
        command = await self._command(asked)
        route = route_submission(command, lane, self._asker.partitions)
        reply = await self._ask(command, route, request.fingerprint)
        if reply is None:
            self._outcomes[_PENDING].inc()
            return self._answer(request, task_id, estimate, None, {})
        self._rates.learn(rate_key, task_id, reply, limits.per_minute)
        now = datetime.now(UTC)
        if isinstance(reply, Refused):
            raise refused(reply, now, limits)
        self._outcomes["accepted"].inc()
        self._promises.tell(task_id, estimate)
        rate = rate_headers(reply.remaining, now, limits) if reply.remaining else {}
        return self._answer(request, task_id, estimate, reply, rate)

    async def _looked_up(self, asked: _Asked) -> tuple[KnownTask | None, tuple[Fault, ...]]:
        """The task, if it was asked for before, and what its materials can't be used for.

        Both at once, and the second only where there are materials: nobody waits longer for it.
        """
        if asked.publishes or not 0 < len(asked.request.materials) <= _KINDS_MAX:
            return await self._known.get(asked.task_id), ()
        return await asyncio.gather(self._known.get(asked.task_id), self._misfits(asked))

    async def _misfits(self, asked: _Asked) -> tuple[Fault, ...]:
        """As far as the read model knows what they are: an upload that goes on is judged later."""
        claims, request = asked.claims, asked.request
        found = await asyncio.gather(
            *(self._kinds.get(MaterialId(material)) for material in request.materials)
        )
        own = (claims.user_id, claims.tenant_id)
        kinds = [one.kind if one and one[:2] == own else None for one in found]
        return faults_of_kinds(request.scene, request.wishes, kinds)

    async def _ask(
        self, command: SubmitTask, route: Route, fingerprint: str
    ) -> ReplyMessage | None:
        self._asker.check(route)
        await self._asker.settle(command.command_id, fingerprint)
        return await self._asker.ask(command, route, fingerprint=fingerprint)

    def _request(self, headers: Mapping[bytes, bytes], body: bytes) -> Request:
        kind = headers.get(b"content-type", b"")
        if kind != _JSON and kind.partition(b";")[0].strip().lower() != _JSON:
            raise at_the_door(Door.BODY_NOT_JSON)
        try:
            document = strict_json.decode(body)
        except strict_json.NotStrictJsonError as error:
            raise at_the_door(Door.BODY_UNREADABLE, str(error)) from None
        try:
            request = Request(document, self._fingerprint_key)
        except ValidationError as error:
            raise invalid_body(error) from None
        if request.asks_full_size:  # it costs twice; whoever has seen the preview knows if it pays
            raise _wrong("parameters.size", _PUBLISH_IT)
        faults = faults_of(request.scene, request.wishes, len(request.materials))
        if faults:
            raise _faulty(faults)
        return request

    async def _command(self, asked: "_Asked") -> SubmitTask:
        claims, request, task_id = asked.claims, asked.request, asked.task_id
        private: bytes | None = None
        if request.private:
            await self._keys.prepare(claims.user_id)
            private = self._keys.seal(claims.user_id, request.private)
        return SubmitTask(
            command_id=submit_id(task_id),
            task_id=task_id,
            origin=Origin(
                user_id=claims.user_id,
                tenant_id=claims.tenant_id,
                account_id=claims.account_id,
                scene=request.scene,
                tier=claims.tier,
                fingerprint=request.fingerprint,
                parameters=request.parameters,
                material_ids=tuple(MaterialId(material) for material in request.materials),
                trace_id=TraceId(asked.trace),
                private=private,
                publishes=asked.publishes,
            ),
            deadline_seconds=request.deadline_seconds,
            reply_to=self._asker.reply_partition,
        )

    def _answer_known(self, request: Request, task_id: TaskId, known: KnownTask) -> Answer:
        """The read model remembers the task, however long ago it was asked for."""
        if known.fingerprint != request.fingerprint:
            raise refusal(Refusal.IDEMPOTENCY_CONFLICT)
        self._outcomes["known"].inc()
        return self._render(
            {
                "task_id": task_id,
                "status": known.status,
                "seq": known.seq,
                "scene": request.scene,
                "lane": known.lane,
                "estimated_wait_seconds": None,
                "reserved_micros": known.reserved_micros,
                "remaining": None,
                "consistency_token": self._tokens.sign(task_id, known.seq),
            },
            {},
        )

    def _answer(
        self,
        request: Request,
        task_id: TaskId,
        estimate: Estimate,
        reply: Accepted | None,
        rate: dict[str, str],
    ) -> Answer:
        remaining = reply.remaining if reply else None
        seq = reply.seq if reply else 0
        return self._render(
            {
                "task_id": task_id,
                "status": reply.status if reply else _PENDING,
                "seq": seq,
                "scene": request.scene,
                "lane": estimate.lane,
                "estimated_wait_seconds": estimate.told,
                "reserved_micros": reply.reserved_micros if reply else None,
                "remaining": remaining_view(remaining) if remaining else None,
                "consistency_token": self._tokens.sign(task_id, seq),
            },
            rate,
        )

    def _render(self, document: dict[str, Any], rate: dict[str, str]) -> Answer:
        body = orjson.dumps(document, option=orjson.OPT_UTC_Z)
        headers = [
            (b"content-type", _JSON),
            (b"content-length", b"%d" % len(body)),
            (b"location", f"{PATH}/{document['task_id']}".encode()),
        ]
        headers.extend((name.encode(), value.encode()) for name, value in rate.items())
        return Answer(202, headers, body)


def _tier(policy: Policy, claims: Claims, request: Request) -> TierPolicy:
    """The tier's rules; raises Problem (403) when the tier or its scene is not in the policy."""
    tier = policy.tiers.get(claims.tier)
    if tier is None:
        raise refusal(Refusal.TIER_UNKNOWN)
    if request.scene not in tier.limits:
        raise refusal(Refusal.SCENE_NOT_OFFERED)
    return tier
