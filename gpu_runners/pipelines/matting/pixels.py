"""How pictures lie in memory: the names of the arrays that the parts of matting hand around."""

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

Colours = npt.NDArray[np.uint8]
"""Height x width x 3: red, green, blue."""
Plane = npt.NDArray[np.uint8]
"""Height x width; 255 is opaque."""
Soft = npt.NDArray[np.integer[Any] | np.floating[Any]]
"""Height x width (x 3), 0 to 1, in 32 bit floats; OpenCV keeps them, and its types don't tell."""

OPAQUE = 255


class Picture(NamedTuple):
    """A picture as people see it: turned, in sRGB; what its own alpha hides is white."""

    colours: Colours
    alpha: Plane | None
    """Its own alpha; None: opaque all over."""

    @property
    def height(self) -> int:
        return int(self.colours.shape[0])

    @property
    def width(self) -> int:
        return int(self.colours.shape[1])


class CutOut(NamedTuple):
    """The subject alone: its own colours, freed of what was behind it, and how much it covers."""

    colours: Colours
    """0 where `alpha` is 0: nothing hides there."""
    alpha: Plane
    refined: bool
