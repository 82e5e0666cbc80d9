"""Ends a process that does not get on: not ready, lag without progress, or a loop that hangs.

A thread of its own: it must also see that the event loop does not run.
"""

import threading
import time
from collections.abc import Mapping

from processors.engine.engine import Engine, Place, Seen
from processors.engine.exits import DOUBT, leave

LOOK_SECONDS = 1.0


class Watchdog:
    """Looks once a second; the loop says each second that it runs, and what the consumer sees."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._loop_at = time.monotonic()
        self._stuck: dict[Place, tuple[tuple[int, int], float]] = {}
        self.reason: str | None = None
        self._stopped = threading.Event()

    def start(self) -> None:
        threading.Thread(target=self._run, name="watchdog", daemon=True).start()

    def stop(self) -> None:
        """The process is leaving on its own."""
        self._stopped.set()

    def beat(self, seen: Mapping[Place, Seen]) -> None:
        """The loop runs; this is where the consumer stands."""
        now = time.monotonic()
        self._loop_at = now
        self.reason = self._look(seen, now)

    def _run(self) -> None:
        while not self._stopped.wait(LOOK_SECONDS):
            silent = time.monotonic() - self._loop_at
            if silent > 2 * self._engine.settings.stuck_seconds_max:
                leave(DOUBT, f"the event loop has not run for {silent:.0f} s")
            if self.reason is not None:
                leave(DOUBT, self.reason)

    def _look(self, seen: Mapping[Place, Seen], now: float) -> str | None:
        engine = self._engine
        settings = engine.settings
        if engine.down is not None:
            return None
        if not engine.ready:
            late = now - engine.recovered_at
            if late > settings.ready_seconds_max:
                return f"not ready for {late:.0f} s"
            self._stuck.clear()
            return None
        engine.moved()
        for owner in engine.owners.values():
            waits = now - owner.moved_at
            if owner.waiting and waits > settings.stuck_seconds_max:
                return f"partition {owner.number}: no progress for {waits:.0f} s, commands wait"
            unread = owner.ticker.waiting_seconds() if owner.ticker is not None else 0.0
            if unread > settings.stuck_seconds_max and waits > settings.stuck_seconds_max:
                return f"partition {owner.number}: a tick has not come back for {unread:.0f} s"
        return self._lagging(seen, now)

    def _lagging(self, seen: Mapping[Place, Seen], now: float) -> str | None:
        """Records wait in Kafka and none come, or they were handed over and are not applied."""
        applied = self._engine.positions()
        for place, (position, end, handed) in seen.items():
            reached = applied.get(place) or 0
            done = position >= end and reached >= handed
            last, since = self._stuck.get(place, ((-1, -1), now))
            if done or (position, reached) != last:
                self._stuck[place] = ((position, reached), now)
            elif now - since > self._engine.settings.stuck_seconds_max:
                topic, number = place
                return (
                    f"{topic}[{number}]: no progress for {now - since:.0f} s, applied to "
                    f"{reached}, handed over to {handed}, fetched to {position} of {end}"
                )
        return None
