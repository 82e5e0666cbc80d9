"""Files as phones, editors and accidents make them: the right film, or a refusal that says why."""

from pathlib import Path

import av
import numpy as np
import pytest

from cutlog.ffmpeg import run_ffmpeg
from cutlog.film_check import check_film
from gpu_runners.pipelines.pipeline import InputError, InputReason
from gpu_runners.pipelines.probe_limits import ProbeLimits
from schema.failures import FailureClass
from tests.gpu_runners.conftest import Film, MakeFilm
from tests.support.clips import odd

pytestmark = pytest.mark.media

_X264 = ("-c:v", "libx264", "-preset", "ultrafast", "-crf", "20")


def _checked(film: Film, target: float) -> Film:
    check_film(
        film.path,
        film.source,
        film.keep,
        target,
        target_reached=film.facts.target_reached,
    )
    return film


def test_without_sound_motion_decides(
    short_clip: Path, make_film: MakeFilm, tmp_path: Path
) -> None:
    frozen = "loop=loop=50:size=1:start=60"  # the picture stands still for 2 s from 2.4 s on
    source = odd(short_clip, tmp_path / "mute.mp4", "-vf", frozen, "-an", *_X264)
    film = _checked(make_film(source, target_seconds=4), 4)
    assert not film.facts.sound
    (still,) = film.facts.still
    assert still.start == pytest.approx(2.4, abs=0.25)
    assert still.end == pytest.approx(4.4, abs=0.1)
    for one in film.facts.keep:
        assert one.end_seconds <= 2.6 or one.start_seconds >= 4.4


def test_a_variable_frame_rate_is_cut_by_the_frames_own_instants(
    short_clip: Path, make_film: MakeFilm, tmp_path: Path
) -> None:
    choose = "select='lt(t,3)+not(mod(n,5))'"
    source = odd(
        short_clip, tmp_path / "vfr.mp4", "-vf", choose, "-fps_mode", "vfr", *_X264, "-c:a", "copy"
    )
    film = _checked(make_film(source, target_seconds=5), 5)
    assert film.facts.rate == "25/1"
    assert film.facts.source.frames < 25 * 8 / 1.5
    assert film.facts.duration_seconds == 5


def test_a_turned_phone_clip_is_turned_once(
    short_clip: Path, make_film: MakeFilm, tmp_path: Path
) -> None:
    turn = ("-display_rotation", "90")
    source = odd(short_clip, tmp_path / "turned.mp4", "-c", "copy", before=turn)
    film = _checked(make_film(source, target_seconds=4), 4)
    assert (film.facts.width, film.facts.height) == (720, 1280)
    assert film.facts.source.rotation in (90, 270)
    with av.open(str(film.path)) as made:
        frame = next(made.decode(video=0))
        assert (frame.width, frame.height, frame.rotation) == (720, 1280, 0)
        picture = frame.to_ndarray(format="gray")
    assert picture[620:660, :].std() > 10  # the picture fills the middle …
    assert picture[:100].std() < 3 or picture[:100].mean() > 20  # … and is not squeezed


def test_an_odd_size_becomes_even(short_clip: Path, make_film: MakeFilm, tmp_path: Path) -> None:
    sized = ("-vf", "scale=321:241,format=yuv444p", *_X264)
    source = odd(short_clip, tmp_path / "odd.mp4", *sized, "-c:a", "copy")
    film = _checked(make_film(source, target_seconds=4), 4)
    assert (film.facts.source.width, film.facts.source.height) == (321, 241)
    assert (film.facts.width, film.facts.height) == (1280, 720)


def test_pixels_that_are_not_square_keep_their_shape(
    short_clip: Path, make_film: MakeFilm, tmp_path: Path
) -> None:
    sized = ("-vf", "scale=240:270,setsar=2/1", *_X264)
    source = odd(short_clip, tmp_path / "anamorphic.mp4", *sized, "-c:a", "copy")
    _checked(make_film(source, target_seconds=4), 4)


def test_time_starts_at_nought_whatever_the_container_says(
    short_clip: Path, make_film: MakeFilm, tmp_path: Path
) -> None:
    source = odd(short_clip, tmp_path / "late.mkv", "-c", "copy", "-output_ts_offset", "5")
    film = _checked(make_film(source, target_seconds=5), 5)
    assert film.facts.source.seconds == pytest.approx(8, abs=0.1)


