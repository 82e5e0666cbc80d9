"""The local stack: what a part keeps over a crash, and that nothing is left behind."""

import asyncio
import os
import signal
import socket
import subprocess
import sys
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import asyncpg
import httpx
import psutil
import pytest
import redis
from aiobotocore.session import get_session
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient, NewTopic

from cutlog.stack import PART_NAMES, LocalStack, PartError, PartName
from cutlog.stack.kafka_jars import read_lock, sums
from cutlog.stack.ports import assign, is_free
from cutlog.stack.processes import find_marked
from schema.wires.processes import Identity, identify, is_alive

ROOT = Path(__file__).parents[2]


# ---------------------------------------------------------------- a client of each part


async def produce(stack: LocalStack, topic: str, value: bytes) -> None:
    brokers = stack.environ()["CUTLOG_KAFKA_BROKERS"]
    admin = AIOKafkaAdminClient(bootstrap_servers=brokers)
    await admin.start()
    await admin.create_topics([NewTopic(topic, 1, 1)])
    await admin.close()
    producer = AIOKafkaProducer(bootstrap_servers=brokers, transactional_id=f"{topic}-writer")
    await producer.start()
    async with producer.transaction():
        await producer.send_and_wait(topic, value)
    await producer.stop()


async def consume(stack: LocalStack, topic: str) -> bytes:
    consumer = AIOKafkaConsumer(
        topic,
        bootstrap_servers=stack.environ()["CUTLOG_KAFKA_BROKERS"],
        auto_offset_reset="earliest",
        isolation_level="read_committed",
        group_id=f"{topic}-{uuid.uuid4().hex}",
    )
    await consumer.start()
    try:
        record = await asyncio.wait_for(consumer.getone(), 60)
    finally:
        await consumer.stop()
    value: bytes | None = record.value
    assert value is not None
    return value


async def execute(stack: LocalStack, statement: str) -> list[asyncpg.Record]:
    line = await asyncpg.connect(stack.environ()["CUTLOG_POSTGRES_DSN"])
    try:
        return await line.fetch(statement)
    finally:
        await line.close()


async def signed(stack: LocalStack, method: str, key: str) -> str:
    settings = stack.environ()
    client = get_session().create_client(
        "s3",
        endpoint_url=settings["CUTLOG_OBJECTS_ENDPOINT"],
        region_name=settings["CUTLOG_OBJECTS_REGION"],
        aws_access_key_id=settings["CUTLOG_OBJECTS_ACCESS_KEY"],
        aws_secret_access_key=settings["CUTLOG_OBJECTS_SECRET_KEY"],
    )
    async with client as s3:
        where = {"Bucket": settings["CUTLOG_OBJECTS_BUCKET"], "Key": key}
        return await s3.generate_presigned_url(method, Params=where, ExpiresIn=60)


def valkey(stack: LocalStack) -> redis.Redis:
    return redis.Redis.from_url(stack.environ()["CUTLOG_REDIS_URL"])


# ---------------------------------------------------------------- each answers, each keeps


@pytest.mark.integration
async def test_kafka_keeps_a_transaction_over_kill_9(stack: LocalStack) -> None:
    topic = f"kept-{uuid.uuid4().hex}"
    await produce(stack, topic, b"a fact")
    # Readable: its end is written in the partition too. What a broker that dies before that owes
    # is paid by the next owner of the transactional id (`processors/engine/hanging.py`).
    assert await consume(stack, topic) == b"a fact"
    stack.kill("kafka")
    assert stack.pid("kafka") is None
    stack.restart("kafka")
    assert await consume(stack, topic) == b"a fact"


@pytest.mark.integration
async def test_postgres_keeps_a_commit_over_kill_9(stack: LocalStack) -> None:
    table = f"kept_{uuid.uuid4().hex}"
    await execute(stack, f"CREATE TABLE {table} AS SELECT 'Zoë' AS name")
    stack.kill("postgres")
    assert not stack.answers("postgres")
    stack.restart("postgres")
    (row,) = await execute(stack, f"SELECT name, current_database() AS at FROM {table}")  # noqa: S608
    assert (row["name"], row["at"]) == ("Zoë", "cutlog")


@pytest.mark.integration
async def test_postgres_wants_its_password(stack: LocalStack) -> None:
    settings = stack.environ()
    wrong = settings["CUTLOG_POSTGRES_DSN"].replace("cutlog:", "cutlog:x", 1)
    with pytest.raises(asyncpg.InvalidPasswordError):
        await asyncpg.connect(wrong)


