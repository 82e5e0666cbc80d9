"""How a message of an older version becomes one of the next: plain functions on the JSON object.

Empty while every wire name is at its first version. An entry maps an old tag to a function that
returns the object under the next tag; several versions are lifted one after the other.
"""

from collections.abc import Callable
from typing import Any

Upcast = Callable[[dict[str, Any]], dict[str, Any]]

UPCASTS: dict[str, Upcast] = {}
