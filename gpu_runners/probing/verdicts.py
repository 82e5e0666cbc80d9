"""What a probe is asked, what it answers, and how a refusal travels inside of it."""

import msgspec

from gpu_runners.probing.limits import MaterialLimits, ProcessLimits
from schema.commands import MediaFacts
from schema.refusals import MaterialRefusal


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """One file to look at: a line of JSON on the standard input of the process that does."""

    path: str
    folder: str
    """Its own, empty: the only place where it may write."""
    content_type: str = ""
    """As its caller declared it; empty or octet-stream: he doesn't say."""
    seconds_max: float = 0.0
    """The longest that its caller says it is; 0: he doesn't say."""
    limits: MaterialLimits = MaterialLimits()
    process: ProcessLimits = ProcessLimits()


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """Facts, or a reason: a line of JSON on its standard output."""

    facts: MediaFacts | None = None
    reason: MaterialRefusal | None = None
    detail: str = ""
    """What exactly, for people: names and numbers, nothing of the file's content."""
    fault: str = ""
    """What a reader raised that no rule knows of: for the log, and for whoever mends the rule."""
    unsealed: tuple[str, ...] = ()
    """Defences that the kernel does not have."""


class RefusedError(Exception):
    """The material is refused; the same bytes would be refused again."""

    def __init__(self, reason: MaterialRefusal, detail: str) -> None:
        super().__init__(f"{reason.value}: {detail}")
        self.reason = reason
        self.detail = detail
