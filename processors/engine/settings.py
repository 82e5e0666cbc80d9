"""Settings of the engine, as data. Times are seconds unless the name says otherwise."""

import msgspec

from processors.engine.order import Limits


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """How one process of an app works; `partitions`, `changelog`, `journal` are the same in all."""

    broker: str
    """host:port, several separated by commas."""
    app_id: str
    """Name of the group; with the partition number it is the transactional id."""
    partitions: int
    """Of every source, the changelog and the journal; fixed when they are created."""
    changelog: str
    """Compacted topic of all rows."""
    journal: str
    instance_id: str | None = None
    """Static membership: after an instant restart the same partitions come back at once."""
    data_directory: str = ".engine"
    """Faust wants a folder; the engine writes nothing in it."""
    zstd: bool = False
    limits: Limits = Limits()

    session_seconds: float = 6.0
    heartbeat_seconds: float = 0.5
    """The others learn by a heartbeat that a member has left: it is the gap of a planned stop."""
    rebalance_seconds_max: float = 10.0
    request_seconds_max: float = 15.0
    transaction_seconds_max: float = 10.0
    """Also the broker's: an open transaction of a dead worker is aborted after this time."""
    ending_seconds_max: float = 5.0
    """How long after its commit was answered a transaction may not have ended everywhere."""
    in_flight_max: int = 2
    """Transactions of one process at the same time: few are large."""
    pace_seconds_max: float = 0.050
    """Least time between two transactions of a partition under load; none when idle."""
    pace_rate_min: float = 300.0
    """Records a second of the process up to which there is no pacing."""
    pace_rate_max: float = 12_000.0
    """Records a second from which on the pace is the longest."""

    tick_seconds: float = 1.0
    flush_seconds_max: float = 30.0
    """Positions without effect are written at the latest after this time."""
    flush_records_max: int = 10_000
    commit_seconds: float = 5.0
    """Group offsets, for lag tools only."""
    quarantines_per_minute_max: int = 20
    ready_seconds_max: float = 60.0
    """From the start, or from a rebalance, to READY."""
    silent_seconds_max: float = 5.0
    """Ticks that do not come back, while nothing else is worked either: not READY."""
    stuck_seconds_max: float = 30.0
    """Lag without progress."""
