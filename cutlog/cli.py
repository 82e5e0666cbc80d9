"""The commands that a person types. Each is short: the work is done in the modules beside."""

import fcntl
import os
import signal
import sys
import threading
from collections.abc import Generator, Iterable, Mapping
from contextlib import contextmanager, suppress
from http import HTTPStatus
from itertools import islice
from pathlib import Path
from types import FrameType
from typing import IO, Annotated, Any, Final, NoReturn
from uuid import uuid4

import httpx
import msgspec
import typer

from cutlog import letters, publishing, show, status
from cutlog.client import Answer, Client, Refused
from cutlog.installation import (
    DEFAULT_DIRECTORY,
    LOCAL_POLICY,
    Installation,
    NotInstalledError,
    Plan,
    RunnerPlan,
    plan_runners,
    setting_names,
)
from cutlog.stack import processes
from cutlog.stack.part import PartError
from cutlog.up import Up, UpError, end_leftovers
from cutlog.uploading import LINES_MAX
from cutlog.wheels import WheelsError
from schema.policy import PolicyError
from schema.scenes.submissions import faults_of
from schema.settings import SettingsError
from schema.wires.processes import Identity, identify, is_alive
from schema.words import Scene, Status

app = typer.Typer(
    help="Cutlog: submit a video, watch it become a film. `up` starts everything on this machine.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
lanes_app = typer.Typer(help="Pause and resume lanes of a pool.", no_args_is_help=True)
policy_app = typer.Typer(help="Limits, prices and pools.", no_args_is_help=True)
app.add_typer(lanes_app, name="lanes")
app.add_typer(policy_app, name="policy")
dlq_app = typer.Typer(help="Dead letters: look, do again, throw away.", no_args_is_help=True)
app.add_typer(dlq_app, name="dlq")
materials_app = typer.Typer(help="What was uploaded: list, look, upload.", no_args_is_help=True)
app.add_typer(materials_app, name="materials")

console: Final = show.console
_STOP_SECONDS: Final = 60
_LOOK_SECONDS: Final = 2
"""`up` looks so often whether a part has ended."""
_UPLOAD_INTERRUPTED: Final = "interrupted; the same command again goes on where it was"

Directory = Annotated[
    Path,
    typer.Option("--directory", "-d", help="Folder of the installation.", envvar="CUTLOG_HOME"),
]
Sub = Annotated[str, typer.Option("--as", help="Who asks (the `sub` of the token).")]
Tenant = Annotated[str, typer.Option(help="Tenant of who asks; empty: none.")]
Tier = Annotated[str, typer.Option(help="Tier of who asks, as the policy names it.")]
Why = Annotated[str, typer.Option("--why", help="Recorded with the change.")]
TaskId = Annotated[str, typer.Argument(help="Id of a task (`submit` and `list` tell it).")]
Pool = Annotated[str, typer.Argument(help="Name of a pool, for example A (`lanes list`).")]
LaneName = Annotated[str, typer.Argument(help="p0, p1 or p2.")]


def _examples(*commands: str) -> str:
    """The end of a command's help: each in a line as it is typed."""
    return "\b\nExamples:\n" + "\n".join(f"  python -m cutlog {command}" for command in commands)


def main() -> None:
    """Run the command line; errors that a person can mend are one line on stderr."""
    try:
        app()
    except Refused as refused:
        _fail(f"refused: {refused}")
    except httpx.ConnectError:
        _fail("the api does not answer: is it up? (`python -m cutlog up`)")
    except httpx.HTTPError as error:
        _fail(f"the api or the object store did not answer as it should: {error!r}")
    except msgspec.DecodeError as error:
        _fail(f"that is not the JSON that is wanted: {error}")
    except OSError as error:
        _fail(f"{error.filename}: {error.strerror}" if error.filename else str(error))
    except (
        PartError,
        UpError,
        SettingsError,
        PolicyError,
        NotInstalledError,
        WheelsError,
    ) as error:
        _fail(str(error))


def _fail(message: str) -> NoReturn:
    print(message, file=sys.stderr)
    raise SystemExit(1)


# --- running -------------------------------------------------------------------------------------


@app.command(
    epilog=_examples(
        "up",
        "up -d /srv/cutlog --port 8000 --processors 2 --runner A:1 --runner R:8",
        "up --set CUTLOG_RUNNER_DIFFUSION_MODEL=/models/sdxl",
    )
)
def up(
    directory: Directory = DEFAULT_DIRECTORY,
    port: Annotated[
        int,
        typer.Option(min=0, max=65535, help="Port of the api; 0: the one it had, or a free one."),
    ] = 0,
    processors: Annotated[int, typer.Option(min=1, max=8, help="Processor processes.")] = 1,
    runner: Annotated[
        list[str] | None,
        typer.Option(
            help="POOL:SLOTS, once a runner. Default: A:1 and R:64, but for pools that scale."
        ),
    ] = None,
    policy: Annotated[
        Path, typer.Option(exists=True, dir_okay=False, help="Policy of the first start.")
    ] = LOCAL_POLICY,
    setting: Annotated[
        list[str] | None,
        typer.Option(
            "--set", help="CUTLOG_…=VALUE for the processes (docs/operating.md), any number."
        ),
    ] = None,
) -> None:
    """Start everything and keep it running until Ctrl-C (or `down` from elsewhere)."""
    environ = _settings(setting)
    runners, scaled = plan_runners(_runners(runner), policy)
    plan = Plan(
        processors=processors, runners=runners, scaled=scaled, policy=policy, environ=environ
    )
    installation = Installation(directory, plan=plan, api_port=port or None)
    installation.directory.mkdir(parents=True, exist_ok=True)
    lock = _only_one(installation)
    installation.prepare()
    running = Up(installation, lambda line: console.print(f"  {line}"))
    ending = threading.Event()

    def end(number: int, frame: FrameType | None) -> None:
        del number, frame
        ending.set()

    for name in (signal.SIGINT, signal.SIGTERM):
        signal.signal(name, end)
    _write_identity(installation)
    try:
        running.start(ending)
        if not ending.is_set():
            _tell_how(installation, running.api_url)
            while not ending.wait(_LOOK_SECONDS):
                running.keep_parts()
    finally:
        console.print("stopping…")
        running.stop()
        _identity_path(installation).unlink(missing_ok=True)
        lock.close()


@app.command()
def down(directory: Directory = DEFAULT_DIRECTORY) -> None:
    """Stop everything in good order, also what a killed `up` left."""
    installation = Installation(directory)
    if not installation.ports():
        console.print(f"nothing was ever started in {installation.directory}", soft_wrap=True)
        return
    supervisor = _supervisor(installation)
    if supervisor is not None and not processes.end(supervisor, signal.SIGTERM, _STOP_SECONDS):
        console.print("the supervisor had to be killed; ending what it left")
    left = end_leftovers(installation)
    installation.stack.stop()
    console.print("stopped" + (f" (also left-overs: {', '.join(left)})" if left else ""))


@app.command(name="status")
def status_command(
    directory: Directory = DEFAULT_DIRECTORY,
    json: Annotated[bool, typer.Option("--json", help="For programs.")] = False,
) -> None:
    """Show every part and process, and the figures of the last ten minutes against objectives."""
    installation = Installation(directory)
    _check_installed(installation)
    lines, pools = status.look(installation), status.pools(installation)
    if json:
        console.print_json(data={"parts": [line._asdict() for line in lines], "pools": pools})
    else:
        console.print(status.table(lines))
        for shown in (status.lanes_table(pools), status.objectives_table(pools)):
            if shown.row_count:
                console.print("", shown, sep="\n")
        _tell_remarks(pools)
        if any(line.pid for line in lines) and _supervisor(installation) is None:
            console.print(
                "nobody looks after the processes (`up` was killed): one that ends is not started "
                "again; `python -m cutlog up` takes over"
            )
    raise typer.Exit(0 if all(line.ready for line in lines) else 1)


@app.command()
def token(
    sub: Annotated[str, typer.Argument(help="Who it is for.")] = "dev",
    directory: Directory = DEFAULT_DIRECTORY,
    tenant: Tenant = "",
    tier: Tier = "pro",
    operate: Annotated[bool, typer.Option(help="With the operator's scope.")] = False,
) -> None:
    """Print a bearer token signed with the development key of this installation."""
    scope = "operate" if operate else ""
    print(Installation(directory).token(sub, tenant=tenant, tier=tier, scope=scope))


# --- tasks ---------------------------------------------------------------------------------------


@app.command(
    epilog=_examples(
        "submit holiday.mp4 --title Holiday -p target_seconds=15",
        "submit holiday.mp4 sea.jpg --scene smart -p template=postcard",
        "submit shoe-*.png --scene matting -p size=1200",
        'submit --scene genai --prompt "a red fox"',
    )
)
def submit(
    files: Annotated[
        list[Path] | None,
        typer.Argument(exists=True, dir_okay=False, help="Clips and pictures, in their order."),
    ] = None,
    directory: Directory = DEFAULT_DIRECTORY,
    scene: Annotated[Scene, typer.Option(help="What is to be made of it.")] = Scene.AUTOCUT,
    parameter: Annotated[
        list[str] | None,
        typer.Option(
            "--parameter", "-p", help="NAME=JSON, any number; what is no JSON is taken as text."
        ),
    ] = None,
    title: Annotated[str | None, typer.Option(help="Yours only: stored sealed.")] = None,
    prompt: Annotated[str | None, typer.Option(help="What genai is to make; sealed.")] = None,
    key: Annotated[str | None, typer.Option(help="Idempotency key; default: a new one.")] = None,
    out: Annotated[Path, typer.Option(help="Where the result is fetched to.")] = Path("films"),
    follow: Annotated[bool, typer.Option(help="Watch it, then fetch the result.")] = True,
    sub: Sub = "dev",
    tenant: Tenant = "",
    tier: Tier = "pro",
) -> None:
    """Upload files, submit a task, watch it, fetch what it made; 1 if it did not SUCCEED."""
    parameters = _parameters(parameter)
    if not files and any(fault.field == "materials" for fault in faults_of(scene, {}, 0)):
        raise typer.BadParameter(f"{scene} needs at least one file", param_hint="'files'")
    _check_files(files or [])
    with _client(directory, sub, tenant, tier) as client:
        materials: list[str] = []
        with _interruptible(_UPLOAD_INTERRUPTED):
            for file in files or []:
                with show.upload_bar(file.name, file.stat().st_size) as tell:
                    materials.append(client.upload(file, tell))
        key = key or uuid4().hex
        with _told_key(key):
            answer = client.submit(
                scene,
                materials=materials,
                parameters=parameters,
                title=title,
                prompt=prompt,
                key=key,
            )
        _tell_answer(answer)
        if not follow:
            return
        if not _watch(client, answer.task_id):
            _tell_refused(client, materials)
            raise typer.Exit(1)
        for path in client.download(answer.task_id, out / answer.task_id):
            show.fetched(path)


@contextmanager
def _told_key(key: str) -> Generator[None]:
    """Where nobody knows whether it was taken, say how it is asked again without being doubled."""
    try:
        yield
    except (Refused, httpx.TransportError) as error:
        if not isinstance(error, Refused) or error.status >= HTTPStatus.INTERNAL_SERVER_ERROR:
            print(f"with `--key {key}` the same command is one task in any case", file=sys.stderr)
        raise


def _tell_refused(client: Client, materials: list[str]) -> None:
    """Of the materials that cannot be used, why, and what to do about it."""
    for material_id in materials:
        with suppress(TimeoutError):  # nobody looked at it yet
            found = client.await_material(material_id, seconds=10)
            if found["advice"]:
                console.print(show.material(found))


@app.command()
def watch(
    task_id: TaskId,
    directory: Directory = DEFAULT_DIRECTORY,
    sub: Sub = "dev",
    tenant: Tenant = "",
    tier: Tier = "pro",
) -> None:
    """Follow a task from its beginning to its end; 1 if it did not SUCCEED."""
    with _client(directory, sub, tenant, tier) as client:
        if not _watch(client, task_id):
            raise typer.Exit(1)


def _watch(client: Client, task_id: str) -> bool:
    """Show a task until its end; whether it came to a good one."""
    with _interruptible(f"the task goes on: `python -m cutlog watch {task_id}`, or `cancel` it"):
        events = show.follow(client.watch(task_id))
    console.print(show.timeline(events))
    return bool(events) and events[-1].name == "task.succeeded.v1"


@app.command(name="list", epilog=_examples("list --status failed --scene smart"))
def list_command(
    directory: Directory = DEFAULT_DIRECTORY,
    state: Annotated[
        Status | None, typer.Option("--status", case_sensitive=False, help="Only these.")
    ] = None,
    scene: Annotated[Scene | None, typer.Option(help="Only these.")] = None,
    count: Annotated[int, typer.Option(min=1, max=1000, help="How many.")] = 20,
    sub: Sub = "dev",
    tenant: Tenant = "",
    tier: Tier = "pro",
) -> None:
    """List tasks, newest first."""
    filters: dict[str, str | int] = {"limit": min(count, 100)}
    if state is not None:
        filters["status"] = state.value
    if scene is not None:
        filters["scene"] = scene.value
    with _client(directory, sub, tenant, tier) as client:
        console.print(show.tasks(islice(client.tasks(**filters), count)))


@app.command()
def cancel(
    task_id: TaskId,
    directory: Directory = DEFAULT_DIRECTORY,
    sub: Sub = "dev",
    tenant: Tenant = "",
    tier: Tier = "pro",
) -> None:
    """End a task; what it did not use is given back."""
    with _client(directory, sub, tenant, tier) as client:
        _tell_answer(client.cancel(task_id))


@app.command()
def retry(
    task_id: TaskId,
    directory: Directory = DEFAULT_DIRECTORY,
    sub: Sub = "dev",
    tenant: Tenant = "",
    tier: Tier = "pro",
) -> None:
    """Queue a FAILED task again; it is paid for anew."""
    with _client(directory, sub, tenant, tier) as client:
        _tell_answer(client.retry(task_id))


@app.command(name="quotas")
def quotas_command(
    directory: Directory = DEFAULT_DIRECTORY,
    sub: Sub = "dev",
    tenant: Tenant = "",
    tier: Tier = "pro",
) -> None:
    """Show what is left, by scene."""
    with _client(directory, sub, tenant, tier) as client:
        found = client.quotas()
    console.print(show.quotas(found))
    console.print(f"account {found['account_id']}, tier {found['tier']}", markup=False)


# --- materials -----------------------------------------------------------------------------------


@materials_app.command("list")
def materials_list(
    directory: Directory = DEFAULT_DIRECTORY,
    state: Annotated[
        str | None,
        typer.Option(
            "--status",
            help="Only these: REGISTERED, ASSEMBLING, READY, COLD, REFUSED or ABORTED.",
        ),
    ] = None,
    count: Annotated[int, typer.Option(min=1, max=1000, help="How many.")] = 20,
    sub: Sub = "dev",
    tenant: Tenant = "",
    tier: Tier = "pro",
) -> None:
    """List what was uploaded, newest first."""
    filters: dict[str, str | int] = {"limit": min(count, 100)}
    if state is not None:
        filters["status"] = state.upper()
    with _client(directory, sub, tenant, tier) as client:
        console.print(show.materials(islice(client.materials(**filters), count)))


@materials_app.command("show")
def materials_show(
    material_id: Annotated[str, typer.Argument(help="Id of a material (`materials list`).")],
    directory: Directory = DEFAULT_DIRECTORY,
    json: Annotated[bool, typer.Option("--json", help="For programs.")] = False,
    sub: Sub = "dev",
    tenant: Tenant = "",
    tier: Tier = "pro",
) -> None:
    """Show how far one is, what it is, or why it cannot be used and what to do about it."""
    with _client(directory, sub, tenant, tier) as client:
        found = client.material(material_id)
    if json:
        console.print_json(data=found)
    else:
        console.print(show.material(found))


@materials_app.command(
    "upload", epilog=_examples("materials upload holiday.mp4", "materials upload *.jpg --lines 8")
)
def materials_upload(
    files: Annotated[
        list[Path], typer.Argument(exists=True, dir_okay=False, help="What to upload.")
    ],
    directory: Directory = DEFAULT_DIRECTORY,
    lines: Annotated[int, typer.Option(min=1, max=16, help="Parts sent at once.")] = LINES_MAX,
    seconds: Annotated[
        int | None, typer.Option(min=1, help="The longest that it lasts; refused if longer.")
    ] = None,
    sub: Sub = "dev",
    tenant: Tenant = "",
    tier: Tier = "pro",
) -> None:
    """Upload files; one that was interrupted goes on where it was. 1 if one cannot be used."""
    _check_files(files)
    good = True
    with _client(directory, sub, tenant, tier) as client, _interruptible(_UPLOAD_INTERRUPTED):
        for file in files:
            try:
                with show.upload_bar(file.name, file.stat().st_size) as tell:
                    material_id = client.upload(file, tell, seconds=seconds, lines_max=lines)
            except Refused as refused:
                if not refused.code.startswith("material_"):
                    raise  # the next one would be told the same
                print(f"{file}: refused: {refused}", file=sys.stderr)
                good = False
                continue
            found = client.await_material(material_id)
            console.print(show.material(found))
            good &= found["status"] in {"READY", "COLD"}
    if not good:
        raise typer.Exit(1)


# --- operators -----------------------------------------------------------------------------------


@policy_app.command("publish", epilog=_examples('policy publish mine.json --why "a fair"'))
def policy_publish(
    file: Annotated[Path, typer.Argument(exists=True, dir_okay=False, help="The policy as JSON.")],
    why: Why,
    directory: Directory = DEFAULT_DIRECTORY,
) -> None:
    """Publish a policy; its version must be higher than the one that stands."""
    try:
        document = msgspec.json.decode(file.read_bytes(), type=dict[str, Any])
    except msgspec.DecodeError as error:
        raise PolicyError(f"{file} is no policy: {error}") from None
    with _operator(directory) as client:
        console.print_json(data=client.operate("policy", {"policy": document, "why": why}))


@app.command(
    "top-up",
    epilog=_examples(
        'top-up t-acme autocut 100 --why "they asked nicely"',
        'top-up u-hsaaz596ffxc94wvqhch874054 smart 20 --why "a broken film"',
    ),
)
def top_up(
    account_id: Annotated[
        str,
        typer.Argument(
            help="t-TENANT for its contract; of a user without one what `quotas` tells (u-…)."
        ),
    ],
    scene: Annotated[Scene, typer.Argument(help="What the credits are for.")],
    credits: Annotated[int, typer.Argument(min=1, help="Whole credits.")],  # noqa: A002
    why: Why,
    user_id: Annotated[
        str | None,
        typer.Option(help="A user of the tenant, instead of the tenant's contract."),
    ] = None,
    directory: Directory = DEFAULT_DIRECTORY,
) -> None:
    """Add credits of this month to a user's scene, or to a contract."""
    body: dict[str, Any] = {
        "account_id": account_id,
        "scene": scene.value,
        "amount_micros": credits * 1_000_000,
        "why": why,
    }
    if user_id is None and account_id.startswith("u-"):
        user_id = account_id.removeprefix("u-")  # who has no tenant is his own account
    if user_id is not None:
        body["user_id"] = user_id
    with _operator(directory) as client:
        console.print_json(data=client.operate("top-up", body))


@lanes_app.command("list")
def lanes_list(
    directory: Directory = DEFAULT_DIRECTORY,
    json: Annotated[bool, typer.Option("--json", help="For programs.")] = False,
) -> None:
    """Show the lanes of every pool: what waits, how long, and what a new task would wait."""
    with _operator(directory) as client:
        pools: list[dict[str, Any]] = client.pools()["pools"]
    if json:
        console.print_json(data={"pools": pools})
    else:
        console.print(status.lanes_table(pools))
        _tell_remarks(pools)


@lanes_app.command("pause", epilog=_examples('lanes pause R p2 --why "festival"'))
def lanes_pause(
    pool: Pool, lane: LaneName, why: Why, directory: Directory = DEFAULT_DIRECTORY
) -> None:
    """Grant nothing more of this lane; what waits keeps its place and its time."""
    with _operator(directory) as client:
        console.print_json(data=client.operate(f"lanes/{pool}/{lane}/pause", {"why": why}))


@lanes_app.command("resume")
def lanes_resume(
    pool: Pool, lane: LaneName, why: Why, directory: Directory = DEFAULT_DIRECTORY
) -> None:
    """Serve the lane again."""
    with _operator(directory) as client:
        console.print_json(data=client.operate(f"lanes/{pool}/{lane}/resume", {"why": why}))


@lanes_app.command("reset-breaker")
def lanes_reset_breaker(
    pool: Pool,
    scene: Annotated[Scene, typer.Argument(help="Whose breaker.")],
    why: Why,
    directory: Directory = DEFAULT_DIRECTORY,
) -> None:
    """Close the breaker of a pool and scene by hand; its attempts are counted anew."""
    with _operator(directory) as client:
        path = f"breakers/{pool}/{scene.value}/reset"
        console.print_json(data=client.operate(path, {"why": why}))


Of = Annotated[str, typer.Argument(help="Id of a letter, a task or a trace.")]


@dlq_app.command("list")
def dlq_list(
    of: Annotated[
        str | None, typer.Argument(help="Only those of this letter, task, trace.")
    ] = None,
    closed: Annotated[bool, typer.Option("--all", help="Those that are dealt with too.")] = False,
    count: Annotated[int, typer.Option(min=1, max=100, help="How many.")] = 50,
    directory: Directory = DEFAULT_DIRECTORY,
) -> None:
    """List dead letters, newest first, and the keys behind which commands wait."""
    with _operator(directory) as client:
        letters.show_list(console, client, of, closed=closed, count=count)


@dlq_app.command("show")
def dlq_show(of: Of, directory: Directory = DEFAULT_DIRECTORY) -> None:
    """Show letters with what was asked."""
    with _operator(directory) as client:
        letters.show_whole(console, client, of)


@dlq_app.command("redrive", epilog=_examples('dlq redrive TASK --why "the store is back"'))
def dlq_redrive(of: Of, why: Why, directory: Directory = DEFAULT_DIRECTORY) -> None:
    """Do it again: a command before what waits behind it, a spent task on a new reservation."""
    with _operator(directory) as client:
        raise typer.Exit(letters.close(console, client, "redrive", of, why))


@dlq_app.command("discard")
def dlq_discard(of: Of, why: Why, directory: Directory = DEFAULT_DIRECTORY) -> None:
    """Never do it; what waits behind it goes on."""
    with _operator(directory) as client:
        raise typer.Exit(letters.close(console, client, "discard", of, why))


# --- demo and bench ------------------------------------------------------------------------------


@app.command()
def demo(
    directory: Annotated[Path, typer.Option(help="Folder of the demo.")] = Path(".cutlog/demo"),
    clip: Annotated[
        Path | None, typer.Option(exists=True, dir_okay=False, help="Your own clip.")
    ] = None,
    target_seconds: Annotated[float, typer.Option(min=2, max=600, help="Length of the film.")] = 12,
) -> None:
    """Start everything, make a film of a real clip, show what happened, stop."""
    from cutlog.demo import run  # noqa: PLC0415 - numpy is only needed here

    _end_in_good_order()

    raise typer.Exit(run(directory, clip, target_seconds))


@app.command(
    context_settings={"allow_extra_args": True, "ignore_unknown_options": True},
)
def bench(
    context: typer.Context,
    name: Annotated[
        str,
        typer.Argument(
            help="engine, lifecycles, faults, pools, dispatch, autocut, matting or uploads."
        ),
    ],
) -> None:
    """Measure; the last line is JSON. Options go to the benchmark (`NAME -- --help` tells them)."""
    from cutlog.bench import run  # noqa: PLC0415 - not a part of running the product

    _end_in_good_order()

    raise typer.Exit(run(name, context.args))


@app.command(
    context_settings={"allow_extra_args": True, "ignore_unknown_options": True},
)
def simulate(
    context: typer.Context,
    scenario: Annotated[
        str,
        typer.Argument(help="day, festival, hot-template, greedy, batch, outage or skew."),
    ],
    seed: Annotated[int, typer.Option(help="The same seed is the same day.")] = 7,
    factor: Annotated[float, typer.Option(min=1, max=10, help="Of the festival.")] = 5.0,
    faults: Annotated[float, typer.Option(min=0, max=20, help="How often; 0: none.")] = 1.0,
    out: Annotated[Path, typer.Option(help="Folder of the page with the plots.")] = Path(
        ".cutlog/simulations"
    ),
) -> None:
    """Play a day of a whole platform in virtual time; the last line is JSON."""
    from cutlog.simulation import run  # noqa: PLC0415 - not a part of running the product

    _end_in_good_order()
    options = [
        f"--seed={seed}",
        f"--factor={factor}",
        f"--faults={faults}",
        f"--out={out.resolve()}",
    ]
    raise typer.Exit(run(scenario, [*options, *context.args]))


# --- the way there -------------------------------------------------------------------------------


@contextmanager
def _client(
    directory: Path, sub: str, tenant: str, tier: str, scope: str = ""
) -> Generator[Client]:
    installation = Installation(directory)
    port = installation.ports().get("api")
    if port is None:
        raise UpError(f"nothing was ever started in {directory}: `python -m cutlog up` first")
    token = installation.token(sub, tenant=tenant, tier=tier, scope=scope)
    with Client(f"http://127.0.0.1:{port}", token) as client:
        yield client


publishing.register(app, _client)


@contextmanager
def _operator(directory: Path) -> Generator[Client]:
    with _client(directory, "operator", "", "pro", "operate") as client:
        yield client


def _end_in_good_order() -> None:
    """A request to end unwinds what was begun, so that nothing is left running."""

    def end(number: int, frame: FrameType | None) -> None:
        del frame
        raise SystemExit(128 + number)

    for name in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(name, end)


def _check_installed(installation: Installation) -> None:
    if not installation.ports():
        raise NotInstalledError(
            f"nothing was ever started in {installation.directory}: `python -m cutlog up` first"
        )


def _check_files(files: Iterable[Path]) -> None:
    """Before anything is sent: what one can see of the files without reading them."""
    for file in files:
        if not file.stat().st_size:
            raise typer.BadParameter(f"{file} is empty", param_hint="'files'")


@contextmanager
def _interruptible(how: str) -> Generator[None]:
    """Ctrl-C ends the command, and a line says what becomes of what was begun."""
    try:
        yield
    except KeyboardInterrupt:
        print(f"\n{how}", file=sys.stderr)
        raise typer.Exit(128 + signal.SIGINT) from None


def _tell_remarks(pools: Iterable[Mapping[str, Any]]) -> None:
    for remark in status.remarks(pools):
        console.print(remark, markup=False)  # people's words are in it


def _tell_answer(answer: Answer) -> None:
    console.print(f"task [bold]{answer.task_id}[/]  {answer.status}")


def _parameters(given: list[str] | None) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for one in given or []:
        name, separator, value = one.partition("=")
        if not separator:
            raise typer.BadParameter(f"{one!r} is not NAME=JSON")
        try:
            found[name] = msgspec.json.decode(value)
        except msgspec.DecodeError:
            found[name] = value
    return found


def _runners(given: list[str] | None) -> tuple[RunnerPlan, ...] | None:
    if not given:
        return None
    plans: list[RunnerPlan] = []
    for one in given:
        pool_id, _, slots = one.rpartition(":")
        if not pool_id or not slots.isdigit() or int(slots) < 1:
            raise typer.BadParameter(f"{one!r} is not POOL:SLOTS, for example A:1")
        plans.append(RunnerPlan(pool_id, int(slots)))
    return tuple(plans)


def _settings(given: list[str] | None) -> dict[str, str]:
    """Settings by name; one that no process reads is a typing error."""
    known = setting_names()
    found: dict[str, str] = {}
    for one in given or []:
        name, separator, value = one.partition("=")
        if not separator or name not in known:
            raise typer.BadParameter(f"{one!r} is not CUTLOG_…=VALUE of docs/operating.md")
        found[name] = value
    return found


def _identity_path(installation: Installation) -> Path:
    return installation.directory / "up.json"


def _write_identity(installation: Installation) -> None:
    identity = identify(os.getpid())
    if identity is not None:
        _identity_path(installation).write_bytes(msgspec.json.encode(identity))


def _supervisor(installation: Installation) -> Identity | None:
    """The living `up` of this installation."""
    path = _identity_path(installation)
    if not path.exists():
        return None
    identity = msgspec.json.decode(path.read_bytes(), type=Identity)
    return identity if is_alive(identity) else None


def _only_one(installation: Installation) -> IO[str]:
    """Hold the installation's lock as long as the file is open; raises UpError for a second."""
    lock = (installation.directory / "up.lock").open("w")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        lock.close()
        supervisor = _supervisor(installation)
        who = f" (pid {supervisor.pid})" if supervisor else ""
        raise UpError(f"already up{who}; `python -m cutlog down` ends it") from None
    return lock


def _tell_how(installation: Installation, url: str) -> None:
    folder = installation.directory
    console.print(
        f"\n[bold]Cutlog is up[/] at {url}  (logs in {installation.logs}, Ctrl-C stops)\n\n"
        f"  python -m cutlog submit CLIP.mp4          a film of your clip\n"
        f"  python -m cutlog status                   what runs, how far behind\n"
        f"  TOKEN=$(python -m cutlog token)           then by hand:\n"
        f'  curl -H "Authorization: Bearer $TOKEN" {url}/v1/quotas\n',
        soft_wrap=True,
    )
    if folder != DEFAULT_DIRECTORY.resolve():
        console.print(f"  (with -d {folder} for each command)", soft_wrap=True)
