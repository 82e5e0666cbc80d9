"""Where somebody speaks: Silero's small network, or, without its file, how loud it is.

The network hears 32 ms at a time and remembers what it heard before; it costs about half a percent
of the time of the sound on one core.
"""

from pathlib import Path

import numpy as np
import onnxruntime
from numpy.typing import NDArray

from gpu_runners.pipelines.analysis import WINDOW_SECONDS, Analysis
from gpu_runners.pipelines.hearing import RATE, Samples
from gpu_runners.pipelines.silence import Span, runs

MODEL_FILE = "silero_vad.onnx"

_STEP_SAMPLES = 512
_CONTEXT_SAMPLES = 64
_BEGINS = 0.5
_ENDS = 0.35
"""A voice that has begun goes on down to this probability."""
_SPEECH_SECONDS_MIN = 0.25
_PAUSE_SECONDS_MIN = 0.1
"""Shorter pauses belong to a word."""

_LOUDER_THAN_NOISE = 10 ** (14 / 10)
_POWER_MIN = 10 ** (-48 / 10)


class Voice:
    """Hears blocks of samples; knows afterwards where somebody spoke."""

    def __init__(self, model: Path) -> None:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        self._session = onnxruntime.InferenceSession(
            str(model), sess_options=options, providers=["CPUExecutionProvider"]
        )
        self._rate = np.array(RATE, dtype=np.int64)
        self.forget()

    def forget(self) -> None:
        """Begin with another sound."""
        self._state = np.zeros((2, 1, 128), dtype=np.float32)
        self._waiting = np.zeros(_CONTEXT_SAMPLES, dtype=np.float32)
        self._chances: list[float] = []

    def hear(self, block: Samples) -> None:
        row = np.concatenate([self._waiting, block])
        at = _CONTEXT_SAMPLES
        while at + _STEP_SAMPLES <= len(row):
            heard = row[at - _CONTEXT_SAMPLES : at + _STEP_SAMPLES]
            told, state = self._session.run(
                None, {"input": heard[None], "state": self._state, "sr": self._rate}
            )
            self._state = np.asarray(state, dtype=np.float32)
            self._chances.append(float(np.asarray(told, dtype=np.float32)[0, 0]))
            at += _STEP_SAMPLES
        self._waiting = row[at - _CONTEXT_SAMPLES :]

    def spans(self) -> tuple[Span, ...]:
        """Spans of speech, in seconds of the sound."""
        return _spans(np.array(self._chances), _STEP_SAMPLES / RATE)


def speech_by_level(analysis: Analysis) -> tuple[Span, ...]:
    """Spans that stand out of the noise around them: a guess for where no model is at hand."""
    step = 3
    count = len(analysis.power) // step
    if not count:
        return ()
    power = analysis.power[: count * step].reshape(count, step).mean(axis=1)
    noise = float(np.percentile(power, 15))
    loud = power > max(_POWER_MIN, noise * _LOUDER_THAN_NOISE)
    return _spans(loud.astype(np.float64), step * WINDOW_SECONDS)


def _spans(chances: NDArray[np.float64], step_seconds: float) -> tuple[Span, ...]:
    """Runs that begin above one level and go on above a lower one, without short pauses."""
    found = [
        (start, end) for start, end in runs(chances >= _ENDS) if chances[start:end].max() >= _BEGINS
    ]
    joined: list[tuple[int, int]] = []
    for start, end in found:
        if joined and (start - joined[-1][1]) * step_seconds < _PAUSE_SECONDS_MIN:
            joined[-1] = (joined[-1][0], end)
        else:
            joined.append((start, end))
    return tuple(
        Span(start=start * step_seconds, end=end * step_seconds)
        for start, end in joined
        if (end - start) * step_seconds >= _SPEECH_SECONDS_MIN
    )
