"""Films of clips whose every frame and sample is known: shape, sound, beats, title and edit."""

from fractions import Fraction
from pathlib import Path

import av
import numpy as np
import opentimelineio as otio
import pytest
from PIL import Image

from cutlog.clips import ClipFacts
from gpu_runners.pipelines.pipeline import InputError, InputReason
from tests.gpu_runners.conftest import Film, MakeFilm, cut
from tests.support.clips import odd, samples
from tests.support.signals import (
    X264,
    click_track,
    flashes,
    flashes_and_clicks,
    loudness_of,
    moving_box,
    red_columns,
    write_sound,
)

pytestmark = pytest.mark.media

# ------------------------------------------------------------------------------ sound and pictures


@pytest.mark.parametrize(
    ("name", "arguments", "sound"),
    [
        ("plain.mp4", (), ""),
        ("variable.mkv", ("-vf", "select='lt(t,3)+not(mod(n,25)-12)+not(mod(n,5))'", "-fps_mode",
                          "vfr", *X264, "-c:a", "libopus"), ""),
        ("late.ts", ("-output_ts_offset", "5", *X264, "-c:a", "mp2"), ""),
        ("surround.mkv", ("-ac", "6", "-ar", "96000", "-c:a", "flac", *X264), ""),
        ("odd.mov", ("-vf", "scale=321:181", "-c:v", "prores_ks", "-c:a", "pcm_s16le"), ""),
        ("behind.mp4", (*X264, "-c:a", "aac"), ",atrim=start=2.3"),
    ],
)  # fmt: skip
def test_sound_and_pictures_stay_together(
    make_film: MakeFilm, tmp_path: Path, name: str, arguments: tuple[str, ...], sound: str
) -> None:
    source = flashes(tmp_path / name, *arguments, sound=sound)
    film = make_film(source, target_seconds=60)
    seen, heard = flashes_and_clicks(film.path)
    assert len(heard) >= 3
    assert len(seen) >= len(heard)
    for click in heard:
        assert np.abs(seen - click).min() < 0.04


def test_the_sound_of_a_turned_clip_and_of_a_second_stream_stays_with_its_pictures(
    make_film: MakeFilm, tmp_path: Path
) -> None:
    plain = flashes(tmp_path / "plain.mp4")
    mix = "[0:a]volume=0[quiet];[0:a]anull[loud]"
    streams = ("-filter_complex", mix, "-map", "0:v", "-map", "[quiet]", "-map", "[loud]")
    two = odd(plain, tmp_path / "two.mp4", *streams, "-c:v", "copy", "-c:a", "aac")
    turn = ("-display_rotation", "90")
    turned = odd(two, tmp_path / "turned.mp4", "-map", "0", "-c", "copy", before=turn)
    film = make_film(turned, target_seconds=60)
    assert film.facts.height > film.facts.width
    seen, heard = flashes_and_clicks(film.path)
    assert len(heard) >= 5
    assert max(np.abs(seen - click).min() for click in heard) < 0.04


def test_a_film_is_as_loud_as_it_should_be(known_film: Film) -> None:
    assert known_film.facts.loudness is not None
    assert loudness_of(known_film.path) == pytest.approx(-14, abs=1)
    assert known_film.facts.loudness.lufs == pytest.approx(-14, abs=0.5)


@pytest.mark.parametrize("volume", ["-26dB", "14dB"])
def test_a_quiet_and_a_distorted_clip_become_as_loud_as_the_others(
    short_clip: Path, make_film: MakeFilm, tmp_path: Path, volume: str
) -> None:
    filters = ("-c:v", "copy", "-af", f"volume={volume}", "-c:a", "aac")
    source = odd(short_clip, tmp_path / "other.mp4", *filters)
    film = make_film(source, target_seconds=5, silence_db=-70)
    assert loudness_of(film.path) == pytest.approx(-14, abs=1)


# ------------------------------------------------------------------------------------------ shapes


