"""JSON that means one thing: the only decoder that a request's body goes through.

Refused, because two readers would disagree about it or no store would take it: NaN and Infinity,
a key twice in an object, NUL and lone surrogates in a string, integers beyond 64 bits (with
a sign, unless it is told otherwise), floats beyond a double, nesting beyond `DEPTH_MAX`.
"""

import json
import math
import re
from typing import Any, NoReturn

DEPTH_MAX = 32
INTEGER_MAX = 2**63 - 1
_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")
_SCALARS = frozenset({bool, type(None)})


class NotStrictJsonError(ValueError):
    """The bytes are not one strict JSON document; the message says why, for the caller."""


def _pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        raise NotStrictJsonError("a key stands twice in one object")
    return members


def _constant(name: str) -> NoReturn:
    raise NotStrictJsonError(f"{name} is not JSON")


_decoder = json.JSONDecoder(object_pairs_hook=_pairs, parse_constant=_constant)


def decode(body: bytes, integer_max: int = INTEGER_MAX) -> Any:  # noqa: ANN401 - JSON
    """The document; raises NotStrictJsonError."""
    try:
        document = _decoder.decode(body.decode())
    except NotStrictJsonError:
        raise
    except UnicodeDecodeError:
        raise NotStrictJsonError("the body is not UTF-8") from None
    except RecursionError:
        raise NotStrictJsonError(f"nested deeper than {DEPTH_MAX}") from None
    except json.JSONDecodeError as error:
        raise NotStrictJsonError(f"{error.msg} at {error.lineno}:{error.colno}") from None
    except ValueError:  # an integer of thousands of digits
        raise NotStrictJsonError("an integer is out of range") from None
    _check(document, DEPTH_MAX, integer_max)
    return document


def _check(value: Any, depth: int, integer_max: int) -> None:  # noqa: ANN401 - JSON
    """Everything that the grammar allows and we do not."""
    kind = type(value)
    if kind is str:
        if _UNSTORABLE.search(value):
            raise NotStrictJsonError("a string holds NUL or half a surrogate pair")
    elif kind is int:
        if not -integer_max <= value <= integer_max:
            raise NotStrictJsonError("an integer is out of range")
    elif kind is float:
        if not math.isfinite(value):
            raise NotStrictJsonError("a number is out of range")
    elif kind not in _SCALARS:
        if depth == 0:
            raise NotStrictJsonError(f"nested deeper than {DEPTH_MAX}")
        if kind is dict:
            for key, item in value.items():
                _check(key, depth - 1, integer_max)
                _check(item, depth - 1, integer_max)
        else:
            for item in value:
                _check(item, depth - 1, integer_max)
