"""Settings as data. Each entry point hands in its environment; nothing here reads one.

`CUTLOG_<SECTION>_<NAME>` becomes `settings.<section>.<name>`; docs/operating.md lists them all. A
bad or missing value is one clear error that names the variable.
"""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

import msgspec

from schema.message import KeywordOnly

PREFIX = "CUTLOG"
Port = Annotated[int, msgspec.Meta(ge=0, le=65535)]
"""0: any free port."""
Seconds = Annotated[float, msgspec.Meta(gt=0, le=86_400)]
Positive = Annotated[int, msgspec.Meta(ge=1, le=1_000_000)]


class Section(msgspec.Struct, metaclass=KeywordOnly, frozen=True, forbid_unknown_fields=True):
    """A group of settings."""


class Kafka(Section):
    brokers: str
    partitions: Annotated[int, msgspec.Meta(ge=1, le=1024)] = 2
    """Of every topic; fixed when they are created, checked at start."""
    replication: Annotated[int, msgspec.Meta(ge=1, le=7)] = 1
    min_insync: Annotated[int, msgspec.Meta(ge=1, le=7)] = 1
    session_timeout_seconds: Annotated[float, msgspec.Meta(ge=1, le=300)] = 10
    zstd: bool = False
    """Compression: on in production, off on a laptop, where it only costs CPU."""
    request_timeout_seconds: Seconds = 5


class Postgres(Section):
    dsn: str
    pool_max: Positive = 8


class Redis(Section):
    url: str


class Objects(Section):
    """The object store, S3."""

    endpoint: str
    access_key: str
    secret_key: str
    bucket: str = "cutlog"
    region: str = "us-east-1"
    public_endpoint: str = ""
    """What callers reach, for presigned addresses; empty: the same as `endpoint`."""
    cold_class: str = ""
    """Storage class of cold results; empty: cold is only a word, for the bill."""
    fallback_endpoint: str = ""
    """Another way to the same bucket, for what runners could not do over `endpoint`."""


class Keys(Section):
    """Secrets of the installation."""

    pseudonym_secret: str
    directory: str
    """The key store of private data (a file for each subject)."""
    consistency_secret: str
    """Signs the consistency tokens of answers."""


class Api(Section):
    host: str = "127.0.0.1"
    port: Port = 8000
    token_issuer: str = "cutlog"  # noqa: S105 - the name of the issuer, not a token
    token_audience: str = "cutlog"  # noqa: S105
    token_algorithm: str = "EdDSA"  # noqa: S105
    token_key_file: str = ""
    """Public key (PEM) or secret file that tokens are checked with; or `token_jwks_url`."""
    token_jwks_url: str = ""
    instance: Annotated[int, msgspec.Meta(ge=0, le=100_000)] = 0
    """Number of this instance: it reads partition `instance` (modulo their number) of replies."""
    reply_timeout_seconds: Seconds = 2
    unanswered_max: Positive = 5_000
    """Commands without reply in a partition beyond which the door answers 503."""
    unanswered_seconds_max: Seconds = 5
    sse_connections_max: Positive = 10_000
    body_bytes_max: Positive = 65_536
    material_put_seconds: Positive = 3_600
    store_notifications_secret: Annotated[str, msgspec.Meta(pattern=r"\A([!-~]{16,512})?\Z")] = ""
    """What an object store shows that sends its notifications here; empty: it can't."""


class Processors(Section):
    app_id: str = "cutlog"
    instance_id: str = ""
    """Static membership: the same name after a restart gets its partitions back at once."""
    metrics_port: Port = 0
    policy_file: str = ""
    data_directory: str = ".cutlog/processors"


class Projections(Section):
    window_ms: Annotated[int, msgspec.Meta(ge=0, le=10_000)] = 100
    archive_ms: Annotated[int, msgspec.Meta(ge=10, le=600_000)] = 10_000
    """How often the failure archive looks for what is new."""
    results_hot_days: Positive = 7
    results_days: Positive = 30
    """From the end of its task on; then a result is deleted."""
    results_sweep_seconds: Seconds = 60
    """Between two walks over results, for what is old enough."""
    metrics_port: Port = 0