@pytest.mark.integration
def test_valkey_keeps_a_key_over_kill_9(stack: LocalStack) -> None:
    key = uuid.uuid4().hex
    with valkey(stack) as client:
        client.set(key, "60")
        client.execute_command("WAITAOF", 1, 0, 5000)  # it is in the file
    stack.kill("valkey")
    stack.restart("valkey")
    with valkey(stack) as client:
        assert client.get(key) == b"60"


@pytest.mark.integration
async def test_objects_come_and_go_by_signed_addresses_and_survive_kill_9(
    stack: LocalStack,
) -> None:
    key, body = f"films/{uuid.uuid4().hex}.mp4", os.urandom(300_000)
    async with httpx.AsyncClient() as browser:
        put = await browser.put(
            await signed(stack, "put_object", key), content=body, headers={"Origin": "http://x"}
        )
        assert put.status_code == 200
        assert put.headers["Access-Control-Allow-Origin"]
        stack.kill("s3")
        stack.restart("s3")
        got = await browser.get(await signed(stack, "get_object", key))
        assert got.content == body
        unsigned = await browser.get(f"{stack.environ()['CUTLOG_OBJECTS_ENDPOINT']}/cutlog/{key}")
        assert unsigned.status_code == 403


@pytest.mark.integration
def test_a_paused_part_keeps_its_connections_and_answers_after_it_is_resumed(
    stack: LocalStack,
) -> None:
    with valkey(stack) as client:
        assert client.ping()
        stack.pause("valkey")
        assert not stack.answers("valkey")
        assert stack.pid("valkey") is not None
        stack.resume("valkey")
        assert client.ping()


@pytest.mark.integration
def test_every_port_listens_on_this_machine_only(stack: LocalStack) -> None:
    for part in PART_NAMES:
        pid = stack.pid(part)
        assert pid is not None
        family = [psutil.Process(pid), *psutil.Process(pid).children(recursive=True)]
        lines = [line for one in family for line in one.net_connections("tcp")]
        listening = {line.laddr[0] for line in lines if line.status == psutil.CONN_LISTEN}
        assert {address.removeprefix("::ffff:") for address in listening} == {"127.0.0.1"}, part


# ---------------------------------------------------------------- starting, ending, adopting

OWNER = """
import sys
from pathlib import Path
from cutlog.stack import LocalStack
stack = LocalStack(Path(sys.argv[1]), die_with_parent=sys.argv[2] == "die")
stack.start()
print("up", flush=True)
sys.stdin.read()
"""


