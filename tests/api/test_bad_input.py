"""Bad input of every kind, against the real process: always a problem, never a 500."""

import json
import socket
import time
from typing import Any, NamedTuple

import httpx
import pytest

from tests.api.door import SECRET, bearer, claims, client, token

import jwt  # isort: skip


class Bad(NamedTuple):
    """One request that must be refused."""

    name: str
    status: int
    code: str
    method: str = "POST"
    path: str = "/v1/tasks"
    body: bytes | None = b'{"scene":"rehearsal"}'
    headers: dict[str, str | None] = {}
    """On top of a good request's; None takes one away."""


def _submission(**fields: Any) -> bytes:  # noqa: ANN401 - any field
    return json.dumps({"scene": "rehearsal", **fields}).encode()


def _parameters(**fields: Any) -> bytes:  # noqa: ANN401 - any field
    return _submission(parameters=fields)


def _auth(value: str | None) -> dict[str, str | None]:
    return {"Authorization": value}


def _signed(**changes: Any) -> dict[str, str | None]:  # noqa: ANN401 - any claim
    return _auth(f"Bearer {token(**changes)}")


MATERIAL = {"sha256": "0" * 64, "size": 1, "content_type": "video/mp4", "name": "a.mp4"}
OTHERS_TASK = "0" * 26 + "000000"


def _material(**changes: Any) -> bytes:  # noqa: ANN401 - any field
    return json.dumps({**MATERIAL, **changes}).encode()


