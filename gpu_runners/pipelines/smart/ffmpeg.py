"""Running ffmpeg in the scratch directory: names of our own only, no network, no other formats."""

import contextlib
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import imageio_ffmpeg

from gpu_runners.pipelines.ffmpeg_ends import failure, tied_to_parent
from gpu_runners.pipelines.loudness import SILENT_DB, loudest_of, volume_in
from gpu_runners.pipelines.pipeline import PipelineError
from gpu_runners.pipelines.probe import CONTAINERS, DECODERS, PROTOCOLS, SourceHeader, kind_of
from gpu_runners.pipelines.probe_limits import ProbeLimits
from gpu_runners.pipelines.signatures import FILM
from schema.failures import FailureClass

_LOG = "ffmpeg.log"
_MICROSECONDS = 1_000_000


def reading(limits: ProbeLimits, demuxer: str) -> list[str]:
    """Options before an input that a user sent: what it was judged to be, no host, no playlist."""
    return [
        *("-protocol_whitelist", PROTOCOLS, "-format_whitelist", CONTAINERS, "-f", demuxer),
        *("-codec_whitelist", ",".join(sorted(DECODERS))),
        *("-max_pixels", str(limits.pixels_max), "-threads", "1"),
    ]


def run(
    arguments: list[str],
    directory: Path,
    *,
    log_level: str = "error",
    report: Callable[[float], None] | None = None,
) -> str:
    """Run ffmpeg and give what it said. `report` hears the seconds that are written.

    Errors: PipelineError (OUT_OF_MEMORY or INTERNAL).
    """
    command = [
        *tied_to_parent(),
        imageio_ffmpeg.get_ffmpeg_exe(),
        *("-hide_banner", "-nostdin", "-loglevel", log_level, "-y"),
        *(("-progress", "pipe:1", "-stats_period", "0.2") if report else ("-nostats",)),
        *arguments,
    ]
    log = directory / _LOG
    with log.open("wb") as errors:
        process = subprocess.Popen(
            command,
            cwd=directory,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            env={**os.environ, "MALLOC_ARENA_MAX": "2"},
        )
        try:
            _follow(process, report)
        finally:
            if process.poll() is None:
                process.kill()
            process.wait()
    said = ""
    with contextlib.suppress(OSError):
        said = log.read_text(errors="replace").strip()
        log.unlink()
    if process.returncode:
        raise failure(process.returncode, said)
    return said


def loudest(path: Path, header: SourceHeader, limits: ProbeLimits, directory: Path) -> int | None:
    """The sound stream of a film that is to be heard."""

    def volume(index: int) -> float:
        source = [*reading(limits, FILM[kind_of(path)]), "-t", f"{limits.seconds_max:.3f}"]
        source += ["-i", f"file:{path.absolute()}", "-map", f"0:{index}"]
        try:
            said = run(
                [*source, "-af", "volumedetect", "-f", "null", "-"], directory, log_level="info"
            )
        except PipelineError as error:
            if error.error_class is FailureClass.OUT_OF_MEMORY:
                raise
            return SILENT_DB  # what can't be decoded is not heard
        return volume_in(said)

    return loudest_of(header.audio_indexes, volume)


def _follow(process: subprocess.Popen[str], report: Callable[[float], None] | None) -> None:
    assert process.stdout is not None  # noqa: S101 - asked for a pipe above
    with process.stdout:
        for line in process.stdout:
            key, _, value = line.strip().partition("=")
            if report and key == "out_time_us" and value.isdigit():
                report(int(value) / _MICROSECONDS)
    process.wait()