@pytest.mark.parametrize(
    ("aspect", "size"), [("9:16", (720, 1280)), ("1:1", (720, 720)), ("source", (1280, 720))]
)
def test_a_subject_that_crosses_the_picture_stays_in_view(
    make_film: MakeFilm, tmp_path: Path, aspect: str, size: tuple[int, int]
) -> None:
    film = make_film(moving_box(tmp_path / "box.mp4"), target_seconds=5, aspect=aspect)
    assert (film.facts.width, film.facts.height) == size
    looks = red_columns(film.path)
    usual = float(np.median([area for _, _, area in looks]))
    assert usual > 0.01
    for left, right, area in looks:
        assert left > 0.005
        assert right < 0.995
        assert area == pytest.approx(usual, rel=0.1)


def test_in_a_turned_clip_the_window_follows_upwards(make_film: MakeFilm, tmp_path: Path) -> None:
    box = moving_box(tmp_path / "box.mp4")
    turn = ("-display_rotation", "90")
    film = make_film(
        odd(box, tmp_path / "turned.mp4", "-c", "copy", before=turn),
        target_seconds=5,
        aspect="16:9",
    )
    assert (film.facts.width, film.facts.height) == (1280, 720)
    areas = [area for _, _, area in red_columns(film.path)]
    assert min(areas) == pytest.approx(max(areas), rel=0.1)
    assert min(areas) > 0.01


def test_a_speaking_face_leads_the_window(make_film: MakeFilm) -> None:
    phone = next(path for path in samples() if path.name == "carphone_pristine.mp4")
    film = make_film(phone, target_seconds=3, aspect="9:16")
    assert film.facts.faces is not None
    assert film.facts.faces > 0.5
    assert {one.follow for one in film.facts.keep} == {"face"}


def test_the_full_size_is_the_same_edit(short_clip: Path, tmp_path: Path) -> None:
    preview = cut(short_clip, tmp_path / "preview", None, target_seconds=2)
    full = cut(short_clip, tmp_path / "full", None, target_seconds=2, size="1080p")
    assert (full.facts.width, full.facts.height) == (1920, 1080)
    assert full.facts.keep == preview.facts.keep
    with av.open(str(full.path)) as film:
        assert film.streams.video[0].codec_context.width == 1920


# ------------------------------------------------------------------------------------------- music


def test_with_music_every_join_lies_on_a_beat_that_is_heard_there(
    short_clip: Path, make_film: MakeFilm, tmp_path: Path
) -> None:
    beats = click_track(tmp_path / "music.wav", 112.0)
    mute = odd(short_clip, tmp_path / "mute.mp4", "-an", "-c:v", "copy")
    film = make_film(mute, music=tmp_path / "music.wav", target_seconds=4.2, min_shot_seconds=0.6)
    facts = film.facts.beats
    assert facts.of == "music"
    assert facts.bpm == pytest.approx(112, rel=0.01)
    in_film = beats - beats[0]
    _, heard = flashes_and_clicks(film.path)
    assert len(heard) >= 6
    assert max(np.abs(in_film - click).min() for click in heard[1:]) < 0.04
    joins = np.cumsum([one.end_frame - one.start_frame for one in film.facts.keep])[:-1] / 25
    assert len(joins) == facts.joins == facts.joins_on_beat >= 1
    for join in joins:
        assert np.abs(in_film - join).min() <= 1 / 25


