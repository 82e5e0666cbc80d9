"""What is wrong with the parameters of a task, in words for whoever sent them.

The door asks before anything is appended, the runner asks again before it works: both with the
same structs and the same sentences.
"""

import functools
import itertools
import re
from collections.abc import Iterable, Iterator, Mapping
from enum import Enum, StrEnum
from typing import Any, Final, NamedTuple, TypeVar

import msgspec
from msgspec import inspect

Parameters = TypeVar("Parameters", bound=msgspec.Struct)

COLOUR: Final = r"^#[0-9a-fA-F]{6}$"
NAME: Final = r"^[a-z][a-z0-9-]{0,39}$"
_FORMS: Final = {
    COLOUR: "a colour like #ffffff",
    NAME: "a name of small letters, digits and hyphens (40 at most)",
}
_SHOWN_CHARACTERS: Final = 40
_FAULTS_MAX: Final = 20
"""Told at once: whoever sends a thousand unknown fields is not answered with as many lines."""
_MESSAGE: Final = re.compile(r"(?s)(.*?)(?: - at `\$([^`]*)`)?")
_STEP: Final = re.compile(r"\.(\w+)|\[(?:\d+|\.\.\.)\]")
_UNKNOWN: Final = re.compile(r"Object contains unknown field `(.*)`", re.DOTALL)


class Strict(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An unknown field is a typing error, and told."""


class Size(StrEnum):
    """Lines of a film's shorter side: the first to look at, the second to publish."""

    PREVIEW = "720p"
    FULL = "1080p"


class Fault(NamedTuple):
    """One thing that is wrong: where, and what would be right."""

    field: str
    """As it stands in a submission: `parameters.size`, `materials`."""
    message: str


class BadParametersError(Exception):
    """Parameters that no work can be done with."""

    def __init__(self, faults: Iterable[Fault]) -> None:
        self.faults = tuple(faults)
        super().__init__("; ".join(f"`{fault.field}`: {fault.message}" for fault in self.faults))


def struct_of(
    parameters: Mapping[str, Any], kind: type[Parameters], within: str = "parameters"
) -> Parameters:
    """Parameters as a struct. Errors: BadParametersError that tells each field that is wrong."""
    try:
        return msgspec.convert(parameters, kind)
    except msgspec.ValidationError as error:
        faults = list(itertools.islice(_of_fields(parameters, kind, within), _FAULTS_MAX))
        raise BadParametersError(faults or [_fault(error, parameters, kind, within)]) from error


def _of_fields(
    parameters: Mapping[str, Any], kind: type[msgspec.Struct], within: str
) -> Iterator[Fault]:
    """Of each field what is wrong with it by itself."""
    known = {field.encode_name: field.type for field in msgspec.structs.fields(kind)}
    for name, given in parameters.items():
        if name not in known:
            yield Fault(f"{within}.{_shown(name)}", _there_are(known))
            continue
        try:
            msgspec.convert(given, known[name])
        except msgspec.ValidationError as error:
            yield _fault(error, given, known[name], f"{within}.{name}")


def _fault(error: msgspec.ValidationError, given: object, kind: Any, within: str) -> Fault:  # noqa: ANN401 - any type
    """An error of msgspec with what is allowed, and with a value that may be told back.

    Numbers, and words where only some are allowed, are told; what people wrote is not.
    """
    told = _MESSAGE.fullmatch(str(error))
    message, path = (told[1], told[2] or "") if told else (str(error), "")
    found, value = list(_at(_info(kind), path)), _value_at(given, path)
    field = f"{within}{path}"
    unknown = _UNKNOWN.fullmatch(message)
    if unknown:
        names = [f.encode_name for one in found if isinstance(one, inspect.StructType)
                 for f in one.fields]  # fmt: skip
        return Fault(f"{field}.{_shown(unknown[1])}", _there_are(names))
    allowed = [word for one in found if isinstance(one, inspect.EnumType)
               for word in _words(one.cls)]  # fmt: skip
    if message.startswith("Invalid enum value"):
        return Fault(field, f"{_shown(value)} is none of {', '.join(allowed)}")
    if allowed:
        message = f"{message}: one of {', '.join(allowed)}"
    for form, words in _FORMS.items():
        message = message.replace(f"matching regex '{form}'", f"that is {words}")
    if value is None or isinstance(value, bool | int | float):
        message = f"{message}; given was {_shown(value)}"
    return Fault(field, message)


@functools.lru_cache(maxsize=256)
def _info(kind: Any) -> inspect.Type:  # noqa: ANN401 - any type
    return inspect.type_info(kind)


def _at(info: inspect.Type, path: str) -> Iterator[inspect.Type]:
    """The types that may stand at a path like `.slots[0].fit`."""
    found = list(_plain(info))
    for step in _STEP.finditer(path):
        found = [plain for one in found for inner in _inside(one, step[1])
                 for plain in _plain(inner)]  # fmt: skip
    yield from found


def _plain(info: inspect.Type) -> Iterator[inspect.Type]:
    match info:
        case inspect.Metadata():
            yield from _plain(info.type)
        case inspect.UnionType():
            for one in info.types:
                yield from _plain(one)
        case _:
            yield info


def _inside(info: inspect.Type, name: str | None) -> Iterator[inspect.Type]:
    match info:
        case inspect.StructType():
            yield from (field.type for field in info.fields if field.encode_name == name)
        case inspect.VarTupleType() | inspect.ListType():
            yield info.item_type
        case inspect.DictType():
            yield info.value_type
        case _:
            return


def _value_at(given: object, path: str) -> object:
    """What stands at a path; what can't be followed (a value of any key) is not told: an empty."""
    for step in re.finditer(r"\.(\w+)|\[(\d+|\.\.\.)\]", path):
        name, place = step[1], step[2]
        if isinstance(given, Mapping) and name in given:
            given = given[name]
        elif isinstance(given, list) and place and place.isdigit():
            given = given[int(place)]
        else:
            return ""
    return given


def _words(kind: type[Enum]) -> list[str]:
    return [str(word.value) for word in kind]


def _there_are(names: Iterable[str]) -> str:
    return f"there is none of this name; there are {', '.join(names)}"


def _shown(value: object) -> str:
    text = "null" if value is None else str(value).lower() if isinstance(value, bool) else value
    text = str(text)
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}…"
