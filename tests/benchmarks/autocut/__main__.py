"""`python -m tests.benchmarks.autocut`: a film of a 720p clip, and what its parts take.

The clip is made of the package clips (with sound, 720p), again and again up to the length asked
for. Two goals: the render is at least 0.8 times as fast as ffmpeg alone running the same command
(both are run in turns, the best of each counts: the rest is what others do on the machine), and
the analysis takes at most half of the clip's length. The last line is JSON; the exit code tells
whether both were reached.
"""

import argparse
import itertools
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
from rich.table import Table

from cutlog.clips import build_demo_clip
from cutlog.ffmpeg import run_ffmpeg
from cutlog.installation import ROOT
from cutlog.model_files import ensure_models
from cutlog.samples import ensure_samples
from cutlog.show import console
from gpu_runners.pipelines.autocut import Autocut
from gpu_runners.pipelines.pipeline import Progress, Work
from gpu_runners.pipelines.render import RenderPlan, arguments

GOAL_RENDER = 0.8
GOAL_ANALYSIS = 0.5


class _Watched(Autocut):
    """Keeps the plans that are rendered, to run their commands again."""

    def __init__(self, models: Path) -> None:
        super().__init__(None, models)
        self.plans: list[RenderPlan] = []
        self.render_cpu_seconds: list[float] = []

    def make(self, plan: RenderPlan, report: Callable[[float], None]) -> None:
        self.plans.append(plan)
        before = _cpu_seconds()
        super().make(plan, report)
        self.render_cpu_seconds.append(_cpu_seconds() - before)


def main(options: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="cutlog bench autocut", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60, help="length of the clip")
    parser.add_argument("--target", type=float, default=20, help="length of the film")
    parser.add_argument("--aspect", default="source", help="shape of the film")
    parser.add_argument("--turns", type=int, default=3, help="of both renders")
    given = parser.parse_args(options)
    with tempfile.TemporaryDirectory(prefix="cutlog-autocut-") as folder:
        line = _measure(Path(folder), given)
    table = Table("what", "goal", "found")
    table.add_row("analysis by the clip's length", f"<= {GOAL_ANALYSIS}", str(line["analysis"]))
    table.add_row("render by ffmpeg alone", f">= {GOAL_RENDER}", str(line["render"]))
    console.print(table)
    print(msgspec.json.encode(line).decode())
    return 0 if line["reached"] else 1


def _measure(folder: Path, given: argparse.Namespace) -> dict[str, Any]:
    clip = _clip(folder, given.seconds)
    models = ROOT / ".cutlog" / "models"
    ensure_models(models)
    pipeline = _Watched(models)
    renders: list[float] = []
    alone: list[float] = []
    alone_cpu: list[float] = []
    phases: dict[str, float] = {}
    for turn in range(given.turns):
        directory = folder / f"film{turn}"
        directory.mkdir()
        parameters = {"target_seconds": given.target, "aspect": given.aspect}
        found = _film(pipeline, clip, directory, parameters)
        before = _cpu_seconds()
        phases = {name: min(took, phases.get(name, took)) for name, took in found.items()}
        renders.append(found["rendering"])
        alone.append(_ffmpeg_seconds(pipeline.plans[-1]))
        alone_cpu.append(_cpu_seconds() - before)
    analysis = phases["analysing"] / given.seconds
    render = min(alone) / min(renders)
    return {
        "bench": "autocut",
        "clip_seconds": given.seconds,
        "film_seconds": given.target,
        "aspect": given.aspect,
        "analysis": round(analysis, 3),
        "analysis_goal": GOAL_ANALYSIS,
        "render": round(render, 3),
        "render_goal": GOAL_RENDER,
        "render_seconds": round(min(renders), 2),
        "ffmpeg_seconds": round(min(alone), 2),
        "render_cpu_seconds": round(min(pipeline.render_cpu_seconds), 2),
        "ffmpeg_cpu_seconds": round(min(alone_cpu), 2),
        "measuring_seconds": round(phases.get("measuring", 0.0), 2),
        "cpu_seconds": round(_cpu_seconds(), 1),
        "reached": analysis <= GOAL_ANALYSIS and render >= GOAL_RENDER,
    }


def _clip(folder: Path, seconds: float) -> Path:
    """A 720p clip of that length, with cuts, sound and silences."""
    demo = build_demo_clip(ensure_samples(ROOT / ".cutlog" / "samples"), folder / "demo.mp4")
    clip = folder / "clip.mp4"
    run_ffmpeg(
        *("-loglevel", "error", "-y", "-stream_loop", "-1", "-i", str(demo.path)),
        *("-t", str(seconds), "-c", "copy", str(clip)),
    )
    return clip


def _film(
    pipeline: Autocut, clip: Path, directory: Path, parameters: dict[str, Any]
) -> dict[str, float]:
    """Make one film: seconds by phase."""
    starts: dict[str, float] = {}

    def note(progress: Progress) -> None:
        starts.setdefault(progress.phase, time.monotonic())

    work = Work(
        task_id="bench",
        token=1,
        scene="autocut",
        parameters=parameters,
        inputs={"clip": clip},
        directory=directory,
    )
    pipeline.run(work, note)
    return {name: starts[after] - starts[name] for name, after in itertools.pairwise(starts)}


def _ffmpeg_seconds(plan: RenderPlan) -> float:
    """The same command without us."""
    before = time.monotonic()
    subprocess.run(
        arguments(plan),
        cwd=plan.film.parent,
        check=True,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
    )
    return time.monotonic() - before


def _cpu_seconds() -> float:
    found = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in found)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
