"""Kafka's jars, brought by jgo (a resolver of Maven artifacts in plain Python) and held to a lock.

`requirements/kafka.lock` has a line for each jar: its sha256 and its name. What comes down must be
exactly that set.
"""

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from cutlog.stack.part import PartError, fresh, scratch

VERSION = "4.4.0"
# Kafka, and what makes it log: without a binding its logger is a silent one. Resolved one by one;
# the resolver lets the second one's parents change the versions of the first.
ARTIFACTS = (
    f"org.apache.kafka:kafka_2.13:{VERSION}",
    "org.apache.logging.log4j:log4j-slf4j-impl:2.25.5",
)
LOCK = Path(__file__).parents[2] / "requirements" / "kafka.lock"
_DEBIAN_BUNDLE = Path("/etc/ssl/certs/ca-certificates.crt")


def default_cache() -> Path:
    """`CUTLOG_CACHE`, else `.cache/cutlog` in the root of the checkout."""
    given = os.environ.get("CUTLOG_CACHE")
    return Path(given).absolute() if given else Path(__file__).parents[2] / ".cache" / "cutlog"


def ensure_jars(cache: Path) -> Path:
    """The folder with all jars, verified; downloads them (about 15 s) when they are not there."""
    locked = read_lock()
    folder = jars_folder(cache)
    if sums(folder) == locked:
        return folder
    with _alone(cache):
        if sums(folder) == locked:
            return folder
        with scratch(cache) as work:
            found = _download(work)
            if found != locked:
                odd = sorted(dict(found.items() ^ locked.items()))
                raise PartError(f"Kafka's jars are not those of {LOCK.name}: {', '.join(odd)}")
            if folder.exists():
                shutil.rmtree(folder)
            (work / "lib").rename(folder)
    return folder


def jars_folder(cache: Path) -> Path:
    """Where `ensure_jars` puts them."""
    return cache / f"kafka-{VERSION}"


def read_lock() -> dict[str, str]:
    """File name to sha256."""
    lines = (line.split() for line in LOCK.read_text().splitlines() if not line.startswith("#"))
    return {name: digest for digest, name in lines}


def sums(folder: Path) -> dict[str, str]:
    """File name to sha256 of what lies there."""
    if not folder.is_dir():
        return {}
    return {jar.name: hashlib.sha256(jar.read_bytes()).hexdigest() for jar in folder.glob("*.jar")}


def _download(work: Path) -> dict[str, str]:
    """Resolve into `lib` of that folder; jgo parts the jars into `jars` and `modules`."""
    environ = dict(os.environ)
    # jgo asks with `requests`, which brings certificates of its own; behind a proxy with its own
    # certificate only the system knows it.
    if _DEBIAN_BUNDLE.exists():
        environ.setdefault("SSL_CERT_FILE", str(_DEBIAN_BUNDLE))
        environ.setdefault("REQUESTS_CA_BUNDLE", str(_DEBIAN_BUNDLE))
    command = [sys.executable, "-m", "jgo", "--ignore-config", "--quiet", "--resolver", "python"]
    command += ["--cache-dir", str(work / "env"), "--repo-cache", str(work / "repository")]
    command += ["--links", "copy", "info", "classpath"]
    for artifact in ARTIFACTS:
        _resolve([*command, artifact], environ)
    lib = fresh(work / "lib")
    for jar in (work / "env" / "envs").rglob("*.jar"):
        jar.replace(lib / jar.name)
    return sums(lib)


def _resolve(command: list[str], environ: dict[str, str]) -> None:
    for chances in (2, 1, 0):  # a registry may hiccup
        done = subprocess.run(
            command, env=environ, capture_output=True, text=True, check=False, timeout=300
        )
        if done.returncode == 0:
            return
        if not chances:
            raise PartError(f"could not fetch Kafka:\n{(done.stdout + done.stderr)[-2000:]}")


@contextmanager
def _alone(cache: Path) -> Generator[None]:
    """One download at a time, whoever else wants the same."""
    cache.mkdir(parents=True, exist_ok=True)
    with (cache / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def write_lock(cache: Path) -> None:
    """Take what the resolver finds as the truth from now on."""
    with _alone(cache), scratch(cache) as work:
        found = _download(work)
    head = f"# sha256 of the jars of Kafka {VERSION}, made by `make lock`\n"
    LOCK.write_text(head + "".join(f"{found[name]}  {name}\n" for name in sorted(found)))