BAD_JSON = [
    Bad("nothing", 400, "body_unreadable", body=b""),
    Bad("half a document", 400, "body_unreadable", body=b'{"scene":'),
    Bad("two documents", 400, "body_unreadable", body=b'{"scene":"rehearsal"}{}'),
    Bad("a comment", 400, "body_unreadable", body=b'{"scene":"rehearsal"} // no'),
    Bad("single quotes", 400, "body_unreadable", body=b"{'scene':'rehearsal'}"),
    Bad("NaN", 400, "body_unreadable", body=b'{"scene":"rehearsal","card_seconds":NaN}'),
    Bad("Infinity", 400, "body_unreadable", body=b'{"scene":"rehearsal","card_seconds":Infinity}'),
    Bad(
        "-Infinity", 400, "body_unreadable", body=b'{"scene":"rehearsal","card_seconds":-Infinity}'
    ),
    Bad("1e999", 400, "body_unreadable", body=b'{"scene":"rehearsal","card_seconds":1e999}'),
    Bad("NUL raw", 400, "body_unreadable", body=b'{"scene":"rehearsal","title":"a\x00b"}'),
    Bad("NUL escaped", 400, "body_unreadable", body=b'{"scene":"rehearsal","title":"a\\u0000b"}'),
    Bad(
        "NUL in a key", 400, "body_unreadable", body=b'{"scene":"genai","parameters":{"\\u0000":1}}'
    ),
    Bad("half a pair", 400, "body_unreadable", body=b'{"scene":"rehearsal","title":"\\ud800"}'),
    Bad("not UTF-8", 400, "body_unreadable", body=b'{"scene":"rehearsal","title":"\xff\xfe"}'),
    Bad("UTF-16", 400, "body_unreadable", body='{"scene":"rehearsal"}'.encode("utf-16")),
    Bad("a byte order mark", 400, "body_unreadable", body=b'\xef\xbb\xbf{"scene":"rehearsal"}'),
    Bad("a key twice", 400, "body_unreadable", body=b'{"scene":"rehearsal","scene":"genai"}'),
    Bad(
        "a key twice, deep",
        400,
        "body_unreadable",
        body=b'{"scene":"genai","parameters":{"a":{"b":1,"b":2}}}',
    ),
    Bad("deep arrays", 400, "body_unreadable", body=b"[" * 30_000),
    Bad(
        "deep objects",
        400,
        "body_unreadable",
        body=b'{"scene":"genai","parameters":' + b'{"a":' * 40 + b"1" + b"}" * 41,
    ),
    Bad("a huge integer", 400, "body_unreadable", body=_parameters(steps=10**30)),
    Bad(
        "an integer of 10,000 digits",
        400,
        "body_unreadable",
        body=b'{"scene":"rehearsal","card_seconds":' + b"9" * 10_000 + b"}",
    ),
    Bad(
        "a control character", 400, "body_unreadable", body=b'{"scene":"rehearsal","title":"a\nb"}'
    ),
]
BAD_FIELDS = [
    Bad("an array", 422, "body_invalid", body=b"[]"),
    Bad("a string", 422, "body_invalid", body=b'"rehearsal"'),
    Bad("null", 422, "body_invalid", body=b"null"),
    Bad("no scene", 422, "body_invalid", body=b"{}"),
    Bad("an unknown scene", 422, "body_invalid", body=_submission(scene="cooking")),
    Bad("a scene in capitals", 422, "body_invalid", body=_submission(scene="REHEARSAL")),
    Bad("a number as scene", 422, "body_invalid", body=_submission(scene=1)),
    Bad("an unknown field", 422, "body_invalid", body=_submission(user_id="bob")),
    Bad("an unknown parameter", 422, "body_invalid", body=_parameters(speed=2)),
    Bad("parameters null", 422, "body_invalid", body=_submission(parameters=None)),
    Bad("parameters a list", 422, "body_invalid", body=_submission(parameters=[])),
    Bad(
        "the full size of a film that nobody has seen",
        422,
        "body_invalid",
        body=b'{"scene":"autocut","materials":["m1"],"parameters":{"size":"1080p"}}',
    ),
    Bad(
        "the full size of a template",
        422,
        "body_invalid",
        body=b'{"scene":"smart","parameters":{"size":"1080p"}}',
    ),
    Bad("seconds as text", 422, "body_invalid", body=_parameters(seconds="1")),
    Bad("seconds true", 422, "body_invalid", body=_parameters(seconds=True)),
    Bad("seconds negative", 422, "body_invalid", body=_parameters(seconds=-1)),
    Bad("steps a fraction", 422, "body_invalid", body=_parameters(steps=1.5)),
    Bad("steps zero", 422, "body_invalid", body=_parameters(steps=0)),
    Bad("an unknown failure", 422, "body_invalid", body=_parameters(fail="boredom")),
    Bad("crash as a number", 422, "body_invalid", body=_parameters(crash=1)),
    Bad("a title of 201", 422, "body_invalid", body=_submission(title="x" * 201)),
    Bad("an empty title", 422, "body_invalid", body=_submission(title="")),
    Bad("a title that is a number", 422, "body_invalid", body=_submission(title=7)),
    Bad("a prompt where none is", 422, "body_invalid", body=_submission(prompt="a cat")),
    Bad("an estimate of its own", 422, "body_invalid", body=_submission(card_seconds=0.001)),
    *(
        Bad(
            f"a deadline of {value}",
            422,
            "body_invalid",
            body=b'{"scene":"rehearsal","deadline_seconds":' + value.encode() + b"}",
        )
        for value in ("0", "-1", "1.5", "60.0", '"60"', "true", "[]", "{}", "2592001", "1e3")
    ),
    *(
        Bad(
            f"a deadline of {value[:9]}",
            400,
            "body_unreadable",
            body=b'{"scene":"rehearsal","deadline_seconds":' + value.encode() + b"}",
        )
        for value in ("NaN", "Infinity", "-Infinity", "1e999", "9" * 30, "01", "0x10")
    ),
    Bad("a material id of another form", 422, "body_invalid", body=_submission(materials=["x"])),
    Bad(
        "a material id that climbs",
        422,
        "body_invalid",
        body=_submission(materials=["../" * 8 + "ab000000"]),
    ),
    Bad(
        "a material id and a line break",
        422,
        "body_invalid",
        body=_submission(materials=[OTHERS_TASK + "\n"]),
    ),
    Bad("one material twice", 422, "body_invalid", body=_submission(materials=[OTHERS_TASK] * 2)),
    Bad(
        "seventeen materials",
        422,
        "body_invalid",
        body=_submission(materials=[f"{n:026d}000000" for n in range(17)]),
    ),
    Bad("autocut without a clip", 422, "body_invalid", body=b'{"scene":"autocut"}'),
    Bad(
        "autocut of no length",
        422,
        "body_invalid",
        body=_submission(
            scene="autocut", materials=[OTHERS_TASK], parameters={"target_seconds": 0}
        ),
    ),
    Bad(
        "long parameters",
        422,
        "body_invalid",
        body=_submission(scene="genai", parameters={"a": "x" * 20_000}),
    ),
]
BAD_HEADERS = [
    Bad("no token", 401, "token_missing", headers=_auth(None)),
    Bad("an empty token", 401, "token_missing", headers=_auth("")),
    Bad("a user and password", 401, "token_missing", headers=_auth("Basic YW5uOmE=")),
    Bad("no JWT", 401, "token_invalid", headers=_auth("Bearer abc")),
    Bad("a JWT of nonsense", 401, "token_invalid", headers=_auth("Bearer a.b.c")),
    Bad("a token of 5,000", 401, "token_invalid", headers=_auth("Bearer " + "a" * 5_000)),
    Bad("an ended token", 401, "token_invalid", headers=_signed(exp=int(time.time()) - 60)),
    Bad("a token for ever", 401, "token_invalid", headers=_signed(exp=None)),
    Bad("another issuer", 401, "token_invalid", headers=_signed(iss="evil")),
    Bad("another audience", 401, "token_invalid", headers=_signed(aud="shop")),
    Bad("no audience", 401, "token_invalid", headers=_signed(aud=None)),
    Bad("no sub", 401, "token_invalid", headers=_signed(sub=None)),
    Bad("an empty sub", 401, "token_invalid", headers=_signed(sub="")),
    Bad("a sub with a separator", 401, "token_invalid", headers=_signed(sub="a\x1fb")),
    Bad("a tenant that climbs", 401, "token_invalid", headers=_signed(tenant="../x")),
    Bad("a tenant that is a number", 401, "token_invalid", headers=_signed(tenant=3)),
    Bad("no tier", 401, "token_invalid", headers=_signed(tier=None)),
    Bad("a scope that is a list", 401, "token_invalid", headers=_signed(scope=["operate"])),
    Bad(
        "alg none",
        401,
        "token_invalid",
        headers=_auth("Bearer " + jwt.encode(claims(), "", algorithm="none")),
    ),
    Bad(
        "another algorithm",
        401,
        "token_invalid",
        headers=_auth("Bearer " + jwt.encode(claims(), SECRET * 2, algorithm="HS512")),
    ),
    Bad(
        "another secret",
        401,
        "token_invalid",
        headers=_auth("Bearer " + jwt.encode(claims(), "x" * 40, algorithm="HS256")),
    ),
    Bad("no key", 400, "idempotency_key_missing", headers={"Idempotency-Key": None}),
    Bad("an empty key", 400, "idempotency_key_invalid", headers={"Idempotency-Key": ""}),
    Bad("a key of 129", 400, "idempotency_key_invalid", headers={"Idempotency-Key": "k" * 129}),
    Bad("a key with a tab", 400, "idempotency_key_invalid", headers={"Idempotency-Key": "a\tb"}),
    Bad("no content type", 415, "body_not_json", headers={"Content-Type": None}),
    Bad("a form", 415, "body_not_json", headers={"Content-Type": "multipart/form-data"}),
    Bad("text", 415, "body_not_json", headers={"Content-Type": "text/plain"}),
    Bad("a large body", 413, "body_too_large", body=b" " * 70_000),
]
BAD_ROUTES = [
    Bad("no such address", 404, "not_found", "GET", "/v2/tasks"),
    Bad("a slash too many", 404, "not_found", "GET", "/v1/tasks/"),
    Bad("another method", 405, "method_not_allowed", "DELETE", "/v1/tasks"),
    Bad("another's task", 404, "task_unknown", "GET", f"/v1/tasks/{OTHERS_TASK}"),
    Bad("no task id", 404, "task_unknown", "GET", "/v1/tasks/x"),
    Bad("NUL as an id", 404, "task_unknown", "GET", "/v1/tasks/%00"),
    Bad("SQL as an id", 404, "task_unknown", "GET", "/v1/tasks/'%20OR%201=1--"),
    Bad("broken UTF-8 as an id", 404, "task_unknown", "GET", "/v1/tasks/%ff%fe"),
    Bad("events of no task", 404, "task_unknown", "GET", "/v1/tasks/x/events"),
    Bad("waiting for no task", 404, "task_unknown", "GET", "/v1/tasks/x/wait"),
    Bad("waiting after nothing", 422, "parameter_invalid", "GET", "/v1/tasks/x/wait?after=x"),
    Bad("waiting before the start", 422, "parameter_invalid", "GET", "/v1/tasks/x/wait?after=-1"),
    Bad("canceling no task", 404, "task_unknown", path="/v1/tasks/x/cancel", body=b""),
    Bad("canceling with fields", 422, "body_invalid", path="/v1/tasks/x/cancel", body=b'{"a":1}'),
    Bad("retrying another's", 404, "task_unknown", path=f"/v1/tasks/{OTHERS_TASK}/retry", body=b""),
    Bad("an unknown status", 422, "parameter_invalid", "GET", "/v1/tasks?status=BUSY"),
    Bad("a filter by no scene", 422, "parameter_invalid", "GET", "/v1/tasks?scene=x"),
    Bad("a limit of 0", 422, "parameter_invalid", "GET", "/v1/tasks?limit=0"),
    Bad("a limit of 101", 422, "parameter_invalid", "GET", "/v1/tasks?limit=101"),
    Bad("a limit of words", 422, "parameter_invalid", "GET", "/v1/tasks?limit=ten"),
    Bad("an unknown filter", 422, "parameter_invalid", "GET", "/v1/tasks?user=bob"),
    Bad("a cursor of another", 400, "cursor_invalid", "GET", "/v1/tasks?cursor=abcdefghijklmnop"),
    Bad("a cursor with NUL", 400, "cursor_invalid", "GET", "/v1/tasks?cursor=%00"),
    Bad(
        "a cursor of the year 300,000",
        400,
        "cursor_invalid",
        "GET",
        "/v1/tasks?cursor=OTk5OTk5OTk5OTk5OTk5OTk5OTkuYQ",
    ),
    Bad("a material without fields", 422, "body_invalid", path="/v1/materials", body=b"{}"),
    Bad(
        "a digest in capitals",
        422,
        "body_invalid",
        path="/v1/materials",
        body=_material(sha256="A" * 64),
    ),
    Bad("a short digest", 422, "body_invalid", path="/v1/materials", body=_material(sha256="00")),
    Bad("an empty file", 422, "body_invalid", path="/v1/materials", body=_material(size=0)),
    Bad(
        "a file of a petabyte",
        422,
        "body_invalid",
        path="/v1/materials",
        body=_material(size=10**15),
    ),
    Bad(
        "a type with a line break",
        422,
        "body_invalid",
        path="/v1/materials",
        body=_material(content_type="video/mp4\r\nX: y"),
    ),
    Bad("a nameless file", 422, "body_invalid", path="/v1/materials", body=_material(name="")),
    Bad("no material", 404, "material_unknown", "GET", "/v1/materials/x"),
    Bad(
        "completing another's",
        404,
        "material_unknown",
        path=f"/v1/materials/{OTHERS_TASK}/complete",
        body=b"",
    ),
    Bad("an operator without scope", 403, "scope_missing", path="/v1/operator/top-up", body=b"{}"),
    Bad(
        "a policy of nothing",
        422,
        "policy_invalid",
        path="/v1/operator/policy",
        body=b'{"policy":{},"why":"a test"}',
        headers=_signed(scope="operate"),
    ),
    Bad(
        "a policy without a why",
        422,
        "body_invalid",
        path="/v1/operator/policy",
        body=b'{"policy":{},"why":"  "}',
        headers=_signed(scope="operate"),
    ),
    Bad(
        "a top-up of less than nothing",
        422,
        "body_invalid",
        path="/v1/operator/top-up",
        body=b'{"account_id":"t-a","scene":"genai","amount_micros":-1,"why":"a test"}',
        headers=_signed(scope="operate"),
    ),
    Bad(
        "a lane that is none",
        422,
        "parameter_invalid",
        path="/v1/operator/lanes/A/p9/pause",
        body=b'{"why":"a test"}',
        headers=_signed(scope="operate"),
    ),
    Bad(
        "a breaker of no scene",
        422,
        "parameter_invalid",
        path="/v1/operator/breakers/A/x/reset",
        body=b'{"why":"a test"}',
        headers=_signed(scope="operate"),
    ),
    *(
        Bad(
            f"NUL as the id of a letter: {path or 'list'}",
            422,
            "parameter_invalid",
            "GET",
            f"/v1/operator/dead-letters{path}?of=%00",
            headers=_signed(scope="operate"),
        )
        for path in ("", "/show")
    ),
    *(
        Bad(
            f"NUL as the letter to {how}",
            400,
            "body_unreadable",
            path=f"/v1/operator/dead-letters/{how}",
            body=b'{"of":"\\u0000","why":"a test"}',
            headers=_signed(scope="operate"),
        )
        for how in ("redrive", "discard")
    ),
    Bad("letters without the scope", 403, "scope_missing", "GET", "/v1/operator/dead-letters"),
    Bad(
        "a letter without the scope",
        403,
        "scope_missing",
        "GET",
        "/v1/operator/dead-letters/show?of=x",
    ),
    *(
        Bad(
            f"{path} without the scope",
            403,
            "scope_missing",
            path=f"/v1/operator/{path}",
            body=b'{"of":"x","why":"a test"}',
        )
        for path in ("dead-letters/redrive", "dead-letters/discard", "breakers/A/genai/reset")
    ),
]
EVERYTHING = [*BAD_JSON, *BAD_FIELDS, *BAD_HEADERS, *BAD_ROUTES]


