"""Films from templates: they play, are cut on the beat, loud as they should be, always the same."""

import itertools
import re
import struct
import wave
import zlib
from pathlib import Path
from typing import Any

import av
import msgspec
import numpy as np
import numpy.typing as npt
import pytest
from PIL import Image, ImageCms, ImageDraw

from cutlog.ffmpeg import run_ffmpeg
from gpu_runners.pipelines.pipeline import InputError, InputReason, Product, Progress, Work
from gpu_runners.pipelines.smart import Smart, ffmpeg, film, sound
from gpu_runners.pipelines.smart.facts import Facts
from gpu_runners.pipelines.smart.pictures import Photo, open_photo, photo_format
from gpu_runners.pipelines.smart.template import shipped
from tests.gpu_runners.phones import dng
from tests.support.clips import samples

pytestmark = pytest.mark.media

SHORT: dict[str, Any] = {
    "aspect": "16:9",
    "music": {"style": "pop", "bpm": 120},
    "slots": [
        {"beats": 2, "effects": {"zoom": 0.5}},
        {"beats": 2, "transition": {"kind": "dissolve", "seconds": 0.3}},
        {"beats": 2},
    ],
    "texts": [{"key": "title", "slot": 0, "delay": 0}],
}
"""Three seconds."""


Pixels = npt.NDArray[np.uint8]


class Made(msgspec.Struct, frozen=True, kw_only=True):
    directory: Path
    facts: Facts
    product: Product
    progress: tuple[Progress, ...]

    @property
    def film(self) -> Path:
        return self.directory / "film.mp4"

    def frames(self) -> list[Pixels]:
        with av.open(str(self.film)) as film:
            return [
                np.asarray(frame.to_ndarray(format="rgb24"), np.uint8)
                for frame in film.decode(video=0)
            ]


def make(directory: Path, inputs: list[Path], *, lower: bool = False, **parameters: object) -> Made:
    directory.mkdir(parents=True, exist_ok=True)
    progress: list[Progress] = []
    work = Work(
        task_id="task",
        token=1,
        scene="smart",
        parameters=dict(parameters),
        inputs={path.name: path for path in inputs},
        directory=directory,
        lower_spec=lower,
    )
    product = Smart().run(work, progress.append)
    return Made(
        directory=directory,
        facts=msgspec.convert(product.facts, Facts),
        product=product,
        progress=tuple(progress),
    )


def photo(path: Path, size: tuple[int, int] = (640, 360), hue: int = 0) -> Path:
    picture = Image.new("RGB", size, [(190, 60, 40), (40, 150, 70), (50, 80, 190)][hue])
    draw = ImageDraw.Draw(picture)
    for i in range(12):
        draw.ellipse(
            (i * 60, i * 29, i * 60 + 80, i * 29 + 80), fill=(240, 220 - 9 * i, 90 + 9 * i)
        )
    picture.save(path)
    return path


