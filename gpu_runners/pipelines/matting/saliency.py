"""What stands out of a picture: U-2-Net on onnxruntime, one session for the life of a worker."""

import contextlib
import threading
from pathlib import Path

import cv2
import numpy as np
import onnxruntime

from gpu_runners.pipelines.matting.network import NetworkError, said_anew
from gpu_runners.pipelines.matting.pixels import Colours, Soft
from gpu_runners.pipelines.needs import CUT_OUT_MODEL
from gpu_runners.pipelines.pipeline import PipelineError
from schema.failures import FailureClass

SIDE = 320
"""The network sees every picture as a square of this side."""

MODEL = CUT_OUT_MODEL

_MEAN = np.array((0.485, 0.456, 0.406), np.float32)
_SPREAD = np.array((0.229, 0.224, 0.225), np.float32)
_PROVIDERS = ("CUDAExecutionProvider", "CPUExecutionProvider")


class Saliency:
    """The network, loaded when it is first needed. Two threads may look at once."""

    def __init__(self, models_directory: Path) -> None:
        self._path = models_directory / MODEL
        self._session: onnxruntime.InferenceSession | None = None
        self._lock = threading.Lock()

    def warm(self) -> None:
        """Load the network, if its file is there; that it isn't is said by the first work."""
        if self._path.is_file():
            self._loaded()

    def look(self, colours: Colours) -> Soft:
        """How much each part of a picture belongs to its subject: SIDE x SIDE, 0 to 1.

        Errors: PipelineError.
        """
        session = self._loaded()
        small = cv2.resize(colours, (SIDE, SIDE), interpolation=cv2.INTER_AREA)
        scaled = small.astype(np.float32) / max(1, int(small.max()))
        seen = np.ascontiguousarray(((scaled - _MEAN) / _SPREAD).transpose(2, 0, 1)[None])
        first = session.get_outputs()[0].name
        try:
            (found,) = session.run([first], {session.get_inputs()[0].name: seen})
        except Exception as error:
            if "alloc" in str(error).lower():
                raise PipelineError(
                    FailureClass.OUT_OF_MEMORY, "There was no memory for the network."
                ) from error
            raise
        return np.asarray(np.clip(np.asarray(found)[0, 0], 0, 1), np.float32)

    def _loaded(self) -> onnxruntime.InferenceSession:
        with self._lock:
            if self._session is None:
                self._session = _load(self._path)
            return self._session


def _load(path: Path) -> onnxruntime.InferenceSession:
    if not path.is_file():
        raise PipelineError(
            FailureClass.INTERNAL,
            f"The runner lacks the model {path.name}: `make setup` brings it, and "
            "CUTLOG_RUNNER_MODELS_DIRECTORY names its folder.",
        )
    options = onnxruntime.SessionOptions()
    # Two pictures at once with a thread each do more than one picture with two threads: reading
    # and writing of the one fill the gaps of the other.
    options.intra_op_num_threads = 1
    options.inter_op_num_threads = 1
    options.enable_mem_pattern = False  # it plans for one run at a time, and takes a third more
    options.log_severity_level = 3
    file = path.read_bytes()
    with contextlib.suppress(NetworkError):  # one of another make is taken as it is
        file = said_anew(file)
    there = onnxruntime.get_available_providers()
    providers = [provider for provider in _PROVIDERS if provider in there]
    return onnxruntime.InferenceSession(file, options, providers=providers)
