"""One installation on this machine: its folder, secrets, ports and the settings of its processes.

Everything lives in one folder (`.cutlog` by default): the parts of the local stack, `secrets.json`,
the development keys that tokens are signed with, the key store of private data, logs. Deleting the
folder deletes the installation.
"""

import secrets
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

import jwt
import msgspec
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from cutlog.stack import ports
from cutlog.stack.part import HOST
from cutlog.stack.stack import LocalStack
from schema.policy import PolicyError, read_policy
from schema.settings import PREFIX, Settings

ROOT: Final = Path(__file__).parents[1]
DEFAULT_DIRECTORY: Final = Path(".cutlog")
LOCAL_POLICY: Final = Path(__file__).parent / "policies" / "local.json"
TOKEN_SECONDS: Final = 12 * 3600
_ALGORITHM: Final = "EdDSA"


class NotInstalledError(Exception):
    """There is no installation in this folder yet."""


class RunnerPlan(NamedTuple):
    """One runner process: its pool and how many slots its card is cut into."""

    pool_id: str
    slots: int


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """Which processes an installation runs."""

    processors: int = 1
    runners: tuple[RunnerPlan, ...] = (RunnerPlan("A", 1), RunnerPlan("R", 64))
    scaled: tuple[str, ...] = ()
    """Pools that get and lose runners as they ask to, instead of fixed ones."""
    policy: Path = LOCAL_POLICY
    partitions: int = 2
    environ: dict[str, str] = {}
    """Settings on top of the installation's own."""
    modules: dict[str, str] = {}
    """Other modules to start instead of ours, by name: drills with a fault on purpose."""


class Service(NamedTuple):
    """A process of ours: `python -m <module>` with these settings on top of the shared ones."""

    name: str
    module: str
    environ: dict[str, str]
    port: int

    @property
    def url(self) -> str:
        """Where it answers /healthz, /readyz and /metrics."""
        return f"http://{HOST}:{self.port}"


class _Kept(msgspec.Struct, frozen=True, kw_only=True):
    """Of the plan that was started last: what `status` must know to ask every process."""

    processors: int
    runners: tuple[RunnerPlan, ...]
    scaled: tuple[str, ...] = ()


class _Secrets(msgspec.Struct, frozen=True, kw_only=True):
    pseudonym_secret: str
    consistency_secret: str


