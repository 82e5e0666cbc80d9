"""How a message of an older version becomes one of the next: plain functions on the JSON object.

An entry maps an old tag to a function that returns the object under the next tag; several versions
are lifted one after the other.
"""

from collections.abc import Callable
from typing import Any

Upcast = Callable[[dict[str, Any]], dict[str, Any]]


def _complete_material(fields: dict[str, Any]) -> dict[str, Any]:
    """What an api said of size and digest is found out anew, by the prober."""
    kept = {name: value for name, value in fields.items() if name not in {"size", "sha256"}}
    return {**kept, "type": "material.complete.v2"}


UPCASTS: dict[str, Upcast] = {"material.complete.v1": _complete_material}