def owner(directory: Path, mode: str) -> subprocess.Popen[str]:
    """A process of its own that starts a stack and waits."""
    process = subprocess.Popen(
        [sys.executable, "-c", OWNER, str(directory), mode],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "up\n"
    return process


def end(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.communicate()


def start_and_kill(directory: Path, seconds: float) -> None:
    """A start whose process is killed after that time, at whatever point it has reached."""
    process = subprocess.Popen(
        [sys.executable, "-c", OWNER, str(directory), "live"],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
    )
    with suppress(subprocess.TimeoutExpired):
        process.wait(seconds)
    process.kill()
    process.communicate()


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[Path]:
    """A folder for a stack of the test's own; what is left in it is ended."""
    yield tmp_path / "stack"
    LocalStack(tmp_path / "stack").stop()


def pids(stack: LocalStack) -> dict[PartName, int | None]:
    return {part: stack.pid(part) for part in PART_NAMES}


@pytest.mark.integration
async def test_a_stack_outlives_its_starter_and_starts_again_on_the_same_data(
    directory: Path,
) -> None:
    end(owner(directory, "live"))
    stack = LocalStack(directory)
    before, settings = pids(stack), stack.environ()
    assert None not in before.values()
    await execute(stack, "CREATE TABLE kept AS SELECT 1 AS one")
    stack.start()
    assert pids(stack) == before  # nothing was started: all were taken over

    for part in PART_NAMES:
        stack.kill(part)
    stack.start()
    assert stack.environ() == settings
    assert await execute(stack, "SELECT one FROM kept")
    living = [stack.pid(part) for part in PART_NAMES]
    stack.stop()
    assert not [pid for pid in living if pid is not None and psutil.pid_exists(pid)]
    assert find_marked(directory) == {}
    assert all(
        is_free(int(settings[name].rpartition(":")[2])) for name in ("CUTLOG_KAFKA_BROKERS",)
    )


@pytest.mark.integration
@pytest.mark.timeout(300)
async def test_a_first_start_that_was_killed_at_any_moment_is_made_good_by_the_next(
    directory: Path,
) -> None:
    for seconds in (0.3, 0.6, 1.0, 1.6, 2.5):
        start_and_kill(directory, seconds)
    stack = LocalStack(directory)
    stack.start()
    assert all(stack.answers(part) for part in PART_NAMES)
    assert await execute(stack, "SELECT 1 AS one")
    await produce(stack, "after", b"all that")
    assert await consume(stack, "after") == b"all that"
    stack.stop()
    assert find_marked(directory) == {}


@pytest.mark.integration
def test_a_lost_record_of_processes_does_not_lose_the_processes(directory: Path) -> None:
    end(owner(directory, "live"))
    (directory / "stack.json").write_text(
        (directory / "stack.json").read_text().replace('"start_ticks": ', '"start_ticks": 1')
    )
    stack = LocalStack(directory)
    assert set(pids(stack).values()) == {None}  # not these: they are others, by the record
    assert set(find_marked(directory)) == set(PART_NAMES)
    stack.stop()
    assert find_marked(directory) == {}


@pytest.mark.integration
def test_a_stack_that_must_not_outlive_its_owner_ends_with_it(directory: Path) -> None:
    process = owner(directory, "die")
    stack = LocalStack(directory)
    living = [psutil.Process(pid) for pid in pids(stack).values() if pid is not None]
    assert len(living) == len(PART_NAMES)
    end(process)
    _, left = psutil.wait_procs(living, timeout=90)
    assert [one for one in left if one.status() != psutil.STATUS_ZOMBIE] == []


@pytest.mark.integration
def test_a_part_that_cannot_start_says_why_and_takes_the_others_down(directory: Path) -> None:
    stack = LocalStack(directory, die_with_parent=True)
    stack.start()
    stack.stop()
    properties = directory / "kafka" / "data" / "meta.properties"
    properties.write_text(properties.read_text().replace("node.id=1", "node.id=7"))
    with pytest.raises(PartError, match=r"(?s)kafka ended with.*node"):
        stack.start()
    assert find_marked(directory) == {}


# ---------------------------------------------------------------- ports and pids


def test_ports_stay_unless_a_stranger_took_one() -> None:
    first = assign(["a", "b"], wanted={}, kept={})
    assert assign(["a", "b"], wanted={}, kept=first) == first
    with socket.socket() as stranger:
        stranger.bind(("127.0.0.1", first["a"]))
        stranger.listen()
        second = assign(["a", "b"], wanted={}, kept=first)
        assert second["b"] == first["b"]
        assert second["a"] != first["a"]
        assert assign(["a", "b"], wanted={}, kept=first, in_use=["a"]) == first
        with pytest.raises(PartError, match="taken"):
            assign(["a"], wanted={"a": first["a"]}, kept={})


def test_free_ports_are_not_those_of_outgoing_connections() -> None:
    lowest = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    names = [str(number) for number in range(20)]
    assigned = assign(names, wanted={}, kept={})
    assert len(set(assigned.values())) == len(names)
    assert max(assigned.values()) < lowest


def test_nobody_is_given_what_another_was_given_and_does_not_use_yet() -> None:
    names = [str(number) for number in range(20)]
    with ThreadPoolExecutor(4) as together:
        asked = [together.submit(assign, names, wanted={}, kept={}) for _ in range(20)]
    ports = [port for one in asked for port in one.result().values()]
    assert len(set(ports)) == len(ports)


def test_a_recycled_pid_is_another_process() -> None:
    process = subprocess.Popen(["/bin/cat"], stdin=subprocess.PIPE)
    known = identify(process.pid)
    assert known is not None
    assert is_alive(known)
    former = Identity(pid=known.pid, start_ticks=known.start_ticks - 1, boot=known.boot)
    assert not is_alive(former)
    with suppress(ProcessLookupError):
        os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    assert not is_alive(known)


def test_a_jar_that_was_changed_is_noticed(tmp_path: Path) -> None:
    (tmp_path / "a.jar").write_bytes(b"changed")
    name, digest = next(iter(read_lock().items()))
    assert sums(tmp_path)["a.jar"] != digest
    assert name.endswith(".jar")
    assert len(digest) == 64
