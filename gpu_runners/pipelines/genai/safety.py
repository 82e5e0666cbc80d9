"""What is not made: a hook that judges prompts and pictures; its default is a small list.

An installation puts a real judge in its place by naming it in `CUTLOG_GENAI_SAFETY`, as
`package.module:name` of something callable without arguments that returns a `Safety`.
"""

import functools
import importlib
import re
import unicodedata
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol, runtime_checkable

from PIL import Image

from gpu_runners.pipelines.pipeline import PipelineError
from schema.failures import FailureClass

SETTING = "CUTLOG_GENAI_SAFETY"
_WORDS = Path(__file__).with_name("refused_words.txt")
_PLAIN = str.maketrans("013457@$", "oieastas")
"""Digits and signs that stand for letters where somebody hides a word."""


@runtime_checkable
class Safety(Protocol):
    """A judge. It says why something is refused, in a sentence for people, or None."""

    def judge_prompt(self, prompt: str) -> str | None:
        """Before anything is loaded; the negative prompt is not asked about."""
        ...

    def judge_picture(self, picture: Image.Image) -> str | None:
        """Of each picture that was made, before it is written; of a clip, of every frame."""
        ...


class WordList:
    """Refuses prompts with a word, or a run of words, of a list; lets every picture pass."""

    def __init__(self, path: Path = _WORDS) -> None:
        lines = path.read_text(encoding="utf-8").splitlines()
        phrases = [line.strip() for line in lines if line.strip() and not line.startswith("#")]
        words = "|".join(re.escape(_plain(phrase).strip()) for phrase in phrases)
        self._refused = re.compile(rf" (?:{words})s? ") if phrases else None

    def judge_prompt(self, prompt: str) -> str | None:
        if self._refused is None or not self._refused.search(_plain(prompt)):
            return None
        return "The prompt asks for something that is not made here."

    def judge_picture(self, picture: Image.Image) -> str | None:
        del picture
        return None


def safety_of(environ: Mapping[str, str]) -> Safety:
    """The judge that the environment names. Errors: PipelineError (INTERNAL), if there is none."""
    named = environ.get(SETTING, "")
    if not named:
        return _default()
    module, _, name = named.partition(":")
    try:
        made: object = getattr(importlib.import_module(module), name)()
    except (ImportError, AttributeError, TypeError, ValueError) as error:
        raise PipelineError(
            FailureClass.INTERNAL, f"{SETTING} names no judge: {named} ({error})."
        ) from error
    if not isinstance(made, Safety):
        raise PipelineError(FailureClass.INTERNAL, f"{SETTING}: {named} is no judge.")
    return made


def refuse(why: str | None) -> None:
    """Raise what a judge said, if it said something."""
    if why is not None:
        raise PipelineError(FailureClass.MODERATION, why)


@functools.cache
def _default() -> WordList:
    return WordList()


def _plain(text: str) -> str:
    """Lower case, no accents or invisible signs, letters for the digits that hide them."""
    folded = unicodedata.normalize("NFKD", text).casefold()
    visible = "".join(
        sign
        for sign in folded
        if unicodedata.category(sign) not in {"Mn", "Cf", "Cc"} or sign == "\n"
    )
    words = re.findall(r"[^\W_]+", visible.translate(_PLAIN))
    return f" {' '.join(words)} "
