"""`python -m api`: settings from the environment, uvicorn on uvloop, until a signal."""

import os
import sys
from types import FrameType

import uvicorn

from api.app import build_app
from api.edge import Edge
from api.protocol import BoundedProtocol
from schema.settings import Settings, SettingsError, load
from schema.wires.processes import collect_rarely
from schema.wires.telemetry import set_up_logging, write_ready_file

GRACE_SECONDS = 10
KEEP_ALIVE_SECONDS = 30
CONNECTIONS_BACKLOG = 2_048


class Server(uvicorn.Server):
    """Tells the app that it stops before it waits for what is open: streams end by themselves."""

    def __init__(self, config: uvicorn.Config, app: Edge, ready_file: str) -> None:
        super().__init__(config)
        self._edge = app
        self._ready_file = ready_file

    async def startup(self, sockets: list[object] | None = None) -> None:  # type: ignore[override]
        await super().startup(sockets)  # type: ignore[arg-type]
        if self.started:
            port = self.servers[0].sockets[0].getsockname()[1]
            write_ready_file(self._ready_file, port=port, metrics_port=port)

    async def shutdown(self, sockets: list[object] | None = None) -> None:  # type: ignore[override]
        await super().shutdown(sockets)  # type: ignore[arg-type]
        # uvicorn raises the signal anew at the end; a stop in good order is no death by a signal.
        self._captured_signals.clear()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self._edge.begin_stop()
        super().handle_exit(sig, frame)


def build_server(settings: Settings) -> Server:
    """The server and its app; raises SettingsError."""
    app = build_app(settings)
    config = uvicorn.Config(
        app,
        host=settings.api.host,
        port=settings.api.port,
        loop="uvloop",
        http=BoundedProtocol,
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=GRACE_SECONDS,
        backlog=CONNECTIONS_BACKLOG,
    )
    return Server(config, app, settings.process.ready_file)


def main() -> int:
    """Run until a signal; 78 when the settings are wrong."""
    try:
        settings = load(os.environ)
        collect_rarely()
        set_up_logging("api", level=settings.process.log_level)
        server = build_server(settings)
    except SettingsError as error:
        sys.stderr.write(f"{error}\n")
        return 78
    server.run()
    return 0 if server.started else 1


if __name__ == "__main__":
    sys.exit(main())
