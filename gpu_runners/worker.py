"""The warm worker process of a slot: `python -m gpu_runners.worker OPTIONS`.

Works come in over standard input, answers go out over standard output, one JSON object a line; so
does the wish that the open work be saved. The process leads a group of its own, in which its
children stay. When standard input ends, the runner is gone: an idle worker exits, a busy one kills
its whole group: no attempt outlives its runner.
"""

import os
import queue
import resource
import signal
import sys
import threading
import traceback
from typing import BinaryIO, Final, NamedTuple, Protocol, runtime_checkable

import msgspec

from gpu_runners.device import is_out_of_memory
from gpu_runners.pipelines.pipeline import (
    Pipeline,
    PipelineError,
    Product,
    Progress,
    Resumable,
    Work,
)
from gpu_runners.pipelines.scenes import RESUMABLE, pipeline_for
from gpu_runners.worker_messages import (
    Answer,
    CannotSave,
    Do,
    Failed,
    Kept,
    Made,
    Ready,
    Reported,
    WorkerOptions,
    decode_request,
    encode_line,
)
from schema.failures import FailureClass
from schema.words import Scene

_MEMORY_WORDS: Final = ("failed to map segment", "Cannot allocate memory")
"""What the loader says of a library for which there is no room."""


class _Order(NamedTuple):
    """A work, its scene (None: no such), and what is set when it shall stop and be saved."""

    work: Work
    scene: Scene | None
    asked: threading.Event


class _Mail:
    """Lines in and out; knows at any instant whether a work is open."""

    def __init__(self, works: BinaryIO, answers: BinaryIO) -> None:
        self._works = works
        self._answers = answers
        self._queue: queue.SimpleQueue[_Order | None] = queue.SimpleQueue()
        self._lock = threading.RLock()
        self._open: _Order | None = None

    def listen(self) -> None:
        """Read until the runner is gone; runs in a thread of its own."""
        for line in self._works:
            match decode_request(line):
                case Do(work=work):
                    scene = Scene(work.scene) if work.scene in set(Scene) else None
                    order = _Order(work, scene, threading.Event())
                    with self._lock:
                        self._open = order
                    self._queue.put(order)
                case _:
                    self._ask_to_save()
        with self._lock:
            if self._open is not None:
                _end_group()
            self._queue.put(None)

    def _ask_to_save(self) -> None:
        """Under the lock: no answer to this may follow the end of the work that it is about."""
        with self._lock:
            if self._open is None:
                return
            if self._open.scene in RESUMABLE:
                self._open.asked.set()
            else:
                self._send(CannotSave())

    def next_order(self) -> _Order | None:
        """The next work, or None when there will be no more."""
        return self._queue.get()

    def report(self, progress: Progress) -> None:
        self._send(Reported(progress=progress))

    def close(self, end: Made | Failed | Kept) -> None:
        """Tell the end of the open work."""
        with self._lock:
            self._open = None
            self._send(end)

    def greet(self) -> None:
        self._send(Ready(pid=os.getpid()))

    def _send(self, answer: Answer) -> None:
        with self._lock:
            self._answers.write(encode_line(answer))
            self._answers.flush()


def main(arguments: list[str]) -> int:
    options = msgspec.json.decode(arguments[0], type=WorkerOptions) if arguments else None
    options = options or WorkerOptions()
    _limit_memory(options)
    bench = _Bench(options)
    for scene in options.scenes:
        bench.warm(scene)
    mail = _Mail(sys.stdin.buffer, _private_stdout())
    threading.Thread(target=mail.listen, name="mail", daemon=True).start()
    mail.greet()
    while (order := mail.next_order()) is not None:
        mail.close(_work(order, mail, bench))
    return 0


@runtime_checkable
class _Warmable(Protocol):
    """A pipeline that has more to load than is loaded when it is made."""

    def warm(self) -> None:
        """Load it before the first work."""
        ...


class _Bench:
    """The pipelines of this process: each is made once, and what it keeps warm stays with it."""

    def __init__(self, options: WorkerOptions) -> None:
        self._options = options
        self._pipelines: dict[Scene, Pipeline] = {}

    def pipeline(self, scene: Scene) -> Pipeline:
        """Raises ImportError where the libraries of a scene are not installed."""
        found = self._pipelines.get(scene)
        if found is None:
            found = self._pipelines[scene] = pipeline_for(scene, self._options)
        return found

    def warm(self, scene: Scene) -> None:
        """Get a scene ready. What can't be loaded is told by its first work, and ends no worker."""
        try:
            pipeline = self.pipeline(scene)
            if isinstance(pipeline, _Warmable):
                pipeline.warm()
        except Exception:  # noqa: BLE001 - whatever it is, other scenes are still done
            traceback.print_exc()


def _work(order: _Order, mail: _Mail, bench: _Bench) -> Made | Failed | Kept:
    """Do one work; whatever goes wrong becomes an answer."""
    work, scene, asked = order
    if scene is None:
        return _failed(FailureClass.INTERNAL, f"This worker does no {work.scene}.", clean=True)
    try:
        pipeline = bench.pipeline(scene)
        if not isinstance(pipeline, Resumable):
            return Made(product=pipeline.run(work, mail.report))
        end = pipeline.run_or_save(work, mail.report, asked)
        return Made(product=end) if isinstance(end, Product) else Kept(saved=end)
    except PipelineError as error:
        return Failed(
            error_class=error.error_class,
            message=error.message,
            reason=error.reason,
            clean=error.error_class is not FailureClass.OUT_OF_MEMORY,
        )
    except ImportError as error:
        if any(words in str(error) for words in _MEMORY_WORDS):
            return _failed(FailureClass.OUT_OF_MEMORY, f"Out of memory: {error}", clean=False)
        return _failed(
            FailureClass.INTERNAL,
            f"The libraries of {work.scene} are not installed on this runner ({error.name}); "
            "`make setup-diffusion` brings those of genai.",
            clean=True,
        )
    except Exception as error:  # noqa: BLE001 - a process boundary: told, then the process is ended
        if is_out_of_memory(error):
            return _failed(FailureClass.OUT_OF_MEMORY, f"Out of memory: {error}", clean=False)
        return _failed(FailureClass.INTERNAL, f"{type(error).__name__}: {error}", clean=False)


def _failed(error_class: FailureClass, message: str, *, clean: bool) -> Failed:
    return Failed(error_class=error_class, message=message, reason=None, clean=clean)


def _private_stdout() -> BinaryIO:
    """Standard output for answers only: whatever a library prints goes to standard error."""
    private = os.dup(1)
    os.dup2(2, 1)
    return os.fdopen(private, "wb")


def _limit_memory(options: WorkerOptions) -> None:
    if options.memory_bytes_max is not None:
        most = options.memory_bytes_max
        resource.setrlimit(resource.RLIMIT_AS, (most, most))


def _end_group() -> None:
    if os.getpgrp() == os.getpid():
        os.killpg(0, signal.SIGKILL)
    os._exit(1)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