@pytest.fixture(scope="module")
def http(lonely_api: str) -> Any:  # noqa: ANN401 - a client
    """A client of the api without parts."""
    with client(lonely_api) as found:
        yield found


@pytest.mark.parametrize("bad", EVERYTHING, ids=lambda bad: bad.name.replace(" ", "_"))
def test_bad_input_is_a_problem_with_its_code(http: httpx.Client, bad: Bad) -> None:
    headers: dict[str, str | None] = {
        **bearer(),
        "Idempotency-Key": "a key",
        "Content-Type": "application/json",
        **bad.headers,
    }
    sent = {name: value for name, value in headers.items() if value is not None}
    content = bad.body if bad.method == "POST" else None
    answer = http.request(bad.method, bad.path, content=content, headers=sent)
    assert answer.headers["content-type"] == "application/problem+json"
    document = answer.json()
    assert (answer.status_code, document["code"]) == (bad.status, bad.code), document
    assert document["status"] == bad.status
    assert document["title"]
    assert document["help"]


def test_there_are_enough_cases() -> None:
    assert len(EVERYTHING) >= 60
    assert len({bad.name for bad in EVERYTHING}) == len(EVERYTHING)


def test_what_was_sent_is_not_told_back(http: httpx.Client) -> None:
    answer = http.post(
        "/v1/tasks",
        content=_submission(title="my secret " * 30),
        headers={**bearer(), "Idempotency-Key": "k", "Content-Type": "application/json"},
    )
    assert answer.status_code == 422
    assert "secret" not in answer.text