def test_the_stream_that_is_heard_is_taken(
    short_clip: Path, make_film: MakeFilm, tmp_path: Path
) -> None:
    mix = "[0:a]volume=0[quiet];[0:a]anull[loud]"
    streams = ("-filter_complex", mix, "-map", "0:v", "-map", "[quiet]", "-map", "[loud]")
    source = odd(short_clip, tmp_path / "two.mp4", *streams, "-c:v", "copy", "-c:a", "aac")
    film = make_film(source, target_seconds=4)
    level = run_ffmpeg(*("-i", str(film.path), "-af", "volumedetect", "-vn", "-f", "null", "-"))[1]
    assert float(level.split("max_volume: ")[1].split(" ")[0]) > -20


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("six_channels.mkv", ("-c:v", "copy", "-ac", "6", "-ar", "96000", "-c:a", "flac")),
        ("vp9.webm", ("-c:v", "libvpx-vp9", "-cpu-used", "8", "-c:a", "libopus")),
        ("stream.ts", ("-c", "copy")),
        ("old.avi", ("-c:v", "mpeg4", "-q:v", "3", "-c:a", "pcm_s16le")),
        ("ten_bit.mov", ("-c:v", "prores_ks", "-c:a", "pcm_s24le")),
        ("sixty.mp4", ("-vf", "fps=60000/1001", *_X264, "-c:a", "copy")),
    ],
)
def test_common_containers_codecs_and_rates_work(
    short_clip: Path, make_film: MakeFilm, tmp_path: Path, name: str, arguments: tuple[str, ...]
) -> None:
    source = odd(short_clip, tmp_path / name, *arguments)
    film = _checked(make_film(source, target_seconds=4), 4)
    assert film.facts.target_reached


def test_hdr_is_toned_down_and_never_pale(
    short_clip: Path, make_film: MakeFilm, tmp_path: Path
) -> None:
    to_pq = (
        "setparams=range=tv:colorspace=bt709:color_primaries=bt709:color_trc=bt709,"
        "zscale=t=linear:npl=203,format=gbrpf32le,"
        "zscale=p=bt2020:t=smpte2084:m=bt2020nc:r=tv,format=yuv420p10le"
    )
    tags = ("-color_primaries", "bt2020", "-color_trc", "smpte2084", "-colorspace", "bt2020nc")
    source = odd(short_clip, tmp_path / "hdr.mp4", "-vf", to_pq, *_X264, *tags, "-c:a", "copy")
    film = make_film(source, target_seconds=4)
    assert film.facts.source.hdr
    plain = make_film_of(short_clip, tmp_path / "plain", film)
    with av.open(str(film.path)) as made:
        frame = next(made.decode(video=0))
        assert frame.format.name == "yuv420p"
        toned = frame.to_ndarray(format="gray").astype(float)
    assert toned.std() > 0.6 * plain.std()
    assert np.corrcoef(toned.ravel(), plain.ravel())[0, 1] > 0.9


def make_film_of(source: Path, folder: Path, like: Film) -> np.ndarray:
    """The source's picture at the first kept instant, at the film's size, in grey."""
    folder.mkdir()
    still = folder / "still.png"
    run_ffmpeg(
        *("-loglevel", "error", "-y", "-ss", str(like.keep[0][0]), "-i", str(source)),
        *("-vf", "scale=1280:720,format=gray", "-frames:v", "1", str(still)),
    )
    with av.open(str(still)) as opened:
        return next(opened.decode(video=0)).to_ndarray(format="gray").astype(float)


def test_a_video_that_ends_before_its_container_is_counted_not_believed(
    short_clip: Path, make_film: MakeFilm, tmp_path: Path
) -> None:
    streams = ("-filter_complex", "[0:v]trim=end=4[v]", "-map", "[v]", "-map", "0:a")
    source = odd(short_clip, tmp_path / "shorter.mp4", *streams, *_X264, "-c:a", "copy")
    film = make_film(source, target_seconds=6)
    assert film.facts.source.seconds == pytest.approx(4, abs=0.1)
    assert not film.facts.target_reached


# ----------------------------------------------------------------------------------- refusals


def _refusal(make_film: MakeFilm, source: Path, limits: ProbeLimits | None = None) -> InputError:
    with pytest.raises(InputError) as refused:
        make_film(source, limits)
    return refused.value