def test_short_music_goes_on_from_its_beginning(
    short_clip: Path, make_film: MakeFilm, tmp_path: Path
) -> None:
    rate = 22_050
    sound = 0.3 * np.sin(np.arange(2 * rate) * 0.06)
    write_sound(tmp_path / "tone.wav", sound, rate)
    film = make_film(short_clip, music=tmp_path / "tone.wav", target_seconds=5)
    assert film.facts.loudness is not None
    assert film.facts.loudness.music
    assert loudness_of(film.path) == pytest.approx(-14, abs=1)
    with av.open(str(film.path)) as made:
        power = [float((f.to_ndarray() ** 2).mean()) for f in made.decode(audio=0)]
    middle = np.array(power[: len(power) * 3 // 4])
    assert middle[2:].min() > 0.05 * middle.mean()


def test_two_videos_three_files_and_silent_music_are_refused(
    short_clip: Path, make_film: MakeFilm, tmp_path: Path
) -> None:
    write_sound(tmp_path / "silence.wav", np.zeros(44_100), 22_050)
    for music, words in ((short_clip, "Of two files"), (tmp_path / "silence.wav", "silent")):
        with pytest.raises(InputError, match=words) as refused:
            make_film(short_clip, music=music)
        assert refused.value.reason == InputReason.INPUTS


# ------------------------------------------------------------------------ pictures, title and edit


def test_the_poster_and_the_thumbnails_are_of_the_film(known_film: Film) -> None:
    facts = known_film.facts
    with Image.open(known_film.poster) as poster:
        assert poster.size == (facts.width, facts.height)
        shown = np.asarray(poster.convert("L").resize((64, 36)), dtype=float)
    strip = facts.thumbnails
    with Image.open(known_film.thumbnails) as picture:
        assert picture.size == (strip.width * strip.count, strip.height)
        small = np.asarray(picture.convert("L"), dtype=float)
    with av.open(str(known_film.path)) as film:
        frames = [
            frame.reformat(64, 36, "gray").to_ndarray().astype(float)
            for frame in film.decode(video=0)
        ]
    apart = [float(np.abs(frame - shown).mean()) for frame in frames]
    assert apart[facts.poster_frame] < min(apart) + 1
    assert apart[facts.poster_frame] < 10
    step = round(strip.seconds * 25)
    for place in range(strip.count):
        part = small[:, place * strip.width : (place + 1) * strip.width]
        part = np.asarray(Image.fromarray(part.astype(np.uint8)).resize((64, 36)), dtype=float)
        assert np.abs(part - frames[place * step]).mean() < 12


def test_a_title_stands_on_the_first_seconds_only(make_film: MakeFilm, tmp_path: Path) -> None:
    source = flashes(tmp_path / "grey.mp4", "-an", *X264)
    film = make_film(source, target_seconds=6, title="Ein Tag am Meer · 海边的一天")
    with av.open(str(film.path)) as made:
        bright = [
            float((frame.to_ndarray(format="gray")[440:] > 200).mean())
            for frame in made.decode(video=0)
        ]
    assert film.facts.title
    assert min(bright[15:70]) > 0.005
    assert max(bright[100:]) < 0.001
    assert bright[0] < min(bright[15:70]) / 2


def test_an_editor_reads_the_same_ranges_out_of_the_edit(
    known_clip: ClipFacts, known_film: Film
) -> None:
    timeline = otio.adapters.read_from_file(str(known_film.edit))
    kinds = [track.kind for track in timeline.tracks]
    assert kinds == [otio.schema.TrackKind.Video, otio.schema.TrackKind.Audio]
    for track in timeline.tracks:
        clips = list(track.find_clips())
        assert [clip.name for clip in clips] == ["source"] * len(known_film.facts.keep)
        for clip, kept in zip(clips, known_film.facts.keep, strict=True):
            found = clip.source_range
            assert found.start_time.rate == 25
            assert found.start_time.value == kept.start_frame
            assert found.duration.value == kept.end_frame - kept.start_frame
            whole = clip.media_reference.available_range
            assert whole.duration.to_seconds() == pytest.approx(known_clip.seconds, abs=0.05)
        assert track.duration().to_seconds() == pytest.approx(known_film.facts.duration_seconds)


def test_titles_crops_and_music_are_made_the_same_each_time(tmp_path: Path) -> None:
    source = moving_box(tmp_path / "box.mp4", seconds=3, sound=True)
    click_track(tmp_path / "music.wav", 120, seconds=5)
    one, other = (
        cut(
            source,
            tmp_path / name,
            None,
            music=tmp_path / "music.wav",
            target_seconds=2,
            aspect="9:16",
            title="Again",
        )
        for name in ("one", "other")
    )
    assert one.facts == other.facts
    for name in ("path", "poster", "thumbnails", "edit"):
        assert getattr(one, name).read_bytes() == getattr(other, name).read_bytes()


def test_the_shape_of_a_film_is_that_of_its_clip_without_bars(
    make_film: MakeFilm, tmp_path: Path
) -> None:
    source = flashes(tmp_path / "four_to_three.mp4", "-vf", "scale=320:240,setsar=1", "-an", *X264)
    film = make_film(source, target_seconds=2)
    assert Fraction(film.facts.width, film.facts.height) == Fraction(4, 3)
    assert not film.facts.bars
