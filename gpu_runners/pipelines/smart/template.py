"""The templates that come along, and those that come inline with the parameters.

Shipped ones stand in `templates/` and pass the same checks as every other.
"""

import functools
from pathlib import Path

import msgspec

from gpu_runners.pipelines.pipeline import InputError, InputReason, Json
from schema.scenes.judging import BadParametersError
from schema.scenes.smart import Template, checked, template_of

_SHIPPED = Path(__file__).parent / "templates"


def template_named(name: str) -> Template:
    """A shipped template. Errors: InputError that names those there are."""
    known = shipped()
    if name not in known:
        raise InputError(
            InputReason.PARAMETERS,
            f"There is no template of this name; there are {', '.join(known)}.",
        )
    return known[name]


@functools.cache
def shipped() -> dict[str, Template]:
    """All templates that come along, by name."""
    found = {
        path.stem: checked(msgspec.json.decode(path.read_bytes(), type=Template))
        for path in sorted(_SHIPPED.glob("*.json"))
    }
    for name, template in found.items():
        if template.name != name:
            raise ValueError(f"{name}.json calls itself {template.name}")
    return found


def template_inline(given: Json) -> Template:
    """A template out of the parameters. Errors: InputError naming the field that is wrong."""
    try:
        return template_of(given)
    except BadParametersError as error:
        raise InputError(InputReason.PARAMETERS, f"The template is wrong: {error}") from error


def rgb(colour: str) -> tuple[int, int, int]:
    """Red, green, blue of a `#rrggbb`."""
    return int(colour[1:3], 16), int(colour[3:5], 16), int(colour[5:7], 16)
