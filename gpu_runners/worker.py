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
from typing import BinaryIO, NamedTuple

import msgspec

from gpu_runners.pipelines.pipeline import (
    Pipeline,
    PipelineError,
    Product,
    Progress,
    Resumable,
    Work,
)
from gpu_runners.pipelines.scenes import pipeline_for
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


class _Order(NamedTuple):
    """A work, its pipeline, and what is set when it shall stop and be saved."""

    work: Work
    pipeline: Pipeline | None
    asked: threading.Event


class _Mail:
    """Lines in and out; knows at any instant whether a work is open."""

    def __init__(self, works: BinaryIO, answers: BinaryIO, pipelines: list[Pipeline]) -> None:
        self._works = works
        self._answers = answers
        self._pipelines = pipelines
        self._queue: queue.SimpleQueue[_Order | None] = queue.SimpleQueue()
        self._lock = threading.RLock()
        self._open: _Order | None = None

    def listen(self) -> None:
        """Read until the runner is gone; runs in a thread of its own."""
        for line in self._works:
            match decode_request(line):
                case Do(work=work):
                    pipeline = next((p for p in self._pipelines if p.scene == work.scene), None)
                    order = _Order(work, pipeline, threading.Event())
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
            if isinstance(self._open.pipeline, Resumable):
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
    pipelines = [pipeline_for(scene, options.limits) for scene in options.scenes]
    mail = _Mail(sys.stdin.buffer, _private_stdout(), pipelines)
    threading.Thread(target=mail.listen, name="mail", daemon=True).start()
    mail.greet()
    while (order := mail.next_order()) is not None:
        mail.close(_work(order, mail))
    return 0


def _work(order: _Order, mail: _Mail) -> Made | Failed | Kept:
    """Do one work; whatever goes wrong becomes an answer."""
    work, pipeline, asked = order
    if pipeline is None:
        return _failed(FailureClass.INTERNAL, f"This worker does no {work.scene}.", clean=True)
    try:
        if not isinstance(pipeline, Resumable):
            return Made(product=pipeline.run(work, mail.report))
        end = pipeline.run_or_save(work, mail.report, asked)
        return Made(product=end) if isinstance(end, Product) else Kept(saved=end)
    except PipelineError as error:
        return Failed(
            error_class=error.error_class, message=error.message, reason=error.reason, clean=True
        )
    except MemoryError as error:
        return _failed(FailureClass.OUT_OF_MEMORY, f"Out of memory: {error}", clean=False)
    except Exception as error:  # noqa: BLE001 - a process boundary: told, then the process is ended
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
