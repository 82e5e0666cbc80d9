"""Whether a submission can be worked on, by its scene: asked before anything is spent on it."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, assert_never

from schema.scenes import autocut, genai, matting, smart
from schema.scenes.judging import BadParametersError, Fault, struct_of
from schema.scenes.rehearsal import RehearsalParameters
from schema.words import MediaKind, Scene


def faults_of(scene: Scene, parameters: Mapping[str, Any], materials: int) -> tuple[Fault, ...]:
    """Everything that is known to be wrong, whatever the materials are; empty: nothing is.

    Of `genai` the prompts are among the parameters.
    """
    try:
        return tuple(_judged(scene, parameters, materials))
    except BadParametersError as error:
        return error.faults


def _judged(scene: Scene, parameters: Mapping[str, Any], materials: int) -> Iterator[Fault]:
    match scene:
        case Scene.AUTOCUT:
            struct_of(parameters, autocut.AutocutParameters)
            yield from autocut.faults(materials)
        case Scene.SMART:
            yield from smart.faults(struct_of(parameters, smart.SmartParameters), materials)
        case Scene.GENAI:
            wish = struct_of(parameters, genai.GenaiParameters)
            yield from genai.faults(wish, materials, None if materials else genai.Kind.TEXT)
        case Scene.MATTING:
            yield from matting.faults(struct_of(parameters, matting.MattingParameters), materials)
        case Scene.REHEARSAL:
            struct_of(parameters, RehearsalParameters)
        case _:
            assert_never(scene)


def faults_of_kinds(
    scene: Scene, parameters: Mapping[str, Any], kinds: Sequence[MediaKind | None]
) -> tuple[Fault, ...]:
    """What the materials can't be used for; None: nobody knows yet what that one is."""
    return tuple(_misfits(scene, parameters, kinds))


def _misfits(
    scene: Scene, parameters: Mapping[str, Any], kinds: Sequence[MediaKind | None]
) -> Iterator[Fault]:
    match scene:
        case Scene.AUTOCUT:
            yield from _cut(kinds)
        case Scene.SMART:
            if kinds and set(kinds) == {MediaKind.AUDIO}:
                yield Fault("materials", "There is only music: give a photo or a clip as well.")
        case Scene.GENAI:
            if MediaKind.AUDIO in kinds:
                yield Fault("materials", "This is sound: give a picture, a clip or nothing.")
            if MediaKind.VIDEO in kinds:
                wish = struct_of(parameters, genai.GenaiParameters)
                yield from genai.faults(wish, len(kinds), genai.Kind.CLIP)
        case Scene.MATTING:
            if kinds and set(kinds) == {MediaKind.AUDIO}:  # among others, one that fails is told
                yield Fault("materials", "This is only sound: give pictures or films.")
        case Scene.REHEARSAL:
            return
        case _:
            assert_never(scene)


def _cut(kinds: Sequence[MediaKind | None]) -> Iterator[Fault]:
    for number, kind in enumerate(kinds):
        if kind is MediaKind.PICTURE:
            yield Fault(
                f"materials.{number}",
                "This is a picture: AutoCut takes one video and, beside it, one piece of music; "
                "the scene `smart` makes a film of pictures.",
            )
    if kinds and set(kinds) == {MediaKind.AUDIO}:
        yield Fault("materials", "There is only music: give a video as well.")
    if kinds.count(MediaKind.VIDEO) > 1:
        yield Fault(
            "materials",
            "AutoCut takes one video, and as the second file a piece of music (sound alone).",
        )