# --- below HTTP ---------------------------------------------------------------------------------


def _knock(url: str, *pieces: bytes, pause: float = 0) -> bytes:
    """Raw bytes in, raw bytes out, until the server closes."""
    host, port = url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=60) as connection:
        for piece in pieces:
            try:
                connection.sendall(piece)
            except (BrokenPipeError, ConnectionResetError):
                break
            if pause:
                time.sleep(pause)  # a slow client is the point
        told = b""
        try:
            while piece := connection.recv(65_536):
                told += piece
        except ConnectionResetError:
            pass
        return told


def _problem(told: bytes) -> tuple[bytes, dict[str, Any]]:
    head, _, body = told.partition(b"\r\n\r\n")
    assert b"application/problem+json" in head
    return head.split(b"\r\n")[0], json.loads(body)


@pytest.mark.parametrize(
    "request_head",
    [
        b"GET /healthz HTTP/1.1\r\nHost: x\r\nX-Long: " + b"a" * 40_000 + b"\r\n\r\n",
        b"GET /" + b"a" * 40_000 + b" HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\n" + b"".join(b"X-%d: y\r\n" % n for n in range(4_000)) + b"\r\n",
    ],
    ids=["one header", "the address", "many headers"],
)
def test_a_head_that_is_too_large_is_refused(lonely_api: str, request_head: bytes) -> None:
    status, document = _problem(_knock(lonely_api, request_head))
    assert status.startswith(b"HTTP/1.1 431")
    assert document["code"] == "headers_too_large"