@pytest.fixture(scope="module")
def material(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Two photos and a real clip with sound."""
    folder = tmp_path_factory.mktemp("material")
    clip = next(path for path in samples() if path.name == "bigbuckbunny.mp4")
    return [
        photo(folder / "one.jpg"),
        clip,
        photo(folder / "two.png", size=(360, 640), hue=1),
    ]


@pytest.fixture(scope="module")
def short_film(material: list[Path], tmp_path_factory: pytest.TempPathFactory) -> Made:
    directory = tmp_path_factory.mktemp("short") / "film"
    return make(directory, material, template=SHORT, texts={"title": "五月の旅"}, clip_sound=0.4)


def apart(one: Pixels, other: Pixels) -> float:
    return float(np.abs(one.astype(int) - other.astype(int)).mean())


def loudness(path: Path) -> tuple[float, float]:
    """Loudness in LUFS, highest peak in dBFS."""
    heard = "ebur128=framelog=quiet:peak=true"
    _, said = run_ffmpeg("-i", str(path), "-af", heard, "-f", "null", "-")
    loud = re.findall(r"I:\s+(-?[\d.]+) LUFS", said)[-1]
    return float(loud), float(re.findall(r"Peak:\s+(-?[\d.]+) dBFS", said)[-1])


def test_the_film_plays_everywhere_and_is_as_long_as_its_facts_say(short_film: Made) -> None:
    facts = short_film.facts
    with av.open(str(short_film.film)) as film:
        video, audio = film.streams.video[0], film.streams.audio[0]
        assert (video.codec_context.name, audio.codec_context.name) == ("h264", "aac")
        assert (video.width, video.height) == (facts.width, facts.height) == (1280, 720)
        assert video.frames == facts.frames == 90
        assert video.average_rate == 30
        assert video.codec_context.pix_fmt == "yuv420p"
        assert video.start_time == 0
        ends = [float((s.duration or 0) * (s.time_base or 0)) for s in (video, audio)]
        assert abs(ends[0] - ends[1]) < 0.04
    start = short_film.film.read_bytes()[:4096]
    assert b"moov" in start
    assert b"mdat" not in start.split(b"moov")[0]


def test_the_film_is_at_minus_14_lufs_and_never_clips(short_film: Made) -> None:
    loud, peak = loudness(short_film.film)
    assert short_film.facts.loudness_lufs == pytest.approx(-14, abs=0.3)
    assert loud == pytest.approx(-14, abs=1)
    assert peak < 0


def test_hard_cuts_are_seen_on_the_beats_that_the_facts_name(short_film: Made) -> None:
    facts = short_film.facts
    assert [cut.frame for cut in facts.cuts] == [30, 60]
    assert all(cut.on_beat for cut in facts.cuts)
    frames = [frame[::8, ::8].astype(int) for frame in short_film.frames()]
    changes = [float(np.abs(b - a).mean()) for a, b in itertools.pairwise(frames)]
    assert int(np.argmax(changes)) + 1 == 60


def test_poster_and_thumbnails_are_pictures_of_the_film(short_film: Made) -> None:
    assert [file.name for file in short_film.product.files] == [
        "film.mp4",
        "poster.jpg",
        "thumbnails.jpg",
    ]
    with Image.open(short_film.directory / "poster.jpg") as poster:
        assert poster.size == (1280, 720)
        seen = np.asarray(poster.convert("RGB"))
    assert apart(seen, short_film.frames()[short_film.facts.poster_frame]) < 4
    with Image.open(short_film.directory / "thumbnails.jpg") as strip:
        assert strip.height == 120
        assert strip.width == pytest.approx(10 * 120 * 16 / 9, abs=10 * 2)


def test_progress_rises_with_the_work_and_card_time_is_told(short_film: Made) -> None:
    percents = [progress.percent for progress in short_film.progress]
    assert percents[0] == 0
    assert percents[-1] == 100
    assert percents == sorted(percents)
    assert {p.phase for p in short_film.progress} >= {"reading", "preparing", "rendering", "done"}
    assert short_film.product.card_seconds > 0
    # How often ffmpeg tells depends on how fast it is; that it did, does not.
    rendering = [p.percent for p in short_film.progress if p.phase == "rendering"]
    assert rendering[0] < rendering[-1]


def test_no_graph_stands_on_a_command_line(
    material: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words: list[str] = []

    def told(arguments: list[str], directory: Path, **more: Any) -> str:  # noqa: ANN401
        words.extend(arguments)
        return ffmpeg.run(arguments, directory, **more)

    monkeypatch.setattr(film, "run_ffmpeg", told)
    monkeypatch.setattr(sound, "run", told)
    make(tmp_path / "film", material, lower=True, template=SHORT, clip_sound=0.4)
    assert sum("filter_complex" in word for word in words) > 2
    assert not any("[" in word and ";" in word for word in words)  # a word holds 128 KiB at most


def test_the_same_request_gives_the_same_bytes(
    material: list[Path], short_film: Made, tmp_path: Path
) -> None:
    again = make(
        tmp_path / "again", material, template=SHORT, texts={"title": "五月の旅"}, clip_sound=0.4
    )
    assert again.facts == short_film.facts
    for file, other in zip(again.product.files, short_film.product.files, strict=True):
        assert file.path.read_bytes() == other.path.read_bytes()


HOSTILE = {
    "title": "'; [0:v]drawtext=text=x,movie=/etc/passwd:%{eif:1:d}\\,\\'\n:,;[]{}%%\"$(reboot)`id`",
}


def test_hostile_words_are_words_and_hostile_names_are_names(tmp_path: Path) -> None:
    folder = tmp_path / "a'b;c[d]"
    folder.mkdir()
    # On Linux a name may hold anything but a slash.
    evil = photo(folder / "%03d concat:http';[x],movie=y.png")
    plain = photo(tmp_path / "plain.png")
    hostile = make(tmp_path / "hostile", [evil], lower=True, template=SHORT, texts=HOSTILE)
    without = make(tmp_path / "without", [plain], lower=True, template=SHORT)
    assert hostile.facts.frames == without.facts.frames
    assert (hostile.facts.texts, without.facts.texts) == (("title",), ())
    shown, plainly = hostile.frames(), without.frames()
    assert apart(shown[20], plainly[20]) > 0.5  # the words are seen
    assert apart(shown[80], plainly[80]) < 1.5  # and nowhere else


def test_words_of_nothing_but_controls_make_a_film_without_words(tmp_path: Path) -> None:
    given = photo(tmp_path / "a.png")
    bare = make(tmp_path / "bare", [given], lower=True, template=SHORT)
    odd = make(
        tmp_path / "odd", [given], lower=True, template=SHORT, texts={"title": "\x00\u202e\u200b"}
    )
    assert odd.film.read_bytes() == bare.film.read_bytes()


@pytest.mark.parametrize(
    ("parameters", "told"),
    [
        ({"template": "nope"}, "there are beat-cut"),
        ({"template": {"slots": [{"beats": 1, "x": 1}]}}, "The template is wrong"),
        ({"template": 7}, "parameters are wrong"),
        ({"texts": {"titel": "x"}}, "has no text `titel`; it has title"),
        ({"texts": {"title": "x" * 201}}, "length <= 200"),
        ({"size": "8k"}, "8k is none of 720p, 1080p"),
        ({"aspect": "2:1"}, "2:1 is none of 16:9, 9:16, 1:1, 4:5"),
        ({"filter_complex": "movie=/etc/passwd"}, "there is none of this name; there are template"),
    ],
)
def test_wrong_parameters_are_refused_with_the_field_that_is_wrong(
    parameters: dict[str, Any], told: str, tmp_path: Path
) -> None:
    with pytest.raises(InputError) as refused:
        make(tmp_path / "x", [photo(tmp_path / "a.png")], lower=False, **parameters)
    assert refused.value.reason == InputReason.PARAMETERS
    assert told in refused.value.message


def test_odd_photos_are_made_alike(tmp_path: Path) -> None:
    upright = Image.new("RGB", (300, 200), (200, 30, 30))
    ImageDraw.Draw(upright).rectangle((0, 0, 299, 40), fill=(20, 20, 220))
    turned = upright.transpose(Image.Transpose.ROTATE_90)
    exif = Image.Exif()
    exif[0x0112] = 6
    turned.save(tmp_path / "turned.jpg", exif=exif, quality=95)
    opened = opened_photo(tmp_path / "turned.jpg")
    assert opened.picture.size == (opened.width, opened.height) == (300, 200)
    blue = np.asarray(opened.picture)[10, 150].astype(int)
    assert blue[2] > 180
    assert blue[0] < 80

    upright.convert("CMYK").save(tmp_path / "cmyk.jpg", quality=95)
    red = np.asarray(opened_photo(tmp_path / "cmyk.jpg").picture)[150, 150].astype(int)
    assert abs(red - np.array([200, 30, 30])).max() < 30

    palette = upright.quantize(16)
    palette.info["transparency"] = 0
    palette.save(tmp_path / "palette.png", transparency=0)
    assert opened_photo(tmp_path / "palette.png").has_alpha

    deep = (np.linspace(0, 65_535, 200 * 300).reshape(200, 300)).astype(np.uint16)
    Image.fromarray(deep).save(tmp_path / "deep.png")
    levels = np.asarray(opened_photo(tmp_path / "deep.png").picture)
    assert levels[0].max() < 10
    assert levels[-1].min() > 245

    pictures = [Image.new("RGB", (64, 64), colour) for colour in ("red", "green", "blue")]
    pictures[0].save(tmp_path / "moves.gif", save_all=True, append_images=pictures[1:])
    moves = opened_photo(tmp_path / "moves.gif")
    assert np.asarray(moves.picture.convert("RGB"))[5, 5].tolist() == [255, 0, 0]
    assert "animation" in moves.notes[0]

    profile = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()
    upright.save(tmp_path / "profile.png", icc_profile=profile)
    upright.save(tmp_path / "nonsense.png", icc_profile=b"nonsense")
    for name in ("profile.png", "nonsense.png"):
        assert np.asarray(opened_photo(tmp_path / name).picture)[150, 150].tolist() == [200, 30, 30]


def test_odd_photos_are_shown_with_a_clip_and_told_in_the_facts(tmp_path: Path) -> None:
    see_through = Image.new("RGBA", (300, 300), (255, 0, 255, 0))
    ImageDraw.Draw(see_through).ellipse((60, 60, 240, 240), fill=(20, 120, 220, 255))
    see_through.save(tmp_path / "cut.png")
    frames = [Image.new("RGB", (64, 64), colour) for colour in ("red", "green")]
    frames[0].save(tmp_path / "moves.gif", save_all=True, append_images=frames[1:])
    film = make(
        tmp_path / "film",
        [tmp_path / "cut.png", tmp_path / "moves.gif"],
        lower=True,
        template="showcase",
        texts={"name": "Lamp"},
    )
    assert film.facts.notes == ("moves.gif: animation: its first picture is used",)
    first = film.frames()[60].astype(int)
    magenta = (first[:, :, 0] > 200) & (first[:, :, 1] < 60) & (first[:, :, 2] > 200)
    assert not magenta.any()  # the colour under what is transparent is never seen


def opened_photo(path: Path) -> Photo:
    photo = photo_format(path)
    assert photo
    return open_photo(path, photo)


def broken(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path


def bomb(path: Path) -> Path:
    """A PNG whose header claims 30,000 x 30,000 pixels."""
    content = photo(path).read_bytes()
    header = content[12:16] + struct.pack(">II", 30_000, 30_000) + content[24:29]
    checked = header + struct.pack(">I", zlib.crc32(header))
    return broken(path, content[:12] + checked + content[33:])


def cut_short(path: Path) -> Path:
    content = photo(path, size=(1600, 1200)).read_bytes()
    return broken(path, content[: len(content) // 2])


def tone(path: Path, seconds: float = 3.0, every: float = 0.5) -> Path:
    """A click each half second: 120 beats a minute, the first after 0.25 s."""
    t = np.arange(round(seconds * 48_000)) / 48_000
    since = np.mod(t - 0.25, every)
    sound = np.sin(2 * np.pi * 880 * t) * np.exp(-since * 40) * (t >= 0.25) * 0.6
    with wave.open(str(path), "wb") as out:
        out.setnchannels(1)
        out.setsampwidth(2)
        out.setframerate(48_000)
        out.writeframes((sound * 32_000).astype("<i2").tobytes())
    return path


def test_bad_inputs_are_each_refused_by_name_with_what_to_do(tmp_path: Path) -> None:
    cases = [
        (cut_short(tmp_path / "cut.jpg"), InputReason.TRUNCATED, "Upload it again"),
        (bomb(tmp_path / "bomb.png"), InputReason.TOO_LARGE, "make it smaller"),
        (broken(tmp_path / "none.jpg", b""), InputReason.EMPTY, "empty"),
        (broken(tmp_path / "text.mp4", b"hello " * 99), InputReason.NOT_MEDIA, "text file"),
        (
            broken(tmp_path / "list.m3u8", b"#EXTM3U\nhttp://example.test/a.ts\n"),
            InputReason.NOT_MEDIA,
            "not a video",
        ),
        (broken(tmp_path / "raw.dng", dng()), InputReason.UNSUPPORTED, "JPEG"),
        (broken(tmp_path / "junk.png", b"\x89PNG\r\n\x1a\n" + b"x" * 99), None, "picture"),
        (photo(tmp_path / "tiny.png", size=(4, 4)), InputReason.TOO_SHORT, "4 x 4"),
    ]
    good = photo(tmp_path / "good.png")
    for path, reason, told in cases:
        with pytest.raises(InputError) as refused:
            make(tmp_path / f"of-{path.name}", [good, path], template=SHORT)
        assert path.name in refused.value.message
        assert told in refused.value.message
        assert reason is None or refused.value.reason == reason
    with pytest.raises(InputError, match="at least one photo"):
        make(tmp_path / "nothing", [], template=SHORT)
    with pytest.raises(InputError, match="only music"):
        make(tmp_path / "music", [tone(tmp_path / "tone.wav")], template=SHORT)


def test_a_track_sets_the_beats_and_a_second_one_is_told(tmp_path: Path) -> None:
    inputs = [
        photo(tmp_path / "a.png"),
        tone(tmp_path / "tone.wav", seconds=8.0),
        photo(tmp_path / "b.png", hue=2),
        tone(tmp_path / "other.wav"),
    ]
    template = SHORT | {"music": {"bpm": 110}}
    film = make(tmp_path / "film", inputs, lower=True, template=template)
    assert film.facts.track
    assert film.facts.music == "tone.wav"
    assert film.facts.bpm == pytest.approx(120, abs=1)
    assert [cut.seconds for cut in film.facts.cuts] == pytest.approx([1.0, 2.0], abs=0.04)
    assert film.facts.notes == ("other.wav: a second music track is not used",)
    with av.open(str(film.film)) as opened:
        blocks = [frame.to_ndarray()[0] for frame in opened.decode(audio=0)]
    sound = np.abs(np.concatenate(blocks))
    for beat in (0.5, 1.0, 1.5, 2.0):
        near = sound[round((beat - 0.03) * 48_000) : round((beat + 0.06) * 48_000)]
        before = sound[round((beat - 0.2) * 48_000) : round((beat - 0.06) * 48_000)]
        assert near.max() > 3 * before.max()


def test_silence_stays_silence(tmp_path: Path) -> None:
    template = SHORT | {"music": {"style": "none"}}
    film = make(tmp_path / "film", [photo(tmp_path / "a.png")], lower=True, template=template)
    assert film.facts.loudness_lufs is None or film.facts.loudness_lufs < -60


def test_a_clip_shorter_than_its_slot_is_slowed_and_then_stays(tmp_path: Path) -> None:
    clip = next(path for path in samples() if path.name == "carphone_pristine.mp4")
    short = tmp_path / "short.mp4"
    run_ffmpeg("-loglevel", "error", "-i", str(clip), "-t", "0.6", "-an", str(short))
    film = make(tmp_path / "film", [short], lower=True, template=SHORT)
    assert film.facts.frames == 90
    assert film.facts.slots[0].shown[0].speed == pytest.approx(0.6, abs=0.01)


def test_less_is_smaller_and_1080p_is_the_same_edit_larger(tmp_path: Path) -> None:
    given = photo(tmp_path / "a.png")
    less = make(tmp_path / "less", [given], lower=True, template=SHORT)
    large = make(tmp_path / "large", [given], template=SHORT, size="1080p", aspect="1:1")
    assert (less.facts.width, less.facts.height) == (854, 480)
    assert (large.facts.width, large.facts.height) == (1080, 1080)
    assert less.facts.cuts == large.facts.cuts
    assert less.facts.slots == large.facts.slots


@pytest.mark.parametrize("name", list(shipped()))
def test_every_shipped_template_makes_a_film_of_one_photo_and_a_clip(
    name: str, material: list[Path], tmp_path: Path
) -> None:
    texts = {text.key: "Words 言葉" for text in shipped()[name].texts}
    film = make(tmp_path / "film", material[:2], lower=True, template=name, texts=texts)
    assert all(cut.on_beat for cut in film.facts.cuts)
    assert film.facts.loudness_lufs == pytest.approx(-14, abs=0.5)
    with av.open(str(film.film)) as opened:
        assert opened.streams.video[0].frames == film.facts.frames
    light = [float(frame.mean()) for frame in film.frames()[20:-30:15]]
    assert min(light) > 12


def odd_clip(out: Path, *arguments: str, chain: str = "null") -> Path:
    """Two seconds, red above, blue below."""
    source = "color=red:s=320x120:r=25:d=2[a];color=blue:s=320x120:r=25:d=2[b];"
    graph = f"{source}[a][b]vstack,{chain}[v]"
    run_ffmpeg("-loglevel", "error", "-filter_complex", graph, "-map", "[v]", *arguments, str(out))
    return out


def test_odd_clips_are_shown_upright_and_in_their_colours(tmp_path: Path) -> None:
    plain = odd_clip(tmp_path / "plain.mp4", "-c:v", "libx264")
    turned = tmp_path / "turned.mp4"
    run_ffmpeg(
        *("-loglevel", "error", "-display_rotation", "180", "-i", str(plain), "-c", "copy"),
        str(turned),
    )
    late = tmp_path / "late.mkv"
    run_ffmpeg(
        *("-loglevel", "error", "-i", str(plain), "-c", "copy", "-output_ts_offset", "5"), str(late)
    )
    ten_bit = odd_clip(
        tmp_path / "ten.mkv", "-c:v", "ffv1", chain="scale=321:241,format=yuv444p10le"
    )
    template = {"slots": [{"beats": 2, "move": "none"}] * 4, "music": {"bpm": 120}, "fade_out": 0}
    film = make(tmp_path / "film", [plain, turned, late, ten_bit], lower=True, template=template)
    frames = film.frames()
    assert film.facts.frames == len(frames) == 120
    red, blue = np.array([254, 0, 0]), np.array([0, 0, 254])
    for at, upside_down in ((15, False), (45, True), (75, False), (105, False)):
        above, below = frames[at][60, 400].astype(int), frames[at][420, 400].astype(int)
        expected = (blue, red) if upside_down else (red, blue)
        assert np.abs(above - expected[0]).max() < 40
        assert np.abs(below - expected[1]).max() < 40
