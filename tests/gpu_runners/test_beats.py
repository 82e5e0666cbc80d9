"""Beats and speech of made-up sound."""

import numpy as np
import pytest

from gpu_runners.pipelines.beats import Beats, Onsets, find_beats
from gpu_runners.pipelines.hearing import RATE
from gpu_runners.pipelines.speech import Voice
from tests.gpu_runners.conftest import models_directory


def _clicks(
    bpm: float, seconds: float = 20.0, first: float = 0.37
) -> tuple[np.ndarray, np.ndarray]:
    """A sound with a click on each beat, and where they are."""
    random = np.random.default_rng(7)
    sound = random.normal(0, 0.002, int(seconds * RATE)).astype(np.float32)
    beats = np.arange(first, seconds - 0.1, 60 / bpm)
    decay = np.arange(800)
    for beat in beats:
        at = round(beat * RATE)
        click = 0.6 * np.exp(-decay / 150) * np.sin(decay * 0.4)
        sound[at : at + 800] += click.astype(np.float32)
    return sound, beats


def _beats(sound: np.ndarray, block: int = 4096) -> Beats:
    onsets = Onsets()
    for start in range(0, len(sound), block):
        onsets.hear(sound[start : start + block])
    return find_beats(onsets.row())


@pytest.mark.parametrize("bpm", [70, 96.5, 120, 140])
def test_every_beat_of_a_click_track_is_found_to_a_hundredth_of_a_second(bpm: float) -> None:
    sound, truth = _clicks(bpm)
    found = _beats(sound)
    assert found.bpm == pytest.approx(bpm, rel=0.01)
    assert len(found.instants) == len(truth)
    assert np.abs(np.array(found.instants) - truth).max() < 0.01


def test_a_very_fast_track_gives_every_second_beat() -> None:
    sound, truth = _clicks(174)
    found = np.array(_beats(sound).instants)
    assert len(found) == pytest.approx(len(truth) / 2, abs=1)
    assert max(np.abs(truth - beat).min() for beat in found) < 0.01


def test_beats_begin_and_end_with_the_music() -> None:
    sound, truth = _clicks(120, seconds=16, first=3.0)
    sound[: int(2.9 * RATE)] = 0
    quiet = np.concatenate([sound, np.zeros(4 * RATE, dtype=np.float32)])
    found = _beats(quiet).instants
    assert found[0] == pytest.approx(truth[0], abs=0.02)
    assert truth[-1] - 0.02 <= found[-1] <= 16.02


def test_it_does_not_matter_in_which_pieces_the_sound_comes() -> None:
    sound, _ = _clicks(110)
    assert _beats(sound, 333) == _beats(sound, 50_000)


def test_noise_silence_and_a_moment_have_no_beat() -> None:
    random = np.random.default_rng(3)
    noise = random.normal(0, 0.1, 15 * RATE).astype(np.float32)
    for sound in (noise, np.zeros(15 * RATE, dtype=np.float32), noise[:RATE], noise[:0]):
        assert _beats(sound).instants == ()


@pytest.mark.media
def test_the_network_hears_no_speech_in_noise_and_beats_and_forgets() -> None:
    voice = Voice(models_directory() / "silero_vad.onnx")
    random = np.random.default_rng(3)
    for sound in (_clicks(120)[0], random.normal(0, 0.05, 10 * RATE).astype(np.float32)):
        voice.forget()
        for start in range(0, len(sound), 1000):
            voice.hear(sound[start : start + 1000])
        assert voice.spans() == ()