def test_what_is_no_video_is_refused_each_in_its_own_words(
    short_clip: Path, make_film: MakeFilm, tmp_path: Path
) -> None:
    nothing, text, noise = (tmp_path / name for name in ("empty.mp4", "text.mp4", "noise.mp4"))
    nothing.write_bytes(b"")
    text.write_text("Dear editor, this is not a film.\n" * 500)
    noise.write_bytes(np.random.default_rng(7).bytes(100_000))
    whole = short_clip.read_bytes()
    cut = tmp_path / "cut.mp4"
    cut.write_bytes(whole[: len(whole) * 7 // 10])
    fast = odd(short_clip, tmp_path / "fast.mp4", "-c", "copy", "-movflags", "+faststart")
    half = tmp_path / "half.mp4"
    half.write_bytes(fast.read_bytes()[: fast.stat().st_size * 6 // 10])
    sound = odd(short_clip, tmp_path / "sound.mp4", "-vn", "-c:a", "copy")
    single = odd(short_clip, tmp_path / "single.mp4", "-frames:v", "1", "-an", *_X264)
    picture = odd(short_clip, tmp_path / "picture.png", "-frames:v", "1")
    refusals = {
        source.name: _refusal(make_film, source)
        for source in (nothing, text, noise, cut, half, sound, single, picture)
    }
    reasons = {name: refusal.reason for name, refusal in refusals.items()}
    assert reasons == {
        "empty.mp4": InputReason.EMPTY,
        "text.mp4": InputReason.NOT_MEDIA,
        "noise.mp4": InputReason.NOT_MEDIA,
        "cut.mp4": InputReason.TRUNCATED,
        "half.mp4": InputReason.TRUNCATED,
        "sound.mp4": InputReason.NO_VIDEO,
        "single.mp4": InputReason.TOO_SHORT,
        "picture.png": InputReason.NOT_MEDIA,
    }
    told = {refusals[name].message for name in reasons if name not in ("noise.mp4", "picture.png")}
    assert len(told) == 6
    assert {refusal.error_class for refusal in refusals.values()} == {FailureClass.INPUT}


def test_half_a_matroska_is_refused_as_cut_short(
    short_clip: Path, make_film: MakeFilm, tmp_path: Path
) -> None:
    whole = odd(short_clip, tmp_path / "whole.mkv", "-c", "copy").read_bytes()
    half = tmp_path / "half.mkv"
    half.write_bytes(whole[: len(whole) // 2])
    assert _refusal(make_film, half).reason == InputReason.TRUNCATED


def test_a_playlist_opens_no_other_file(
    short_clip: Path, make_film: MakeFilm, tmp_path: Path
) -> None:
    playlist = tmp_path / "list.mp4"
    playlist.write_text(f"#EXTM3U\n#EXT-X-TARGETDURATION:8\n#EXTINF:8,\n{short_clip}\n")
    assert _refusal(make_film, playlist).reason == InputReason.NOT_MEDIA
    hidden = tmp_path / "hidden.mp4"
    hidden.write_bytes(b"#EXTM3U\n#EXTINF:8,\n" + str(short_clip).encode() + b"\n\0\0\0\0")
    assert _refusal(make_film, hidden).reason == InputReason.NOT_MEDIA


def test_limits_of_length_and_pixels_are_kept(short_clip: Path, make_film: MakeFilm) -> None:
    longer = _refusal(make_film, short_clip, ProbeLimits(seconds_max=5))
    assert longer.error_class is FailureClass.TOO_LONG
    assert longer.reason == InputReason.TOO_LONG
    larger = _refusal(make_film, short_clip, ProbeLimits(pixels_max=100_000))
    assert larger.reason == InputReason.TOO_LARGE


def test_damaged_bytes_in_the_middle_end_in_a_film_or_a_refusal(
    short_clip: Path, make_film: MakeFilm, tmp_path: Path
) -> None:
    whole = bytearray(short_clip.read_bytes())
    for seed in range(6):
        random = np.random.default_rng(seed)
        fuzzed = bytearray(whole)
        for place in random.integers(1000, len(whole), size=50 * 4**seed):
            fuzzed[int(place)] = int(random.integers(0, 256))
        source = tmp_path / f"fuzzed{seed}.mp4"
        source.write_bytes(fuzzed)
        try:
            film = make_film(source, target_seconds=4)
        except InputError as refused:
            assert refused.message  # noqa: PT017 - either end is right, silence is not
        else:
            assert film.facts.frames > 0
