"""`cutlog publish`: have a result in full size, watch it being made, fetch it."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Annotated, Final

import typer

from cutlog import show
from cutlog.client import Client
from cutlog.installation import DEFAULT_DIRECTORY

Opened = Callable[[Path, str, str, str], AbstractContextManager[Client]]
"""A client of the installation in a folder, for a `sub`, a tenant and a tier."""
_SUCCEEDED: Final = "task.succeeded.v1"


def register(app: typer.Typer, opened: Opened) -> None:
    """Add the command to the command line."""

    @app.command()
    def publish(  # pyright: ignore[reportUnusedFunction] - the app calls it
        task_id: Annotated[str, typer.Argument(help="Id of a task that SUCCEEDED (`list` tells).")],
        directory: Annotated[
            Path,
            typer.Option(
                "--directory", "-d", help="Folder of the installation.", envvar="CUTLOG_HOME"
            ),
        ] = DEFAULT_DIRECTORY,
        out: Annotated[Path, typer.Option(help="Where the result is fetched to.")] = Path("films"),
        follow: Annotated[bool, typer.Option(help="Watch it, then fetch the result.")] = True,  # noqa: FBT002
        sub: Annotated[
            str, typer.Option("--as", help="Who asks (the `sub` of the token).")
        ] = "dev",
        tenant: Annotated[str, typer.Option(help="Tenant of who asks; empty: none.")] = "",
        tier: Annotated[
            str, typer.Option(help="Tier of who asks, as the policy names it.")
        ] = "pro",
    ) -> None:
        """Publish a result: a preview is made again in full size, at its price, once."""
        with opened(directory, sub, tenant, tier) as client:
            if not fetch_published(client, task_id, out, follow=follow):
                raise typer.Exit(1)


def fetch_published(client: Client, task_id: str, out: Path, *, follow: bool) -> bool:
    """Ask for it, and (`follow`) wait for it and fetch it; whether it came to its end."""
    by = client.publish(task_id)
    show.console.print(f"task [bold]{task_id}[/]  published by [bold]{by}[/]")
    if not follow:
        return True
    if by != task_id:
        events = show.follow(client.watch(by))
        show.console.print(show.timeline(events))
        if not events or events[-1].name != _SUCCEEDED:
            return False
    for path in client.download(by, out / by):
        show.fetched(path)
    return True
