"""The demo: the whole main job on real input, with proof that the film is what it is said to be.

Starts an installation of its own, uploads a real clip, submits AutoCut, follows it live, prints
what happened with times, fetches the film and checks it anew, then shows what a second submit with
the same key and a submit over quota are answered. The exit code is true.
"""

import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from rich.rule import Rule

from cutlog import show
from cutlog.client import Client, Refused, StreamEvent
from cutlog.clips import build_demo_clip
from cutlog.film_check import FilmCheckError, FilmReport, check_film
from cutlog.installation import Installation, Plan, RunnerPlan
from cutlog.samples import ensure_samples
from cutlog.up import running

_SUB: Final = "maya"
_TENANT: Final = "demo-studio"
_TIER: Final = "pro"
_OVER_QUOTA_MAX: Final = 20
_SETTLE_SECONDS: Final = 5
_HEADING_COLUMNS: Final = 100
console: Final = show.console


def run(directory: Path, clip: Path | None, target_seconds: float) -> int:
    """Run the demo; 0 when everything was as it should be."""
    began = time.monotonic()
    key = f"demo-{time.time_ns()}"
    source, planted = _source(directory, clip)
    plan = Plan(runners=(RunnerPlan("A", 1), RunnerPlan("R", 4)))
    installation = Installation(directory, plan=plan, die_with_parent=True)
    _heading("Starting Kafka, Postgres, Valkey, S3 and six processes")
    with running(installation, lambda line: console.print(f"  {line}")) as up:
        console.print(f"  ready after {time.monotonic() - began:.1f} s, api at {up.api_url}")
        token = installation.token(_SUB, tenant=_TENANT, tier=_TIER)
        with Client(up.api_url, token) as client:
            film_ok = _film(client, source, planted, target_seconds, directory / "films", key)
            again_ok = _same_key(client, source, target_seconds, key)
        over_ok = _over_quota(installation, up.api_url)
        _heading("Stopping")
    console.print(f"all of it took {time.monotonic() - began:.1f} s")
    return 0 if film_ok and again_ok and over_ok else 1


def _heading(text: str) -> None:
    console.print(Rule(text), width=min(console.width, _HEADING_COLUMNS))


def _source(directory: Path, clip: Path | None) -> tuple[Path, list[tuple[float, float]]]:
    """The clip, and the silences that we know of because we planted them."""
    directory.mkdir(parents=True, exist_ok=True)
    if clip is not None:
        return clip, []
    samples = ensure_samples(directory / "samples")
    facts = build_demo_clip(samples, directory / "clip.mp4")
    console.print(
        f"the clip: {len(facts.cuts) + 1} pieces of real clips joined, {facts.seconds:.1f} s, "
        f"{facts.width}x{facts.height}, silenced at "
        + " and ".join(f"{start:g}-{end:g} s" for start, end in facts.silences)
    )
    return facts.path, list(facts.silences)


def _film(
    client: Client,
    source: Path,
    planted: list[tuple[float, float]],
    target_seconds: float,
    films: Path,
    key: str,
) -> bool:
    """Upload, submit, follow, fetch, check; whether the film is right."""
    _heading("Quota before")
    console.print(show.quotas(client.quotas()))
    _heading("Upload and submit")
    with show.upload_bar(source.name, source.stat().st_size) as tell:
        material = client.upload(source, tell)
    asked = time.monotonic()
    answer = client.submit(
        "autocut",
        materials=[material],
        parameters={"target_seconds": target_seconds},
        title="The demo's film",
        key=key,
    )
    console.print(
        f"task [bold]{answer.task_id}[/] {answer.status}, answered in "
        f"{(time.monotonic() - asked) * 1000:.0f} ms"
    )
    console.print(show.material(client.await_material(material)))
    events = show.follow(client.watch(answer.task_id))
    _heading("What happened")
    console.print(show.timeline(events))
    if not events or events[-1].name != "task.succeeded.v1":
        console.print("[red]the task did not succeed[/]")
        return False
    _heading("Quota after")
    console.print(show.quotas(_settled_quotas(client)))
    _heading("The film")
    shutil.rmtree(films, ignore_errors=True)
    fetched = {path.name: path for path in client.download(answer.task_id, films)}
    for path in fetched.values():
        show.fetched(path)
    return _check(fetched, source, planted, target_seconds, events[-1])


