"""The closed form of matting: held against its definition, written out for one pixel at a time."""

import numpy as np
import numpy.typing as npt
import pytest

from gpu_runners.pipelines.matting.closed_form import WINDOW, solved

_REGULARITY = 1e-5
_Flags = npt.NDArray[np.bool_]


def _written_out(
    colours: npt.NDArray[np.float32], subject: _Flags, ground: _Flags
) -> npt.NDArray[np.float64]:
    """Levin et al., equation 12: the sum over all squares that hold both pixels, solved densely."""
    height, width = subject.shape
    pixels = colours.astype(np.float64)
    laplacian = np.zeros((height * width, height * width))
    for y in range(height - WINDOW + 1):
        for x in range(width - WINDOW + 1):
            places = [(y + dy) * width + x + dx for dy in range(WINDOW) for dx in range(WINDOW)]
            seen = pixels.reshape(-1, 3)[places]
            apart = seen - seen.mean(axis=0)
            count = len(places)
            spread = apart.T @ apart / count + _REGULARITY / count * np.eye(3)
            joined = np.eye(count) - (1 + apart @ np.linalg.inv(spread) @ apart.T) / count
            laplacian[np.ix_(places, places)] += joined
    unknown = ~(subject | ground).ravel()
    wanted = -laplacian[np.ix_(unknown, ~unknown)] @ subject.ravel()[~unknown].astype(float)
    alpha = subject.ravel().astype(float)
    alpha[unknown] = np.clip(np.linalg.solve(laplacian[np.ix_(unknown, unknown)], wanted), 0, 1)
    return alpha.reshape(height, width)


def _scene(height: int, width: int) -> npt.NDArray[np.float32]:
    """Noise that turns from one colour into another."""
    noise = np.random.default_rng(7).random((height, width, 3), np.float32)
    share = np.linspace(0, 1, width, dtype=np.float32)[None, :, None]
    colour = np.array((1, 0.4, 0.1), np.float32)
    return np.asarray(0.2 * noise + 0.7 * share * colour, np.float32)


@pytest.mark.parametrize(("height", "width"), [(12, 17), (WINDOW, 14), (14, WINDOW), (9, 9)])
def test_alpha_is_what_the_definition_gives(height: int, width: int) -> None:
    colours = _scene(height, width)
    subject, ground = np.zeros((height, width), bool), np.zeros((height, width), bool)
    subject[:, -1], ground[0, 0], ground[-1, 0] = True, True, True
    alpha = solved(colours, subject, ground, _REGULARITY)
    assert alpha is not None
    np.testing.assert_allclose(alpha, _written_out(colours, subject, ground), atol=1e-5)
    assert alpha[subject].min() == 1
    assert alpha[ground].max() == 0


def test_a_picture_of_one_colour_is_divided_evenly() -> None:
    colours = np.full((20, 30, 3), 0.4, np.float32)
    subject, ground = np.zeros((20, 30), bool), np.zeros((20, 30), bool)
    subject[:, 25:], ground[:, :5] = True, True
    alpha = solved(colours, subject, ground, _REGULARITY)
    assert alpha is not None
    assert (np.diff(alpha[10]) >= -1e-6).all()
    assert alpha[10, 15] == pytest.approx(0.5, abs=0.1)
    np.testing.assert_allclose(alpha, _written_out(colours, subject, ground), atol=1e-5)


def test_where_nothing_is_known_nothing_is_solved() -> None:
    nothing = np.zeros((10, 10), bool)
    alpha = solved(_scene(10, 10), nothing, nothing, _REGULARITY)
    assert alpha is None or not alpha.any()
