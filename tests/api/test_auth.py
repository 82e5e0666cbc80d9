"""Tokens: what is pinned stays pinned, what is remembered ends when the token does."""

import asyncio
import hashlib
import hmac
import json
import time
from pathlib import Path
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from jwt.algorithms import OKPAlgorithm
from jwt.utils import base64url_encode

from api import auth
from api.auth import FileKey, Gatekeeper, JwksKeys, key_source
from api.problems import Problem
from schema.ids import pseudonym
from schema.settings import Api, SettingsError
from tests.api.door import SECRET, claims, token

PSEUDONYMS = b"pseudonyms of tests"


@pytest.fixture
def settings(tmp_path: Path) -> Api:
    """Settings with the tests' secret."""
    path = tmp_path / "key"
    path.write_text(SECRET)
    return Api(token_algorithm="HS256", token_key_file=str(path))


def _gatekeeper(settings: Api, **options: Any) -> Gatekeeper:  # noqa: ANN401
    return Gatekeeper(settings, key_source(settings), PSEUDONYMS, **options)


async def test_a_token_becomes_a_pseudonym_and_never_the_sub(settings: Api) -> None:
    header = f"Bearer {token(tenant='acme', scope='operate read')}".encode()
    found = await _gatekeeper(settings).admit(header)
    assert found.user_id == pseudonym(PSEUDONYMS, found.tenant_id, "ann")
    assert found.account_id == "t-acme"
    assert found.operates
    assert "ann" not in repr(found)


async def test_the_same_sub_of_another_tenant_is_another_user(settings: Api) -> None:
    gatekeeper = _gatekeeper(settings)
    one = await gatekeeper.admit(f"Bearer {token(tenant='acme')}".encode())
    other = await gatekeeper.admit(f"Bearer {token(tenant='bolt')}".encode())
    alone = await gatekeeper.admit(f"Bearer {token()}".encode())
    assert len({one.user_id, other.user_id, alone.user_id}) == 3
    assert alone.account_id == f"u-{alone.user_id}"


async def test_a_remembered_token_is_forgotten_at_its_end(settings: Api) -> None:
    now = [time.time()]
    gatekeeper = _gatekeeper(settings, clock=lambda: now[0])
    header = f"Bearer {token(exp=int(now[0]) + 100)}".encode()
    first = await gatekeeper.admit(header)
    assert gatekeeper.recall(header) is first
    now[0] += 101
    assert gatekeeper.recall(header) is None


async def test_what_is_remembered_is_bounded(
    settings: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(auth, "REMEMBERED_MAX", 3)
    gatekeeper = _gatekeeper(settings)
    headers = [f"Bearer {token(sub=f'user {n}')}".encode() for n in range(5)]
    for header in headers:
        await gatekeeper.admit(header)
    known = [gatekeeper.recall(header) is not None for header in headers]
    assert known == [False, False, True, True, True]


async def test_a_public_key_is_no_shared_secret(tmp_path: Path) -> None:
    private = Ed25519PrivateKey.generate()
    pem = private.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    path = tmp_path / "key.pem"
    path.write_bytes(pem)
    settings = Api(token_algorithm="EdDSA", token_key_file=str(path))
    gatekeeper = _gatekeeper(settings)
    good = jwt.encode(claims(), private, algorithm="EdDSA")
    assert (await gatekeeper.admit(f"Bearer {good}".encode())).tier == "free"
    header = base64url_encode(b'{"alg":"HS256","typ":"JWT"}').decode()
    payload = base64url_encode(json.dumps(claims()).encode()).decode()
    mac = hmac.digest(pem.strip(), f"{header}.{payload}".encode(), hashlib.sha256)
    forged = f"{header}.{payload}.{base64url_encode(mac).decode()}"
    with pytest.raises(Problem) as refused:
        await gatekeeper.admit(f"Bearer {forged}".encode())
    assert refused.value.code == "token_invalid"


async def test_a_new_key_of_the_address_is_found_and_an_unknown_one_asked_for_seldom() -> None:
    keys = {name: Ed25519PrivateKey.generate() for name in ("old", "new")}
    offered, asked, now = ["old"], [0], [0.0]

    async def fetch() -> bytes:
        asked[0] += 1
        await asyncio.sleep(0)
        found = []
        for name in offered:
            public = json.loads(OKPAlgorithm.to_jwk(keys[name].public_key()))
            found.append({**public, "kid": name, "alg": "EdDSA"})
        return json.dumps({"keys": found}).encode()

    source = JwksKeys(fetch, clock=lambda: now[0])
    gatekeeper = Gatekeeper(Api(token_algorithm="EdDSA"), source, PSEUDONYMS)

    async def admitted(kid: str) -> bool:
        signed = jwt.encode(claims(sub=f"{kid} {now[0]}"), keys[kid], "EdDSA", {"kid": kid})
        try:
            await gatekeeper.admit(f"Bearer {signed}".encode())
        except Problem as problem:
            return problem.code != "token_invalid"
        return True

    assert await admitted("old")
    assert not await admitted("new")
    assert asked[0] == 1, "an unknown key must not ask the issuer each time"
    offered.append("new")
    now[0] += 11
    assert await admitted("new")
    assert await admitted("old")
    assert asked[0] == 2


def test_one_source_of_keys_must_be_named() -> None:
    with pytest.raises(SettingsError, match="CUTLOG_API_TOKEN_KEY_FILE"):
        key_source(Api())


def test_a_key_file_that_holds_no_key_is_told_at_once(tmp_path: Path) -> None:
    path = tmp_path / "key.pem"
    path.write_text("no key")
    with pytest.raises(SettingsError, match="CUTLOG_API_TOKEN"):
        FileKey(path, "EdDSA")
    with pytest.raises(SettingsError, match="CUTLOG_API_TOKEN"):
        FileKey(tmp_path / "missing", "EdDSA")