def test_an_endless_header_is_cut_off_while_it_comes(lonely_api: str) -> None:
    pieces = [b"GET /healthz HTTP/1.1\r\nX: ", *[b"a" * 8_000] * 8]
    status, document = _problem(_knock(lonely_api, *pieces, pause=0.01))
    assert status.startswith(b"HTTP/1.1 431")
    assert document["code"] == "headers_too_large"


def test_what_is_no_http_is_a_problem_too(lonely_api: str) -> None:
    status, document = _problem(_knock(lonely_api, b"\x16\x03\x01 hello\r\n\r\n"))
    assert status.startswith(b"HTTP/1.1 400")
    assert document["code"] == "bad_request"


def test_an_endless_body_without_length_is_cut_off(lonely_api: str) -> None:
    head = (
        f"POST /v1/tasks HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token()}\r\n"
        "Idempotency-Key: k\r\nContent-Type: application/json\r\n"
        "Transfer-Encoding: chunked\r\n\r\n"
    ).encode()
    chunk = b"4000\r\n" + b" " * 0x4000 + b"\r\n"
    status, document = _problem(_knock(lonely_api, head, *[chunk] * 12))
    assert status.startswith(b"HTTP/1.1 413")
    assert document["code"] == "body_too_large"


def test_a_body_that_never_comes_is_not_waited_for(lonely_api: str) -> None:
    head = (
        f"POST /v1/tasks HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token()}\r\n"
        "Idempotency-Key: k\r\nContent-Type: application/json\r\nContent-Length: 10\r\n\r\n{"
    ).encode()
    status, document = _problem(_knock(lonely_api, head))
    assert status.startswith(b"HTTP/1.1 408")
    assert document["code"] == "body_timeout"


def test_a_head_that_never_ends_closes_the_connection(lonely_api: str) -> None:
    assert _knock(lonely_api, b"GET /healthz HTTP/1.1\r\nX-A: b\r\n") == b""
