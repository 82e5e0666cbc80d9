"""What is asked for: every clip and picture, in every scene that takes it, in several shapes."""

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

Json = dict[str, Any]

CLIPS: Final = ("a", "b", "bigbuckbunny", "bikes", "carphone_pristine", "muted_b", "world")
PHOTOS: Final = ("astronaut.png", "chelsea.png", "coffee.png", "motorcycle_left.png", "rocket.jpg")
MONTAGE: Final = "montage.mp4"
"""Joined from pieces of the clips, with music and planted silences."""
SHORT: Final = "short.mp4"
"""A second of a talking head, for cut-outs."""

RATIOS: Final = {"16:9": 16 / 9, "9:16": 9 / 16, "1:1": 1.0, "4:5": 0.8}
_TITLES: Final = {"16:9": "Am See", "9:16": "Ein Tag im Sommer", "1:1": "夏日 · Summer"}
_WORDS: Final = {
    "postcard": {"title": "Wish you were here", "place": "Lago di Como", "closing": "Bis bald!"},
    "beat-cut": {"title": "Weekend", "hook": "Los geht's", "closing": "Again!"},
    "story": {
        "title": "Mein Tag",
        "subtitle": "in fünf Bildern",
        "caption": "Erst Kaffee",
        "caption_two": "dann los",
        "closing": "Gute Nacht",
        "handle": "@cutlog",
    },
    "before-after": {"title": "One week later", "closing": "What a change"},
    "showcase": {
        "name": "Espresso No. 7",
        "tagline": "Roasted slowly",
        "point_one": "Dark and round",
        "point_two": "From one farm",
        "closing": "Try it",
        "price": "9,90 €",
    },
    "cinema": {"title": "The Long Way", "subtitle": "A film", "line": "慢慢走", "closing": "Fin"},
}


class Order(NamedTuple):
    """One task, and what its result must be."""

    name: str
    scene: str
    inputs: tuple[str, ...] = ()
    """Files by name."""
    parameters: Json = {}
    prompt: str | None = None
    shape: str | None = None
    """Of a film, of `RATIOS`; None: that of the input."""
    lines: int | None = 720
    """Of a film's shorter side; None: as it comes."""


def orders() -> tuple[Order, ...]:
    """All of them, in the order in which they are submitted."""
    return (*_autocut(), *_smart(), *_genai(), *_matting())


def _autocut() -> Iterator[Order]:
    for clip in CLIPS:
        for shape, title in _TITLES.items():
            asked = {"target_seconds": 6, "aspect": shape, "title": title}
            name = f"autocut-{clip}-{shape.replace(':', 'x')}"
            yield Order(name, "autocut", (f"{clip}.mp4",), asked, shape=shape)
    yield Order("autocut-world-as-it-is", "autocut", ("world.mp4",), {"target_seconds": 12})
    asked = {"target_seconds": 12, "aspect": "9:16", "title": "Rund um die Welt"}
    music = ("world.mp4", "sax.wav")
    yield Order("autocut-world-with-music", "autocut", music, asked, shape="9:16")
    asked = {"target_seconds": 14, "aspect": "16:9", "title": "Montage"}
    yield Order("autocut-montage", "autocut", (MONTAGE,), asked, shape="16:9")


def _smart() -> Iterator[Order]:
    mixed = (*PHOTOS[:2], "bigbuckbunny.mp4", PHOTOS[2], "a.mp4", PHOTOS[4], "world.mp4")
    shapes = {"story": "9:16", "showcase": "1:1"}
    for template, texts in _WORDS.items():
        asked: Json = {"template": template, "texts": texts}
        shape = shapes.get(template, "16:9")
        given = PHOTOS[2:4] if template in {"before-after", "showcase"} else mixed
        yield Order(f"smart-{template}", "smart", given, asked, shape=shape)
        one = f"smart-{template}-of-one-photo"
        yield Order(one, "smart", PHOTOS[:1], asked, shape=shape)
    asked = {"template": "beat-cut", "texts": _WORDS["beat-cut"], "aspect": "9:16"}
    clips = ("bigbuckbunny.mp4", "bikes.mp4", "world.mp4", "a.mp4", "sax.wav")
    yield Order("smart-beat-cut-of-clips-9x16", "smart", clips, asked, shape="9:16")
    asked = {"template": "postcard", "texts": _WORDS["postcard"], "aspect": "9:16"}
    yield Order("smart-postcard-9x16", "smart", PHOTOS, asked, shape="9:16")
    asked = {"template": "story", "texts": _WORDS["story"], "aspect": "4:5", "clip_sound": 0.6}
    talking = ("carphone_pristine.mp4", "bigbuckbunny.mp4", PHOTOS[1])
    yield Order("smart-story-4x5", "smart", talking, asked, shape="4:5")


def _genai() -> Iterator[Order]:
    small: Json = {"width": 256, "height": 256, "steps": 10, "seed": 7}
    yield Order("genai-words", "genai", (), small, "a red fox in the snow")
    asked: Json = {"steps": 10, "seed": 7, "width": 384, "strength": 0.3}
    yield Order("genai-picture", "genai", ("chelsea.png",), asked, "a cat, oil painting")
    for clip in ("bigbuckbunny.mp4", "a.mp4"):
        asked = {"steps": 6, "seed": 7, "seconds": 2, "strength": 0.3}
        name = f"genai-{clip.removesuffix('.mp4')}"
        yield Order(name, "genai", (clip,), asked, "clay", lines=None)


def _matting() -> Iterator[Order]:
    yield Order("matting-png", "matting", PHOTOS)
    yield Order("matting-webp", "matting", PHOTOS, {"format": "webp", "size": 600})
    white = {"format": "jpeg", "size": 600, "margin": 0.1}
    yield Order("matting-white", "matting", PHOTOS, white)
    yield Order("matting-clip", "matting", (SHORT,), lines=None)
