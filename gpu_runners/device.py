"""What a worker computes on: device, number format and threads, chosen once a process; its clock.

Nothing of torch is imported before somebody asks: a worker of another scene never pays for it. The
code above is the same on a GPU and on a CPU; only what is told here differs.
"""

import errno
import functools
import os
import platform
import resource
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    import torch

THREADS_NAME = "OMP_NUM_THREADS"
"""How many threads a CPU computes with; the libraries below torch read the same name."""

_CUBLAS_NAME = "CUBLAS_WORKSPACE_CONFIG"
_CUBLAS_SAME = ":4096:8"
"""cuBLAS gives the same bits each time only with a workspace of its own."""

_MILLISECONDS = 1000
_CV_NO_MEMORY = -4
_MEMORY_WORDS = (
    "out of memory",
    "not enough memory",
    "t allocate memory",
    "can't start new thread",
    "CUBLAS_STATUS_ALLOC_FAILED",
    "CUDNN_STATUS_ALLOC_FAILED",
)
"""What torch, its libraries and Python say when memory is short, each as a RuntimeError."""


class Device(msgspec.Struct, frozen=True, kw_only=True):
    """Where a worker computes. All of it is in the fingerprint of what it makes."""

    kind: str
    """`cuda` or `cpu`, as torch calls it."""
    card: str
    """The model of the card, or of the processor and the instructions that it is used with."""
    number: str
    """Kind of number of the weights: `float16` or `float32`."""
    threads: int


class CardClock:
    """Time of the card since it was made: CUDA events where there is a GPU, CPU seconds elsewhere.

    `seconds` waits for what was given to the card so far; ask once a step, not more.
    """

    def __init__(self, device: Device | None = None) -> None:
        self._events: Any = None
        self._cpu = cpu_seconds()
        if device is not None and device.kind == "cuda":
            import torch  # noqa: PLC0415 - late on purpose

            self._events = torch.cuda.Event
            self._begun = self._mark()

    def seconds(self) -> float:
        if self._events is None:
            return cpu_seconds() - self._cpu
        now = self._mark()
        now.synchronize()
        return float(self._begun.elapsed_time(now)) / _MILLISECONDS

    def _mark(self) -> Any:  # noqa: ANN401 - an event of CUDA
        event = self._events(enable_timing=True)
        event.record()
        return event


def cpu_seconds() -> float:
    """CPU time of this process and of its children that have ended."""
    own = resource.getrusage(resource.RUSAGE_SELF)
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return own.ru_utime + own.ru_stime + children.ru_utime + children.ru_stime


@functools.cache
def choose_device() -> Device:
    """The device of this process, set up so that the same work gives the same bits again.

    The first call imports torch, which takes seconds. Without a word in the environment one thread
    computes: several workers share a machine, and small models only lose by more.
    """
    os.environ.setdefault(_CUBLAS_NAME, _CUBLAS_SAME)
    import torch  # noqa: PLC0415 - late on purpose

    threads = _threads_wanted()
    torch.set_num_threads(threads)
    if torch.cuda.is_available():
        torch.backends.cudnn.benchmark = False
        torch.backends.cudnn.deterministic = True
        torch.backends.cuda.matmul.allow_tf32 = False
        torch.backends.cudnn.allow_tf32 = False
        return Device(
            kind="cuda", card=torch.cuda.get_device_name(), number="float16", threads=threads
        )
    instructions = str(torch.backends.cpu.get_cpu_capability())
    return Device(
        kind="cpu", card=f"{_processor()}, {instructions}", number="float32", threads=threads
    )


def number_of(device: Device) -> "torch.dtype":
    """The kind of number of a device in torch's words."""
    import torch  # noqa: PLC0415 - late on purpose

    return torch.float16 if device.number == "float16" else torch.float32


def free_memory(device: Device) -> None:
    """Give back what the last work held on the card; after one that ran out of it."""
    if device.kind == "cuda":
        import torch  # noqa: PLC0415 - late on purpose

        torch.cuda.empty_cache()


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error says that memory was short: of the card, or of the machine."""
    if isinstance(error, MemoryError):
        return True
    if isinstance(error, OSError):
        return error.errno == errno.ENOMEM
    kind = type(error)
    if (kind.__module__, kind.__name__) == ("cv2", "error"):  # known without importing it
        code: object = getattr(error, "code", None)
        return code == _CV_NO_MEMORY or "Insufficient memory" in str(error)
    if not isinstance(error, RuntimeError):
        return False
    return kind.__name__ == "OutOfMemoryError" or any(
        words in str(error) for words in _MEMORY_WORDS
    )


def _threads_wanted() -> int:
    with suppress(ValueError):
        return max(1, int(os.environ.get(THREADS_NAME, "1")))
    return 1


def _processor() -> str:
    """What the kernel calls the processor; two of other names may round otherwise."""
    with suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            key, _, value = line.partition(":")
            if key.strip() == "model name":
                return value.strip()
    return platform.machine()
