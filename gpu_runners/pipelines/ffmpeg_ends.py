"""How a run of ffmpeg ends: with the worker, however that went, and with an error of a class."""

import resource
import shutil
from typing import Final

from gpu_runners.pipelines.pipeline import PipelineError
from schema.failures import FailureClass

_STDERR_TAIL: Final = 800
_MEMORY_WORDS: Final = (
    "Cannot allocate memory",
    "Resource temporarily unavailable",
    "malloc of size",
)
_ENCODER_WORDS: Final = "Generic error in an external library"


def tied_to_parent() -> list[str]:
    """Let the kernel end ffmpeg with the worker, even a killed one, where util-linux is there."""
    setpriv = shutil.which("setpriv")
    return [setpriv, "--pdeathsig", "KILL", "--"] if setpriv else []


def lacked_memory(said: str) -> bool:
    """Whether what ffmpeg said on its standard error means that memory was short."""
    return any(words in said for words in _MEMORY_WORDS) or (
        resource.getrlimit(resource.RLIMIT_AS)[0] != resource.RLIM_INFINITY
        and _ENCODER_WORDS in said  # x264 tells no more of an allocation that failed
    )


def failure(returncode: int, said: str) -> PipelineError:
    """The error of a run that failed; `said` is its standard error."""
    return PipelineError(
        FailureClass.OUT_OF_MEMORY if lacked_memory(said) else FailureClass.INTERNAL,
        f"ffmpeg ended with {returncode}: {said[-_STDERR_TAIL:]}",
    )
