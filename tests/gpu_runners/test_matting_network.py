"""The network's file, said anew: the same results, and what it can't read is left alone."""

from pathlib import Path

import numpy as np
import numpy.typing as npt
import onnxruntime
import pytest

from cutlog.model_files import ensure_models
from gpu_runners.pipelines.matting.network import NetworkError, said_anew
from gpu_runners.pipelines.matting.saliency import MODEL, SIDE, Saliency
from tests.support.hairy import hairy

pytestmark = pytest.mark.media

_MODELS = Path(__file__).parents[2] / ".cutlog" / "models"


@pytest.fixture(scope="module")
def file() -> bytes:
    ensure_models(_MODELS)
    return (_MODELS / MODEL).read_bytes()


def session(file: bytes) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    return onnxruntime.InferenceSession(file, options, providers=["CPUExecutionProvider"])


def result(
    of: onnxruntime.InferenceSession, seen: npt.NDArray[np.float32]
) -> npt.NDArray[np.float32]:
    (found,) = of.run([of.get_outputs()[0].name], {of.get_inputs()[0].name: seen})
    return np.asarray(found, np.float32)


def test_a_network_said_anew_finds_the_same(file: bytes) -> None:
    before, after = session(file), session(said_anew(file))
    assert len(after.get_outputs()) == 1
    rng = np.random.default_rng(0)
    for _ in range(3):
        seen = rng.normal(0, 1.5, (1, 3, SIDE, SIDE)).astype(np.float32)
        assert np.abs(result(before, seen) - result(after, seen)).max() < 1e-4


def test_nothing_is_laid_together_or_asked_for_its_size_any_more(file: bytes) -> None:
    anew = said_anew(file)
    assert file.count(b"Shape") > 100
    assert b"Shape" not in anew
    assert anew.count(b"\x22\x06Concat") == 1
    assert b"pytorch_half_pixel" not in anew


def test_a_network_said_anew_may_be_said_anew_no_more(file: bytes) -> None:
    with pytest.raises(NetworkError):
        said_anew(said_anew(file))


@pytest.mark.parametrize("part", [0, 1, 100, 4_000, 1_000_000, -1])
def test_a_file_that_breaks_off_is_not_understood(part: int, file: bytes) -> None:
    with pytest.raises(NetworkError):
        said_anew(file[:part])


def test_a_network_that_is_not_understood_is_taken_as_it_is(file: bytes, tmp_path: Path) -> None:
    anew = said_anew(file)
    (tmp_path / MODEL).write_bytes(anew)
    picture = hairy(1, 320).picture
    taken, known = Saliency(tmp_path).look(picture), Saliency(_MODELS).look(picture)
    np.testing.assert_array_equal(taken, known)
