"""The one base class of everything written to the log, and the types its fields are made of.

The cause of a record (topic, partition, offset of the command it follows from) is its Kafka header
`cause`, on every record that a processor sends; a message holds only what its
writer decided.
"""

from datetime import datetime
from typing import Annotated, Any, dataclass_transform

import msgspec

CAUSE_HEADER = "cause"
"""Header with the bytes `topic/partition/offset`, on every record that a processor writes."""

Instant = Annotated[datetime, msgspec.Meta(tz=True)]
"""An aware UTC instant with milliseconds."""
Micros = Annotated[int, msgspec.Meta(ge=0, le=10**15)]
"""Money or credits in millionths."""
Milliseconds = Annotated[int, msgspec.Meta(ge=0, le=10**12)]
"""A duration, or (in fields ending in `_until_ms`) an instant of a served clock."""
Seq = Annotated[int, msgspec.Meta(ge=0)]
"""Number of an event of one key: 1, 2, 3, … without a gap; 0 means none yet."""
Token = Annotated[int, msgspec.Meta(ge=0)]
"""Number of an attempt, from 1; it fences older attempts."""
Percent = Annotated[float, msgspec.Meta(ge=0, le=100)]
Parameters = dict[str, Any]
"""A caller's parameters for a scene: JSON, checked by the api and again by the pipeline."""


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(msgspec.field,))
class KeywordOnly(msgspec.StructMeta):
    """msgspec does not hand `kw_only` down to subclasses; this does: it cannot be forgotten."""

    def __new__(
        cls,
        name: str,
        bases: tuple[type, ...],
        namespace: dict[str, Any],
        **options: Any,  # noqa: ANN401 - what StructMeta takes
    ) -> Any:  # noqa: ANN401 - the class that is made
        """A struct class whose own fields are keyword only."""
        options.setdefault("kw_only", True)
        return super().__new__(cls, name, bases, namespace, **options)


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(msgspec.field,))
class Message(
    msgspec.Struct,
    metaclass=KeywordOnly,
    frozen=True,
    tag_field="type",
    omit_defaults=True,
    gc=False,
):
    """Immutable, built by keyword, and named on the wire by its tag."""


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(msgspec.field,))
class Part(msgspec.Struct, metaclass=KeywordOnly, frozen=True, omit_defaults=True, gc=False):
    """A piece of a message that never stands alone, so it has no wire name."""