class Installation:
    """The folder and what is derived from it. Nothing runs yet; `cutlog.up` starts processes."""

    def __init__(
        self,
        directory: Path = DEFAULT_DIRECTORY,
        *,
        plan: Plan | None = None,
        api_port: int | None = None,
        die_with_parent: bool = False,
    ) -> None:
        self.directory = directory.resolve()
        self.plan = plan or self._plan_of_the_last_start()
        self.stack = LocalStack(self.directory / "stack", die_with_parent=die_with_parent)
        self._api_port = api_port
        self.die_with_parent = die_with_parent

    def _plan_of_the_last_start(self) -> Plan:
        path = self.directory / "plan.json"
        if not path.exists():
            return Plan()
        kept = msgspec.json.decode(path.read_bytes(), type=_Kept)
        return Plan(processors=kept.processors, runners=kept.runners, scaled=kept.scaled)

    @property
    def logs(self) -> Path:
        return self.directory / "logs"

    def prepare(self) -> None:
        """Make what a first start needs: folders, secrets, keys. Later calls change nothing."""
        for name in ("logs", "keys", "work"):
            (self.directory / name).mkdir(parents=True, exist_ok=True)
        plan = self.plan
        kept = _Kept(processors=plan.processors, runners=plan.runners, scaled=plan.scaled)
        (self.directory / "plan.json").write_bytes(msgspec.json.encode(kept))
        path = self.directory / "secrets.json"
        if not path.exists():
            made = _Secrets(
                pseudonym_secret=secrets.token_urlsafe(32),
                consistency_secret=secrets.token_urlsafe(32),
            )
            _write_private(path, msgspec.json.encode(made))
        if not self._private_key_path.exists():
            key = Ed25519PrivateKey.generate()
            public = key.public_key().public_bytes(
                serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
            )
            self._public_key_path.write_bytes(public)
            private = key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.NoEncryption(),
            )
            _write_private(self._private_key_path, private)

    def settle_ports(self, in_use: Sequence[str] = ()) -> dict[str, int]:
        """Each process's port: the same as before where it is free."""
        path = self.directory / "ports.json"
        kept = msgspec.json.decode(path.read_bytes(), type=dict[str, int]) if path.exists() else {}
        wanted = {} if self._api_port is None else {"api": self._api_port}
        assigned = ports.assign(self._names(), wanted=wanted, kept=kept, in_use=in_use)
        path.write_bytes(msgspec.json.encode(assigned))
        return assigned

    def ports(self) -> dict[str, int]:
        """The ports as they were settled; empty before the first start."""
        path = self.directory / "ports.json"
        return msgspec.json.decode(path.read_bytes(), type=dict[str, int]) if path.exists() else {}

    def environ(self) -> dict[str, str]:
        """The settings that all processes share."""
        kept = msgspec.json.decode((self.directory / "secrets.json").read_bytes(), type=_Secrets)
        return self.stack.environ() | {
            "CUTLOG_KAFKA_PARTITIONS": str(self.plan.partitions),
            "CUTLOG_KEYS_PSEUDONYM_SECRET": kept.pseudonym_secret,
            "CUTLOG_KEYS_CONSISTENCY_SECRET": kept.consistency_secret,
            "CUTLOG_KEYS_DIRECTORY": str(self.directory / "keys"),
            "CUTLOG_API_HOST": HOST,
            "CUTLOG_API_TOKEN_KEY_FILE": str(self._public_key_path),
            "CUTLOG_API_TOKEN_ALGORITHM": _ALGORITHM,
            "CUTLOG_PROCESSORS_POLICY_FILE": str(self.plan.policy.resolve()),
            **self.plan.environ,
        }

    def services(self, assigned: Mapping[str, int]) -> list[Service]:
        """Our processes in the order in which they start."""
        work = self.directory / "work"
        found: list[Service] = []
        for name in self._names():
            port = assigned[name]
            kind, _, number = name.partition("-")
            match kind:
                case "processor":
                    own = {
                        "CUTLOG_PROCESSORS_INSTANCE_ID": name,
                        "CUTLOG_PROCESSORS_METRICS_PORT": str(port),
                        "CUTLOG_PROCESSORS_DATA_DIRECTORY": str(work / name),
                    }
                    found.append(Service(name, "processors", own, port))
                case "projector":
                    own = {"CUTLOG_PROJECTIONS_METRICS_PORT": str(port)}
                    found.append(Service(name, "projections", own, port))
                case "api":
                    found.append(Service(name, "api", {"CUTLOG_API_PORT": str(port)}, port))
                case "prober":
                    own = {
                        "CUTLOG_PROBING_WORK_DIRECTORY": str(work / name),
                        "CUTLOG_PROBING_METRICS_PORT": str(port),
                    }
                    found.append(Service(name, "gpu_runners.probing", own, port))
                case "scaling":
                    own = {
                        "CUTLOG_SCALING_EXECUTOR": "local",
                        "CUTLOG_SCALING_POOLS": ",".join(self.plan.scaled),
                        "CUTLOG_SCALING_DIRECTORY": str(work / name),
                        "CUTLOG_SCALING_POLICY_FILE": str(self.plan.policy.resolve()),
                        "CUTLOG_SCALING_METRICS_PORT": str(port),
                    }
                    found.append(Service(name, "gpu_runners.scaling", own, port))
                case _:
                    runner = self.plan.runners[int(number) - 1]
                    own = {
                        "CUTLOG_RUNNER_RUNNER_ID": name,
                        "CUTLOG_RUNNER_POOL_ID": runner.pool_id,
                        "CUTLOG_RUNNER_SLOTS": str(runner.slots),
                        "CUTLOG_RUNNER_WORK_DIRECTORY": str(work / name),
                        "CUTLOG_RUNNER_METRICS_PORT": str(port),
                    }
                    found.append(Service(name, "gpu_runners", own, port))
        return found

    def token(
        self,
        sub: str,
        *,
        tenant: str = "",
        tier: str = "free",
        scope: str = "",
        seconds: int = TOKEN_SECONDS,
    ) -> str:
        """A bearer token of the development keys, for people and tests on this machine."""
        if not self._private_key_path.exists():
            raise NotInstalledError(
                f"nothing was ever started in {self.directory}: `python -m cutlog up` first"
            )
        now = int(time.time())
        claims = {
            "iss": "cutlog",
            "aud": "cutlog",
            "sub": sub,
            "tenant": tenant,
            "tier": tier,
            "scope": scope,
            "iat": now,
            "exp": now + seconds,
        }
        return jwt.encode(claims, self._private_key_path.read_bytes(), algorithm=_ALGORITHM)

    @property
    def _private_key_path(self) -> Path:
        return self.directory / "token-key.private.pem"

    @property
    def _public_key_path(self) -> Path:
        return self.directory / "token-key.public.pem"

    def _names(self) -> list[str]:
        return [
            *(f"processor-{n}" for n in range(1, self.plan.processors + 1)),
            "projector",
            "api",
            "prober",
            *(f"runner-{n}" for n in range(1, len(self.plan.runners) + 1)),
            *(["scaling"] if self.plan.scaled else []),
        ]


def plan_runners(
    fixed: tuple[RunnerPlan, ...] | None, policy: Path
) -> tuple[tuple[RunnerPlan, ...], tuple[str, ...]]:
    """The fixed runners, and the pools that scale: those whose policy says so and nobody fixed.

    Raises PolicyError where the document is no policy, or has no pool of that name.
    """
    try:
        pools = read_policy(policy.read_bytes()).pools
    except PolicyError as error:
        raise PolicyError(f"{policy} is no policy: {error}") from None
    for runner in fixed or ():
        if runner.pool_id not in pools:
            raise PolicyError(
                f"{policy} has no pool {runner.pool_id!r}; it has {', '.join(sorted(pools))}"
            )
    named = {runner.pool_id for runner in fixed or ()}
    scaled = tuple(
        sorted(name for name, pool in pools.items() if pool.scaling and name not in named)
    )
    runners = Plan().runners if fixed is None else fixed
    return tuple(runner for runner in runners if runner.pool_id not in scaled), scaled


def setting_names() -> frozenset[str]:
    """Every variable of the environment that a process of ours reads."""
    found = {"CUTLOG_GENAI_SAFETY"}  # a judge is code, which the runner loads by itself
    for section in msgspec.structs.fields(Settings):
        for kind in getattr(section.type, "__args__", (section.type,)):
            if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
                found |= {
                    f"{PREFIX}_{section.name}_{field.name}".upper()
                    for field in msgspec.structs.fields(kind)
                }
    return frozenset(found)


def _write_private(path: Path, content: bytes) -> None:
    """Write whole or not at all, readable by the owner only."""
    new = path.with_suffix(".new")
    new.unlink(missing_ok=True)
    new.touch(mode=0o600)
    new.write_bytes(content)
    new.rename(path)