class Runner(Section):
    runner_id: str = "runner-1"
    pool_id: str = "A"
    slots: Positive = 1
    work_directory: str = ".cutlog/runner"
    metrics_port: Port = 0
    storing_seconds: Positive = 3_600
    """How long a finished result is offered to the store before the attempt fails."""
    storing_results_max: Annotated[int, msgspec.Meta(ge=0, le=1_000)] = 8
    """Results that are stored beside the slots; one more keeps its slot. 0: each one does."""
    storing_megabytes_max: Positive = 20_000
    """What they may take on the disk, all together."""
    storing_uploads_max: Annotated[int, msgspec.Meta(ge=1, le=64)] = 4
    """Files of one attempt that go to the store at once."""
    warm_scenes: str = ""
    """What its workers get ready for before the first task, separated by commas."""
    memory_megabytes_max: Annotated[int, msgspec.Meta(ge=0, le=4_000_000)] = 0
    """Address space of each process of a slot; 0: no limit (a worker on CUDA needs that)."""
    models_directory: str = ".cutlog/models"
    """Small models: cut-out, faces, speech. From the root of the checkout, or absolute."""
    diffusion_model: str = ""
    """Folder of a diffusers pipeline; empty: a tiny one with random weights."""
    drain_seconds: Annotated[float, msgspec.Meta(ge=0, le=86_400)] = 10
    """How long work may go on after SIGTERM before it is given back."""
    save_seconds: Annotated[float, msgspec.Meta(ge=0, le=86_400)] = 30
    """How long what is given back on SIGTERM may take to save how far it came."""
    drain_storing_seconds: Annotated[float, msgspec.Meta(ge=0, le=86_400)] = 90
    """How long after the grace a draining runner waits for what is being stored."""
    spot: bool = False
    """The card may be taken away at any time."""
    spot_notice_seconds: Seconds = 120
    """How long before that there is a notice: SIGUSR1, or the file below."""
    spot_notice_file: str = ""
    """Its being there is the notice; looked for once a second. Empty: only the signal."""


class Scaling(Section):
    """The process that gives pools the runners that they want."""

    executor: Literal["local", "figure"] = "local"
    """local: it starts and stops runner processes here; figure: it only tells the number."""
    pools: str = ""
    """Pools to look after, separated by commas; empty: every one whose policy has `scaling`."""
    directory: str = ".cutlog/scaling"
    """Of what the local executor knows of its runners, their scratch and their logs."""
    name_prefix: str = "scaled"
    """Its runners are PREFIX-POOL-NUMBER: names that no other machine may give."""
    policy_file: str = ""
    """The policy before the log tells of one."""
    host: str = "127.0.0.1"
    """Where /metrics and /external-metrics are served; 0.0.0.0 where others read them."""
    metrics_port: Port = 0
    drain_limit_seconds: Positive = 120
    """A runner that has not drained so long after SIGTERM is killed."""


class Probing(Section):
    """The process that joins, checks and looks at what was uploaded."""

    group: str = "cutlog-probing"
    """Of its consumers; all processes of one installation have the same."""
    slots: Positive = 2
    """Materials that one process works on at once."""
    work_directory: str = ".cutlog/probing"
    """Holds a copy of each of them."""
    metrics_port: Port = 0
    drain_seconds: Annotated[float, msgspec.Meta(ge=0, le=86_400)] = 20
    """How long work may go on after SIGTERM; what is broken off then is done by another."""
    megabytes_max: Positive = 50_000
    """Of one material, whoever's it is; so is the next."""
    seconds_max: Seconds = 21_600
    memory_megabytes: Positive = 3_072
    """Of the process that looks at one file; so are the next two."""
    cpu_seconds: Positive = 300
    wall_seconds: Seconds = 900


class Process(Section):
    """What every process has, whatever it does."""

    log_level: str = "INFO"
    ready_file: str = ""
    """Written once the process is ready: JSON with its pid and ports. Empty: not written."""


class Settings(Section):
    """Everything; a process uses the sections that it needs and asks for them (`need`)."""

    kafka: Kafka | None = None
    postgres: Postgres | None = None
    redis: Redis | None = None
    objects: Objects | None = None
    keys: Keys | None = None
    api: Api = Api()
    processors: Processors = Processors()
    projections: Projections = Projections()
    runner: Runner = Runner()
    scaling: Scaling = Scaling()
    probing: Probing = Probing()
    process: Process = Process()


class SettingsError(ValueError):
    """A setting is missing or wrong; the message names the variable."""


def load(environ: Mapping[str, str]) -> Settings:
    """The settings in `environ` (only names with our prefix); raises SettingsError."""
    sections: dict[str, dict[str, str]] = {}
    for name, value in environ.items():
        if not name.startswith(f"{PREFIX}_"):
            continue
        section, _, field = name[len(PREFIX) + 1 :].lower().partition("_")
        if section in Settings.__struct_fields__ and field:
            sections.setdefault(section, {})[field] = value
    try:
        return msgspec.convert(sections, Settings, strict=False)
    except msgspec.ValidationError as error:
        message = f"settings ({PREFIX}_<SECTION>_<NAME>): {error}"
        raise SettingsError(message) from error


def need(settings: Settings, section: str) -> Any:  # noqa: ANN401 - one of the sections
    """A section that a process cannot do without; raises SettingsError naming its variables."""
    value = getattr(settings, section)
    if value is None:
        message = f"{PREFIX}_{section.upper()}_* is not set; see docs/operating.md"
        raise SettingsError(message)
    return value
