"""Everything that the routes are made of, composed once in `build_parts`."""

import asyncio
import logging
import signal
from collections.abc import Coroutine
from dataclasses import dataclass, field
from typing import Any

from api.asking import Asker
from api.auth import Gatekeeper, key_source
from api.consistency import ConsistencyTokens
from api.contracts import fingerprint_key
from api.deliveries import Deliveries
from api.hints import Hints
from api.live import Live
from api.lookups import Lookups
from api.measures import Measures
from api.objectives import Objectives
from api.pools import Pools
from api.promises import Promises
from api.proofs import Proofs
from api.rates import RateHint
from api.reads import ReadModel, Row
from api.replies import AnswerReader, Answers
from api.standing import Standing
from api.submissions import Submissions
from api.uploads import Uploads
from schema.ids import TaskId
from schema.settings import Settings, need
from schema.wires.keys import FileKeyStore, KeyStore
from schema.wires.objects import ObjectStore
from schema.wires.telemetry import end_tasks, facts, new_registry, stop_quietly

_log = logging.getLogger(__name__)


@dataclass(kw_only=True)
class Parts:
    """The api, taken apart."""

    settings: Settings
    gatekeeper: Gatekeeper
    asker: Asker
    answers: Answers
    reader: AnswerReader
    reads: ReadModel
    tasks: Lookups[TaskId, Row]
    live: Live
    standing: Standing
    pools: Pools
    promises: Promises
    objectives: Objectives
    rates: RateHint
    keys: KeyStore
    objects: ObjectStore
    proofs: Proofs
    uploads: Uploads
    hints: Hints
    tokens: ConsistencyTokens
    measures: Measures
    deliveries: Deliveries
    submissions: Submissions
    streams: int = 0
    """Open streams and long polls."""
    stopping: bool = False
    _background: list["asyncio.Task[None]"] = field(default_factory=list)

    async def start(self) -> None:
        """Start what works beside the requests. Returns at once: readiness says what is missing."""
        await self.objects.start()
        self._begin(self.asker.connect(), "log", ends=True)
        self._begin(self.reader.run(), "replies")
        self._begin(self.live.run(), "live")
        self._begin(self.standing.run(), "standing")
        self._begin(self.rates.run(), "rates")
        self._begin(self.promises.run(), "promises")
        self._begin(self.deliveries.run(), "deliveries")
        self._begin(self.objectives.run(), "objectives")

    def begin_stop(self) -> None:
        """Say no from here on: not ready, and streams end so that their clients go elsewhere."""
        self.stopping = True
        self.live.stop()

    async def stop(self) -> None:
        """Close everything, once no request is left."""
        self.begin_stop()
        await end_tasks(*self._background)
        for close in (self.asker.close, self.live.close, self.reads.close, self.objects.stop):
            await stop_quietly(close)

    def problem(self) -> str | None:
        """Why no submission would be taken now; None: the api is ready."""
        if self.stopping:
            return "stopping"
        if not self.asker.open:
            return "the log is away"
        if not self.reader.open:
            return "replies are not read"
        return self.standing.problem()

    def _begin(
        self, coroutine: Coroutine[Any, Any, None], name: str, *, ends: bool = False
    ) -> None:
        """`ends`: it is done once it has done what it is there for."""
        task = asyncio.create_task(coroutine, name=name)
        task.add_done_callback(lambda done: self._ended(done, ends=ends))
        self._background.append(task)

    def _ended(self, task: "asyncio.Task[None]", *, ends: bool) -> None:
        """A part that ends by itself is a defect: the process ends too, and is started again.

        So is one that was canceled while nobody stops: a library did that, not we.
        """
        if self.stopping:
            return
        error = None if task.cancelled() else task.exception()
        if ends and error is None and not task.cancelled():
            return
        _log.critical("a part of the api ended", exc_info=error, extra=facts(part=task.get_name()))
        signal.raise_signal(signal.SIGTERM)


def build_parts(settings: Settings) -> Parts:
    """All parts of the api; connects to nothing. Raises SettingsError."""
    kafka, keys = need(settings, "kafka"), need(settings, "keys")
    api = settings.api
    secret = keys.pseudonym_secret.encode()
    measures = Measures(new_registry())
    gatekeeper = Gatekeeper(api, key_source(api), secret)
    answers = Answers(
        unanswered_max=api.unanswered_max,
        unanswered_seconds_max=api.unanswered_seconds_max,
        join_seconds=api.reply_timeout_seconds,
    )
    reply_partition = api.instance % kafka.partitions
    asker = Asker(
        kafka,
        answers,
        reply_partition=reply_partition,
        timeout_seconds=api.reply_timeout_seconds,
    )
    reads = ReadModel(need(settings, "postgres"))
    live = Live(need(settings, "redis"))
    pools = Pools()
    standing = Standing(reads, pools, measures)
    promises = Promises(reads.first_starts, measures)
    rates = RateHint(live)
    key_store = FileKeyStore(keys.directory)
    tokens = ConsistencyTokens(keys.consistency_secret)
    objects = ObjectStore(need(settings, "objects"))
    uploads = Uploads(objects, asker, address_seconds=api.material_put_seconds)
    return Parts(
        settings=settings,
        gatekeeper=gatekeeper,
        asker=asker,
        answers=answers,
        reader=AnswerReader(kafka, reply_partition, answers, measures.reply_seconds.observe),
        reads=reads,
        tasks=Lookups(reads.tasks),
        live=live,
        standing=standing,
        pools=pools,
        promises=promises,
        objectives=Objectives(reads, standing, pools, promises, measures.registry),
        rates=rates,
        keys=key_store,
        objects=objects,
        proofs=Proofs(keys.consistency_secret),
        uploads=uploads,
        hints=Hints(reads, uploads, objects, asker, measures.store_hints),
        tokens=tokens,
        measures=measures,
        deliveries=Deliveries(asker, measures, api.instance),
        submissions=Submissions(
            gatekeeper=gatekeeper,
            standing=standing,
            reads=reads,
            pools=pools,
            promises=promises,
            rates=rates,
            asker=asker,
            keys=key_store,
            tokens=tokens,
            measures=measures,
            fingerprint_key=fingerprint_key(secret),
        ),
    )
