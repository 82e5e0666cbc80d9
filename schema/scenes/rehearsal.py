"""What a caller may ask of the scene `rehearsal`."""

from typing import Annotated

import msgspec

from schema.failures import FailureClass
from schema.scenes.judging import Strict


class RehearsalParameters(Strict, frozen=True, kw_only=True):
    seconds: Annotated[float, msgspec.Meta(ge=0, le=86_400)] = 0.0
    """How long the work takes in all; it is waited, not computed."""
    steps: Annotated[int, msgspec.Meta(ge=1, le=100_000)] = 10
    reports: Annotated[int, msgspec.Meta(ge=0, le=100_000)] = 10
    fail: FailureClass | None = None
    """End with this class, half way through."""
    fail_on_attempts: tuple[int, ...] = ()
    """The tokens that fail, crash or hang; empty: every one."""
    crash: bool = False
    """The process ends half way, without a word."""
    hang: bool = False
    """Half way the process stops to answer, to a request to end as well."""
    no_op: bool = False
    """Nothing is stored: the product has no files."""
    save_steps: Annotated[int, msgspec.Meta(ge=0, le=100_000)] = 1
    """It can be saved after each so many steps, and another attempt goes on there; 0: never."""
    saving_seconds: Annotated[float, msgspec.Meta(ge=0, le=86_400)] = 0.0
    """How long saving takes."""

    def misbehaves(self, token: int) -> bool:
        asked = self.crash or self.hang or self.fail is not None
        return asked and (not self.fail_on_attempts or token in self.fail_on_attempts)
