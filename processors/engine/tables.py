"""Faust's table, its store and its recovery, hooked to the engine.

The one Faust table gives the changelog topic its place in the assignment. The rows stand in the
engine's writers; Faust's recovery is replaced by fence, changelog, seek, open.
"""

# Faust ships no types that hold; what it hands out is unknown, and stays so.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportUnknownParameterType=false
# pyright: reportPrivateUsage=false, reportUntypedBaseClass=false
# pyright: reportIncompatibleMethodOverride=false, reportMissingParameterType=false
# pyright: reportAttributeAccessIssue=false, reportOptionalMemberAccess=false
# pyright: reportUntypedFunctionDecorator=false, reportIncompatibleVariableOverride=false

# Private members and any types: that is what hooking into Faust means.
# ruff: noqa: ANN401, SLF001, ARG002

import logging
from collections.abc import Iterator
from typing import Any, NoReturn

import faust
from aiokafka.errors import IllegalStateError
from faust.stores.base import Store
from faust.tables.manager import TableManager
from faust.tables.recovery import RebalanceAgain, Recovery, ServiceStopped
from mode import Service

from processors.engine.errors import EngineError, PlainSendForbiddenError, TopologyError
from processors.engine.exits import DOUBT, TOPOLOGY, leave

log = logging.getLogger(__name__)


class StateStore(Store[Any, Any]):
    """Nothing is kept here: the engine's writers hold the rows."""

    def __getitem__(self, key: Any) -> Any:
        raise KeyError(key)

    def __setitem__(self, key: Any, value: Any) -> None:
        raise _read_only()

    def __delitem__(self, key: Any) -> None:
        raise _read_only()

    def __iter__(self) -> Iterator[Any]:
        return iter(())

    def __len__(self) -> int:
        return 0

    def __contains__(self, key: Any) -> bool:
        return False

    def clear(self) -> None:
        """Nothing to clear."""

    def apply_changelog_batch(self, *_: Any, **__: Any) -> None:
        """Recovery has its own reader."""

    def persisted_offset(self, tp: Any) -> None:
        return None

    def reset_state(self) -> None:
        """Nothing to reset."""

    async def backup_partition(self, *_: Any, **__: Any) -> None:
        """Nothing is on disk."""

    def restore_backup(self, *_: Any, **__: Any) -> None:
        """Nothing is on disk."""


def _read_only() -> PlainSendForbiddenError:
    return PlainSendForbiddenError("rows are written in a step, nowhere else")


class StateTable(faust.Table[Any, Any]):
    """Gives the changelog topic its name and place; whoever wants rows asks the step."""

    app: Any

    def _new_store(self) -> StateStore:
        return StateStore(self.app.conf.store, self.app, self, table_name=self.name, loop=self.loop)

    def _changelog_topic_name(self) -> str:
        return str(self.app.engine.settings.changelog)

    def on_key_set(self, key: Any, value: Any) -> NoReturn:
        raise _read_only()

    def on_key_del(self, key: Any) -> NoReturn:
        raise _read_only()


class StateRecovery(Recovery):
    """`on_rebalance` (inherited) gives the signal; the work is done here."""

    app: Any
    signal_recovery_start: Any

    def flush_buffers(self) -> None:
        """There are no buffers."""

    @Service.task
    async def _restart_recovery(self) -> None:
        app = self.app
        while not self.should_stop:
            if await self.wait_for_stopped(self.signal_recovery_start):
                break
            self.signal_recovery_start.clear()
            try:
                await self._take_over()
            except (RebalanceAgain, IllegalStateError) as error:
                log.info("recovery starts again", extra={"why": type(error).__name__})
            except ServiceStopped:  # mode calls a timeout "stopped" too
                if not app.should_stop:
                    leave(DOUBT, "recovery timed out")
                break
            except TopologyError as error:
                leave(TOPOLOGY, str(error))
            except Exception as error:
                if not isinstance(error, EngineError):
                    log.exception("recovery failed")
                leave(DOUBT, f"recovery failed: {error!r}")

    async def _take_over(self) -> None:
        app, consumer, engine = self.app, self.app.consumer, self.app.engine
        generation, revocations = self._generation_id, engine.revocations

        def overtaken() -> bool:  # by a rebalance, whose signal starts us again
            return bool(
                app.consumer_generation_id != generation or engine.revocations != revocations
            )

        self._set_recovery_started()
        engine.moved()
        sources = {tp for tp in consumer.assignment() if not consumer._is_changelog_tp(tp)}
        await self._wait(engine.assign((tp.topic, tp.partition) for tp in sources))
        await app.on_rebalance_complete.send()
        self._set_recovery_ended()
        if overtaken():
            return
        # clears all stream queues: before the seek, while the sources are still paused; Faust does
        # it the other way round and loses what was fetched in between
        app.flow_control.resume()
        await self._wait(consumer.perform_seek(), timeout=app.conf.broker_request_timeout)
        if overtaken():
            return
        engine.open(consumer.sought)
        consumer.resume_partitions(sources)
        self.completed.set()
        if engine.down is None:
            consumer.resume_flow()
        await app._fetcher.maybe_start()
        self.tables.on_actives_ready()
        self.tables.on_standbys_ready()
        app.on_rebalance_end()
        log.info("ready", extra={"partitions": sorted(engine.owners)})


class StateManager(TableManager):
    """Faust's, with the recovery above and without its sleep at start."""

    app: Any
    _recovery: StateRecovery | None

    @property
    def recovery(self) -> StateRecovery:
        if self._recovery is None:
            self._recovery = StateRecovery(self.app, self, beacon=self.beacon, loop=self.loop)
        return self._recovery

    async def on_start(self) -> None:
        if not self.should_stop:
            await self._update_channels()
            await self.recovery.start()
