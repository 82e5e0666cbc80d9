"""Who asks: bearer tokens checked once, then known until they end.

Algorithm, issuer and audience are pinned by the settings, never read from a token. The key comes
from a file or from a JWKS address. A checked token is remembered (bounded, until its own `exp`),
so that the submit path pays a dictionary look-up and not a signature.
"""

import asyncio
import logging
import re
import time
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import httpx
import jwt
import orjson

from api.problems import Door, Problem, at_the_door
from schema.ids import NO_TENANT, AccountId, TenantId, UserId, account_of, pseudonym
from schema.settings import Api, SettingsError
from schema.wires.telemetry import facts

REMEMBERED_MAX = 20_000
TOKEN_BYTES_MAX = 4_096
SCOPE_OPERATE = "operate"
_LEEWAY_SECONDS = 5
_JWKS_SECONDS = 300.0
_JWKS_REFRESH_SECONDS_MIN = 10.0
_JWKS_TIMEOUT_SECONDS = 2.0
_BEARER = b"bearer "
_NAME = re.compile(r"[A-Za-z0-9._:@-]{1,128}\Z")
_SUB_LENGTH_MAX = 256
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\udfff]")
_log = logging.getLogger(__name__)


class Claims(NamedTuple):
    """What a token says, in our words; the `sub` itself goes no further than this module."""

    user_id: UserId
    tenant_id: TenantId
    account_id: AccountId
    tier: str
    scopes: frozenset[str]
    until: float
    """Unix time of the token's end."""

    @property
    def operates(self) -> bool:
        return SCOPE_OPERATE in self.scopes


class KeySource(Protocol):
    """Where the keys come from that tokens are checked with."""

    async def key(self, header: Mapping[str, Any]) -> Any:  # noqa: ANN401 - any key of PyJWT
        """The key for a token with this header, or None when there is none."""
        ...


class FileKey:
    """One key in a file: a public key in PEM, or a shared secret."""

    def __init__(self, path: Path, algorithm: str) -> None:
        """Read and parsed once; raises SettingsError when it is no key of the algorithm."""
        try:
            content = path.read_bytes().strip()
            self._key = jwt.get_algorithm_by_name(algorithm).prepare_key(content)
        except (OSError, NotImplementedError, jwt.PyJWTError, ValueError, TypeError) as error:
            message = f"CUTLOG_API_TOKEN_KEY_FILE, CUTLOG_API_TOKEN_ALGORITHM: {error}"
            raise SettingsError(message) from error

    async def key(self, header: Mapping[str, Any]) -> Any:  # noqa: ANN401, ARG002
        return self._key


