"""`python -m tests.gallery OUT [--only PATTERN]`: make, measure and lay out everything."""

import argparse
import sys
import tempfile
import time
from fnmatch import fnmatch
from pathlib import Path

from cutlog.client import Client, Refused
from cutlog.installation import RunnerPlan
from tests.gallery.material import material
from tests.gallery.orders import RATIOS, Json, Order, orders
from tests.gallery.seeing import Viewer
from tests.gallery.table import Row, write
from tests.platform.installed import Platform


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.gallery", description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--only", default="*", help="names of orders, as in a shell")
    asked = parser.parse_args(arguments)
    wanted = [order for order in orders() if fnmatch(order.name, asked.only)]
    with tempfile.TemporaryDirectory(prefix="cutlog-gallery-") as folder:
        platform = Platform(
            Path(folder),
            runners=tuple(RunnerPlan(pool, 1) for pool in ("A", "B", "C", "M")),
            processors=1,
        )
        platform.start()
        try:
            token = platform.installation.token("gallery", tier="studio")
            with Client(platform.url, token) as client, Viewer() as viewer:
                rows = _make(client, viewer, wanted, asked.out)
        finally:
            platform.stop()
    write(rows, asked.out)
    return 1 if any(row.faults for row in rows) else 0


def _make(client: Client, viewer: Viewer, wanted: list[Order], out: Path) -> list[Row]:
    """Submit everything, then look at each result as it comes."""
    files = material(out / "material")
    ids: dict[str, str] = {}
    for name in sorted({name for order in wanted for name in order.inputs}):
        ids[name] = client.upload(files[name])
        client.await_material(ids[name])
    submitted = [(order, _submit(client, order, ids)) for order in wanted]
    rows: list[Row] = []
    for order, task in submitted:
        row = _refused(order, task) if isinstance(task, Refused) else None
        if row is None:
            row = _result(client, viewer, order, str(task), out)
        print(f"{row.name:34} {', '.join(row.faults) or 'fine'}", flush=True)
        rows.append(row)
    return rows


def _submit(client: Client, order: Order, ids: dict[str, str]) -> str | Refused:
    """Its task, a few at a time: the minute's limit is the door's, and is waited for."""
    while True:
        try:
            return client.submit(
                order.scene,
                materials=[ids[name] for name in order.inputs],
                parameters=order.parameters,
                prompt=order.prompt,
            ).task_id
        except Refused as refused:
            if refused.retry_after_seconds is None:
                return refused
            time.sleep(refused.retry_after_seconds)


def _result(client: Client, viewer: Viewer, order: Order, task_id: str, out: Path) -> Row:
    last = list(client.watch(task_id))[-1]
    if last.name != "task.succeeded.v1":
        return Row(name=order.name, scene=order.scene, faults=(f"{last.name}: {last.data}",))
    folder = out / "results" / order.name
    paths = {path.name: path for path in client.download(task_id, folder)}
    told = client.result(task_id)
    addresses = {str(file["name"]): str(file["url"]) for file in told["files"]}
    facts: Json = dict(told["facts"] or {})
    ratio = RATIOS[order.shape] if order.shape else None
    sheet = out / "sheets" / f"{order.name}.jpg"
    films, faults = viewer.look(order, paths, addresses, facts, ratio, sheet)
    task = client.task(task_id)
    return Row(
        name=order.name,
        scene=order.scene,
        card_seconds=task.get("card_seconds"),
        films=tuple(films),
        files=tuple(sorted(paths)),
        facts=facts,
        faults=tuple(faults),
    )


def _refused(order: Order, refused: Refused) -> Row:
    return Row(name=order.name, scene=order.scene, faults=(f"refused: {refused}",))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
