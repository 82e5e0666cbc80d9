"""Words as pictures: every script drawn, lines broken where they may be, nothing hostile shown."""

import numpy as np
import pytest
from PIL import Image

from gpu_runners.pipelines.fonts import (
    TextStyle,
    clean,
    language_of,
    text_picture,
)
from schema.scenes.smart import Family, Language

STYLE = TextStyle(pixels=40)


def drawn(
    text: str, style: TextStyle = STYLE, *, width_max: int = 800, lines_max: int = 3
) -> Image.Image:
    picture = text_picture(text, style, width_max=width_max, lines_max=lines_max)
    assert picture is not None
    return picture


def ink(picture: Image.Image) -> int:
    return int((np.asarray(picture.getchannel("A")) > 128).sum())


@pytest.mark.parametrize(
    "text",
    [
        *("Wish you were here", "春天的明信片", "夏の思い出", "여름의 추억", "مرحبا", "שלום"),
        *("नमस्ते", "สวัสดี", "★", "😀"),
    ],
)
def test_every_script_is_drawn_with_letters_and_not_with_one_empty_box(text: str) -> None:
    picture = drawn(text)
    assert ink(picture) > 100
    unknown = text_picture("\U0010fffd" * len(text), STYLE, width_max=800)
    assert unknown is None


def test_han_characters_take_the_form_of_their_language() -> None:
    forms = {
        language: text_picture("直骨", STYLE, width_max=800, language=language)
        for language in Language
    }
    chinese, japanese = forms[Language.CHINESE], forms[Language.JAPANESE]
    assert chinese is not None
    assert japanese is not None
    assert chinese.tobytes() != japanese.tobytes()
    assert language_of("骨のかたち") is Language.JAPANESE
    assert language_of("뼈 骨") is Language.KOREAN
    assert language_of("骨") is Language.CHINESE


def test_families_look_different_and_the_same_words_always_the_same() -> None:
    looks = {drawn("Hello", TextStyle(pixels=40, family=family)).tobytes() for family in Family}
    assert len(looks) == len(Family)
    assert drawn("Hello").tobytes() == drawn("Hello").tobytes()


@pytest.mark.parametrize("text", ["word " * 60, "長" * 300, "x" * 500, "a\n" * 40])
def test_long_words_never_leave_their_box(text: str) -> None:
    picture = drawn(text, width_max=400, lines_max=2)
    assert picture.width <= 400
    assert picture.height < 200


def test_a_long_text_becomes_smaller_before_it_is_cut() -> None:
    one, longer = drawn("Seven days of light", lines_max=1), drawn("x" * 60, lines_max=1)
    assert longer.height < one.height


def test_chinese_breaks_between_letters_but_no_line_begins_with_a_full_stop() -> None:
    one = drawn("愿你安好。", width_max=1_000)
    style = TextStyle(pixels=40)
    broken = drawn("愿你安好。", style, width_max=round(one.width * 0.95), lines_max=2)
    assert broken.height > one.height
    lower = np.asarray(broken.getchannel("A"))[broken.height // 2 :]
    assert (lower > 128).sum() > 400  # more than a full stop alone


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("a\x00b\x07c", "abc"),
        ("evil\u202etxt.exe", "eviltxt.exe"),
        ("a\u2066b\u2069", "ab"),
        ("x\u200by", "xy"),
        ("  one \t two  \r\n three", "one two\nthree"),
        ("e" + "\u0301\u0302\u0303\u0304\u0305\u0306\u0307", None),
    ],
)
def test_controls_overrides_and_towers_of_marks_are_taken_out(text: str, kept: str | None) -> None:
    cleaned = clean(text)
    if kept is None:
        assert len(cleaned) <= 5
    else:
        assert cleaned == kept


@pytest.mark.parametrize("text", ["", "   ", "\n\n", "\u202e\u200b", "\ue000"])
def test_what_can_not_be_seen_gives_no_picture(text: str) -> None:
    assert text_picture(text, STYLE, width_max=400) is None


def test_a_mark_alone_at_the_beginning_is_no_letter() -> None:
    assert text_picture("\u0301", STYLE, width_max=400) is None