class JwksKeys:
    """The keys of an address, read again when a token names one that is not there yet."""

    def __init__(
        self,
        fetch: Callable[[], Awaitable[bytes]],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._fetch = fetch
        self._clock = clock
        self._keys: dict[str, Any] = {}
        self._read_at = float("-inf")
        self._lock = asyncio.Lock()

    async def key(self, header: Mapping[str, Any]) -> Any:  # noqa: ANN401
        kid = header.get("kid")
        if not isinstance(kid, str):
            return None
        age = self._clock() - self._read_at
        if age > _JWKS_SECONDS or (kid not in self._keys and age > _JWKS_REFRESH_SECONDS_MIN):
            await self._refresh()
        return self._keys.get(kid)

    async def _refresh(self) -> None:
        async with self._lock:
            if self._clock() - self._read_at <= _JWKS_REFRESH_SECONDS_MIN:
                return
            self._read_at = self._clock()
            try:
                keys = jwt.PyJWKSet.from_json((await self._fetch()).decode()).keys
            except (httpx.HTTPError, jwt.PyJWTError, ValueError) as error:
                _log.warning("jwks could not be read", extra=facts(error=str(error)))
                return
            self._keys = {key.key_id: key.key for key in keys if key.key_id}


def _jwks_fetcher(url: str) -> Callable[[], Awaitable[bytes]]:
    async def fetch() -> bytes:
        async with httpx.AsyncClient(timeout=_JWKS_TIMEOUT_SECONDS) as client:
            answer = await client.get(url)
            return answer.raise_for_status().content

    return fetch


def key_source(settings: Api) -> KeySource:
    """The source that the settings name; raises SettingsError when they name none or two."""
    if bool(settings.token_key_file) == bool(settings.token_jwks_url):
        raise SettingsError(
            "set one of CUTLOG_API_TOKEN_KEY_FILE and CUTLOG_API_TOKEN_JWKS_URL, and only one"
        )
    if settings.token_key_file:
        return FileKey(Path(settings.token_key_file), settings.token_algorithm)
    return JwksKeys(_jwks_fetcher(settings.token_jwks_url))


class Gatekeeper:
    """Turns an Authorization header into Claims, or into a 401."""

    def __init__(
        self,
        settings: Api,
        keys: KeySource,
        pseudonym_secret: bytes,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._algorithm = settings.token_algorithm
        self._issuer = settings.token_issuer
        self._audience = settings.token_audience
        self._keys = keys
        self._secret = pseudonym_secret
        self._clock = clock
        self._remembered: dict[bytes, Claims] = {}

    def recall(self, authorization: bytes) -> Claims | None:
        """Claims of a token that was checked before and has not ended."""
        claims = self._remembered.get(authorization)
        if claims is not None and claims.until <= self._clock():
            del self._remembered[authorization]
            return None
        return claims

    async def admit(self, authorization: bytes | None) -> Claims:
        """Whose request this is; raises Problem (401)."""
        if not authorization:
            raise at_the_door(Door.TOKEN_MISSING)
        claims = self.recall(authorization)
        if claims is not None:
            return claims
        if authorization[: len(_BEARER)].lower() != _BEARER:
            raise at_the_door(Door.TOKEN_MISSING)
        token = authorization[len(_BEARER) :].strip()
        if len(token) > TOKEN_BYTES_MAX:
            raise _invalid("the token is too long")
        claims = self._claims(await self._verified(token))
        if len(self._remembered) >= REMEMBERED_MAX:
            del self._remembered[next(iter(self._remembered))]
        self._remembered[authorization] = claims
        return claims

    async def _verified(self, token: bytes) -> dict[str, Any]:
        try:
            header = jwt.get_unverified_header(token)
            key = await self._keys.key(header)
            if key is None:
                raise _invalid("its key is not known")
            payload: dict[str, Any] = jwt.decode(
                token,
                key,
                algorithms=[self._algorithm],
                audience=self._audience,
                issuer=self._issuer,
                leeway=_LEEWAY_SECONDS,
                options={"require": ["exp", "iss", "aud", "sub"]},
            )
        except jwt.ExpiredSignatureError:
            raise _invalid("it has ended") from None
        except (jwt.PyJWTError, ValueError, TypeError, orjson.JSONDecodeError) as error:
            # The names of what is wrong are safe to tell; nothing of the token's content is.
            raise _invalid(type(error).__name__) from None
        return payload

    def _claims(self, payload: dict[str, Any]) -> Claims:
        sub = payload["sub"]
        if not isinstance(sub, str) or not 0 < len(sub) <= _SUB_LENGTH_MAX or _CONTROL.search(sub):
            raise _invalid("claim sub")
        tenant = payload.get("tenant") or ""
        if not isinstance(tenant, str) or (tenant and not _NAME.match(tenant)):
            raise _invalid("claim tenant")
        tier = payload.get("tier")
        if not isinstance(tier, str) or not _NAME.match(tier):
            raise _invalid("claim tier")
        scope = payload.get("scope") or ""
        if not isinstance(scope, str):
            raise _invalid("claim scope")
        tenant_id = TenantId(tenant) if tenant else NO_TENANT
        user_id = pseudonym(self._secret, tenant_id, sub)
        return Claims(
            user_id=user_id,
            tenant_id=tenant_id,
            account_id=account_of(tenant_id, user_id),
            tier=tier,
            scopes=frozenset(scope.split()),
            until=float(payload["exp"]),
        )


def _invalid(why: str) -> Problem:
    return at_the_door(Door.TOKEN_INVALID, why)


def need_operator(claims: Claims) -> None:
    """Raises Problem (403) unless the token has the scope `operate`."""
    if not claims.operates:
        raise at_the_door(Door.SCOPE_MISSING)
