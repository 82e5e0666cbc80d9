"""The colour tables: made by this module, shipped as .cube files, applied to pictures and clips.

`python -m gpu_runners.pipelines.smart.looks` writes them anew; a test compares. Pictures get theirs
once, with Pillow; clips in the film's graph, with the same file.
"""

import functools
from collections.abc import Callable
from pathlib import Path

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageFilter

from schema.scenes.smart import Look

Colours = npt.NDArray[np.float64]
"""n x 3, red, green, blue, 0 to 1."""

_FOLDER = Path(__file__).parent / "luts"
_EDGE = 11
_WEIGHTS = np.array([0.2126, 0.7152, 0.0722])


def path_of(look: Look) -> Path:
    """The .cube file of a look."""
    return _FOLDER / f"{look.value}.cube"


def applied(picture: Image.Image, look: Look) -> Image.Image:
    """A picture (RGB) with the look of a template."""
    return picture if look is Look.NONE else picture.filter(_table(look))


@functools.cache
def _table(look: Look) -> ImageFilter.Color3DLUT:
    lines = path_of(look).read_text().splitlines()
    rows = [line for line in lines if line and (line[0].isdigit() or line[0] == "-")]
    return ImageFilter.Color3DLUT(_EDGE, np.array([row.split() for row in rows], float).ravel())


def cube_text(look: Look) -> str:
    """The text of a .cube file: red runs fastest."""
    steps = np.linspace(0, 1, _EDGE)
    blue, green, red = np.meshgrid(steps, steps, steps, indexing="ij")
    given = np.stack([red.ravel(), green.ravel(), blue.ravel()], axis=1)
    made = np.clip(_MAKERS[look](given), 0, 1)
    rows = "\n".join(f"{r:.4f} {g:.4f} {b:.4f}" for r, g, b in made)
    return f'TITLE "{look.value}"\nLUT_3D_SIZE {_EDGE}\n{rows}\n'


def _luma(colours: Colours) -> Colours:
    return np.asarray(colours @ _WEIGHTS)[:, None]


def _saturated(colours: Colours, factor: float) -> Colours:
    luma = _luma(colours)
    return luma + (colours - luma) * factor


def _contrast(colours: Colours, strength: float) -> Colours:
    """An S of which 0 and 1 stay where they are."""
    curve = colours * colours * (3 - 2 * colours)
    return colours + (curve - colours) * strength


def _toned(colours: Colours, dark: tuple[float, ...], light: tuple[float, ...]) -> Colours:
    """Push the dark parts to one colour, the light ones to another."""
    luma = np.clip(_luma(colours), 0, 1)
    below, above = (1 - luma) ** 2, luma**1.5 * (1 - luma * 0.5)
    return np.asarray(colours + below * np.array(dark) + above * np.array(light))


def _warm(colours: Colours) -> Colours:
    toned = _toned(_contrast(colours, 0.22), (0.012, -0.002, -0.004), (0.075, 0.022, -0.07))
    return _saturated(toned, 1.08)


def _teal(colours: Colours) -> Colours:
    toned = _toned(_contrast(colours, 0.4), (-0.035, 0.012, 0.045), (0.07, 0.018, -0.06))
    return _saturated(toned, 1.1)


def _faded(colours: Colours) -> Colours:
    toned = _toned(_saturated(colours, 0.82), (0.0, 0.008, 0.022), (0.03, 0.015, -0.03))
    return 0.055 + toned * 0.9


def _vivid(colours: Colours) -> Colours:
    return _saturated(_contrast(colours, 0.38), 1.25)


def _mono(colours: Colours) -> Colours:
    grey = np.asarray(colours @ np.array([0.34, 0.52, 0.14]))[:, None] * np.ones(3)
    return _toned(_contrast(grey, 0.45), (0.004, 0.002, 0.006), (0.012, 0.006, -0.006))


def _clean(colours: Colours) -> Colours:
    lifted = np.clip(colours, 0, 1) ** 0.93
    return _saturated(_contrast(lifted, 0.18), 1.05)


def _same(colours: Colours) -> Colours:
    return colours


_MAKERS: dict[Look, Callable[[Colours], Colours]] = {
    Look.NONE: _same,
    Look.WARM: _warm,
    Look.TEAL: _teal,
    Look.FADED: _faded,
    Look.VIVID: _vivid,
    Look.MONO: _mono,
    Look.CLEAN: _clean,
}


def write_all() -> None:
    """Write every table that is not the identity."""
    for look in Look:
        if look is not Look.NONE:
            path_of(look).write_text(cube_text(look))


if __name__ == "__main__":
    write_all()
