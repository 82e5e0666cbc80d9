"""One processor process, composed by hand: tables, rules, engine."""

from prometheus_client import CollectorRegistry

from processors.engine import App, build
from processors.engine import Settings as EngineSettings
from processors.metrics import PoolMetrics
from processors.rules import OUTPUTS, SOURCES, CutlogRules
from processors.tables import Tables
from schema.settings import Kafka, Settings, need
from schema.topics import Topic


def changelog_of(app_id: str) -> str:
    """The compacted topic of all rows of a group."""
    return f"{app_id}-state-changelog"


def engine_settings(settings: Settings) -> EngineSettings:
    """What the engine is told of our settings."""
    kafka: Kafka = need(settings, "kafka")
    own = settings.processors
    return EngineSettings(
        broker=kafka.brokers,
        app_id=own.app_id,
        partitions=kafka.partitions,
        changelog=changelog_of(own.app_id),
        journal=Topic.JOURNAL,
        instance_id=own.instance_id or None,
        data_directory=own.data_directory,
        zstd=kafka.zstd,
        session_seconds=kafka.session_timeout_seconds,
    )


def build_app(settings: Settings, registry: CollectorRegistry) -> App:
    """The Faust app of a processor, ready to be run."""
    kafka: Kafka = need(settings, "kafka")
    tables = Tables()
    rules = CutlogRules(tables, kafka.partitions)
    registry.register(PoolMetrics(rules.pools))
    return build(
        engine_settings(settings),
        sources=SOURCES,
        tables=tables.all(),
        outputs=OUTPUTS,
        rules=rules,
        registry=registry,
    )
