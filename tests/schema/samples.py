"""One canonical sample of every message, with every field set: what golden bytes are made from."""

import enum
import types
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Union, get_args, get_origin, get_type_hints

import msgspec

from schema.codec import CODECS
from schema.ids import TaskId, TenantId, UserId, task_id_of

AT = datetime(2026, 3, 2, 12, 30, 15, 250_000, tzinfo=UTC)
USER = UserId("0123456789abcdefghjk004711")
TASK: TaskId = task_id_of(TenantId("acme"), USER, "key-1")
_BY_NAME: dict[str, Any] = {
    "user_id": USER,
    "task_id": TASK,
    "tenant_id": "acme",
    "account_id": "t-acme",
    "material_id": "0123456789abcdefghjkmnpqrs004711",
    "pool_id": "A",
    "tier": "member",
    "timezone": "Europe/Berlin",
    "percent": 30,
    "card_measured": False,
}


def messages() -> dict[str, type[msgspec.Struct]]:
    """Every message by its wire name."""
    found: dict[str, type[msgspec.Struct]] = {}
    for codec in CODECS.values():
        union = codec.union
        for kind in get_args(union) or (union,):
            found[str(kind.__struct_config__.tag)] = kind
    return dict(sorted(found.items()))


def sample(kind: type[msgspec.Struct]) -> Any:  # noqa: ANN401 - a message of that type
    """The message with a value in every field, so that nothing is left out on the wire."""
    hints = get_type_hints(kind, include_extras=True)
    fields = {name: _value(name, hints[name]) for name in kind.__struct_fields__}
    return kind(**fields)


def _value(name: str, hint: Any) -> Any:  # noqa: ANN401 - a value of any type
    while hasattr(hint, "__supertype__"):
        hint = hint.__supertype__
    origin = get_origin(hint)
    if hasattr(hint, "__metadata__"):
        return _value(name, hint.__origin__)
    if origin in (Union, types.UnionType):
        return _value(name, next(one for one in get_args(hint) if one is not type(None)))
    if origin is tuple:
        inner = get_args(hint)[0]
        return (_value(name.removesuffix("s"), inner),)
    if origin is dict:
        key, value = get_args(hint)
        if value is Any:
            return {"target_seconds": 30, "music": True}
        return {_value(name, key): _value(name, value)}
    if name in _BY_NAME:
        return hint(_BY_NAME[name]) if hint in (int, float) else _BY_NAME[name]
    return _plain(name, hint)


def _plain(name: str, hint: Any) -> Any:  # noqa: ANN401 - a value of any type
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
        return sample(hint)
    if isinstance(hint, type) and issubclass(hint, enum.Enum):
        return list(hint)[-1]
    plain: Mapping[Any, Any] = {
        str: f"{name}-1",
        int: 7,
        float: 0.25,
        bool: True,
        bytes: b"\x01sealed",
        datetime: AT,
    }
    return plain[hint]