def _settled_quotas(client: Client) -> dict[str, Any]:
    """The quotas once nothing is held any more: the ledger is told a moment after the task."""
    until = time.monotonic() + _SETTLE_SECONDS
    while True:
        found = client.quotas()
        if time.monotonic() > until or not any(
            scene["month"]["reserved_micros"] for scene in found["scenes"]
        ):
            return found
        time.sleep(0.1)


def _check(
    fetched: dict[str, Path],
    source: Path,
    planted: list[tuple[float, float]],
    target_seconds: float,
    succeeded: StreamEvent,
) -> bool:
    """Decode the fetched film anew and hold it against its source and its keep list."""
    facts: dict[str, Any] = succeeded.data["facts"]
    keep = [(float(kept["start_seconds"]), float(kept["end_seconds"])) for kept in facts["keep"]]
    for start, end in keep:
        console.print(f"  keeps {start:7.2f} - {end:7.2f} s of the clip")
    try:
        report: FilmReport = check_film(
            fetched["film.mp4"],
            source,
            keep,
            target_seconds,
            planted,
            target_reached=facts["target_reached"],
        )
    except FilmCheckError as error:
        console.print(f"[red]the film is wrong: {error}[/]")
        return False
    sound = (
        "no sound"
        if report.audio_correlation is None
        else f"sound agrees ({report.audio_correlation:.2f})"
    )
    console.print(
        f"  checked: {report.seconds:.2f} s of {target_seconds:g}, frames agree "
        f"({min(report.frame_psnr):.0f} dB), {sound}, "
        f"index first: {'yes' if report.index_first else 'no'}",
        soft_wrap=True,
    )
    return report.index_first


def _same_key(client: Client, source: Path, target_seconds: float, key: str) -> bool:
    """A second submit with the same key is the same task, and costs nothing."""
    _heading("The same key again")
    material = client.upload(source)
    before = _ledger(client)
    body: Callable[[], Any] = lambda: client.submit(  # noqa: E731 - said twice below
        "autocut",
        materials=[material],
        parameters={"target_seconds": target_seconds},
        title="The demo's film",
        key=key,
    )
    first, second = body(), body()
    same = first.task_id == second.task_id and _ledger(client) == before
    console.print(
        f"  same task: {second.task_id}, status {second.status}, nothing reserved anew"
        if same
        else "  [red]the same key made another task, or reserved anew[/]",
        soft_wrap=True,
    )
    try:
        client.submit("rehearsal", key=key)
    except Refused as refused:
        console.print(f"  same key, other content: {refused.status} {refused.code}")
        return same
    return False


def _ledger(client: Client) -> list[Any]:
    """What only a reservation or a charge changes: no clock is in it."""
    return [(scene["scene"], scene["month"]) for scene in client.quotas()["scenes"]]


def _over_quota(installation: Installation, url: str) -> bool:
    """A free user asks until the door says no."""
    _heading("Over quota")
    token = installation.token("leo", tier="free")
    with Client(url, token) as client:
        for number in range(1, _OVER_QUOTA_MAX):
            try:
                client.submit("rehearsal", parameters={"no_op": True})
            except Refused as refused:
                told = {
                    name: value
                    for name, value in refused.problem.items()
                    if name in {"code", "remaining", "resets_at", "retry_after_seconds", "help"}
                }
                console.print(f"  submit {number}: {refused.status}")
                console.print_json(data=told)
                return refused.status == 429  # noqa: PLR2004 - Too Many Requests
            console.print(f"  submit {number}: accepted")
    return False
