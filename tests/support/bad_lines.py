"""An installation whose callers reach the object store over a line that can be cut or held."""

import asyncio
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple, TypeVar

from cutlog.client import Client, describe
from cutlog.installation import Installation, Plan, RunnerPlan
from cutlog.stack.part import HOST
from cutlog.stack.state import load as load_state
from cutlog.up import Up
from schema.ids import TenantId, pseudonym
from schema.objects import content_key
from schema.settings import load, need
from schema.wires.objects import ObjectStore
from tests.support.lines import Line, running_line

T = TypeVar("T")


class Shop(NamedTuple):
    """An installation whose callers reach the store over `line` only."""

    installation: Installation
    up: Up
    line: Line

    def client(self, sub: str, tenant: str = "") -> Client:
        return Client(self.up.api_url, self.installation.token(sub, tenant=tenant, tier="load"))

    def in_the_store(self, act: Callable[[ObjectStore], Awaitable[T]]) -> T:
        """Ask the store itself, behind the line."""

        async def acting() -> T:
            settings = need(load(self.installation.environ()), "objects")
            async with ObjectStore(settings) as store:
                return await act(store)

        return asyncio.run(acting())

    def content_key(self, sub: str, tenant: str, file: Path) -> str:
        """Where the content of a file stands."""
        secret = self.installation.environ()["CUTLOG_KEYS_PSEUDONYM_SECRET"].encode()
        tenant_id = TenantId(tenant)
        return content_key(tenant_id, pseudonym(secret, tenant_id, sub), describe(file)["sha256"])


@contextmanager
def open_shop(directory: Path) -> Generator[Shop]:
    """Bring one up below a folder; it ends with the block."""

    def store() -> tuple[str, int]:
        return HOST, load_state(directory / "cutlog" / "stack").ports["s3-s3"]

    with running_line(store) as line:
        plan = Plan(
            runners=(RunnerPlan("R", 4),),
            environ={"CUTLOG_OBJECTS_PUBLIC_ENDPOINT": line.url},
        )
        installation = Installation(directory / "cutlog", plan=plan, die_with_parent=True)
        up = Up(installation)
        up.start()
        try:
            yield Shop(installation, up, line)
        finally:
            up.stop()
