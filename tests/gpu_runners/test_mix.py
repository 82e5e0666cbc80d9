"""The film's sound before its pictures: pauses of a speaker, music under speech, loudness."""

from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from cutlog.ffmpeg import decode_sound
from gpu_runners.pipelines.autocut.survey import find_pauses
from gpu_runners.pipelines.keep_list import KeepList, KeptRange
from gpu_runners.pipelines.loudness import PEAK_DB, measured, settle
from gpu_runners.pipelines.probe import probe
from gpu_runners.pipelines.probe_limits import ProbeLimits
from gpu_runners.pipelines.render import (
    Music,
    RenderPlan,
    arguments,
    filter_graph,
    mix_arguments,
    mix_sound,
)
from gpu_runners.pipelines.silence import Span
from schema.scenes.autocut import AutocutParameters
from tests.support.features import made_up_analysis
from tests.support.signals import X264, flashes, write_sound

RATE = Fraction(25)
_HERTZ, _MUSIC_HERTZ = 16_000, 440


def test_a_speakers_pause_is_found_though_the_room_is_loud() -> None:
    analysis = made_up_analysis(20, RATE)
    analysis.power[:] = 0.1
    analysis.power[800:1200] = 0.001  # a room 20 dB below the voice, far above silence
    speech = (Span(start=0.5, end=8.0), Span(start=12.0, end=19.8))
    (pause,) = find_pauses(analysis, speech, AutocutParameters(margin_seconds=0.2))
    assert [pause.start, pause.end] == pytest.approx([8.2, 11.8])


def test_music_between_words_and_a_few_words_in_music_are_no_pauses() -> None:
    analysis = made_up_analysis(20, RATE)
    analysis.power[:] = 0.1
    often = (Span(start=0.5, end=8.0), Span(start=12.0, end=19.8))
    assert find_pauses(analysis, often, AutocutParameters()) == ()
    analysis.power[200:] = 0.0001
    assert find_pauses(analysis, (Span(start=0.2, end=1.8),), AutocutParameters()) == ()


@pytest.mark.media
def test_music_goes_down_while_somebody_speaks_and_comes_up_again(tmp_path: Path) -> None:
    source = flashes(tmp_path / "clip.mp4", *X264, "-c:a", "aac", seconds=8)
    tone = 0.2 * np.sin(np.arange(12 * 44_100) * 2 * np.pi * _MUSIC_HERTZ / 44_100)
    write_sound(tmp_path / "tone.wav", tone, 44_100)
    header = probe(source, ProbeLimits())
    plan = RenderPlan(
        source=source,
        header=header,
        rotation=0,
        interlaced=False,
        audio_index=header.audio_indexes[0],
        keep=KeepList(
            rate=RATE,
            ranges=(KeptRange(start_frame=0, end_frame=200, shot=0),),
            target_reached=True,
            poster_frame=0,
        ),
        film=tmp_path / "film.mp4",
        music=Music(path=tmp_path / "tone.wav", audio_index=0, start_seconds=0.5, level_db=-17),
        voice_db=-20,
        speech=(Span(start=3.0, end=4.0), Span(start=4.5, end=5.0)),
    )
    sound = decode_sound(mix_sound(plan, lambda _: None), _HERTZ)
    assert len(sound) == 8 * _HERTZ

    def music_at(seconds: float) -> float:
        part = sound[round((seconds - 0.2) * _HERTZ) : round((seconds + 0.2) * _HERTZ)]
        wave = np.exp(2j * np.pi * _MUSIC_HERTZ * np.arange(len(part)) / _HERTZ)
        return float(20 * np.log10(np.abs((part * wave).mean()) + 1e-9))

    loud = [music_at(at) for at in (1.2, 2.2, 6.2)]
    quiet = [music_at(at) for at in (3.2, 4.2, 4.8)]
    assert max(loud) - min(loud) < 1.5
    assert min(loud) - max(quiet) == pytest.approx(16, abs=2)


@pytest.mark.media
@pytest.mark.parametrize(("level", "spike"), [(0.01, 0.9), (0.3, 0.0), (0.006, 0.0)])
def test_the_gain_brings_any_mix_to_its_loudness_without_peaks(
    tmp_path: Path, level: float, spike: float
) -> None:
    random = np.random.default_rng(5)
    sound = random.normal(0, level, 6 * 48_000)
    sound[24_000::48_000] += spike
    mix = tmp_path / "mix.wav"
    write_sound(mix, sound, 48_000)
    found = settle(mix)
    assert found.after_lufs == pytest.approx(-14, abs=0.5)
    assert found.limited == (spike > 0.5)
    quiet = settle(_silence(tmp_path / "silence.wav"))
    assert (quiet.before_lufs, quiet.gain_db) == (None, 0.0)
    assert measured(mix, "anull")[1] <= max(PEAK_DB, 0.1)


@pytest.mark.media
def test_a_film_of_many_ranges_is_still_a_short_command(tmp_path: Path) -> None:
    source = flashes(tmp_path / "clip.mp4", *X264, "-c:a", "aac", seconds=8)
    header = probe(source, ProbeLimits())
    count = 600
    ranges = tuple(
        KeptRange(start_frame=at % 190, end_frame=at % 190 + 2, shot=0) for at in range(count)
    )
    plan = RenderPlan(
        source=source,
        header=header,
        rotation=0,
        interlaced=False,
        audio_index=header.audio_indexes[0],
        keep=KeepList(rate=RATE, ranges=ranges, target_reached=True, poster_frame=0),
        film=tmp_path / "film.mp4",
    )
    assert len(filter_graph(plan)) > 131_072  # more than Linux takes as one word
    words = arguments(plan) + mix_arguments(plan, tmp_path / "mix.wav")
    assert max(len(word) for word in words) < 10_000
    sound = decode_sound(mix_sound(plan, lambda _: None), _HERTZ)
    assert len(sound) == count * 2 / 25 * _HERTZ


def _silence(path: Path) -> Path:
    write_sound(path, np.zeros(3 * 48_000), 48_000)
    return path
