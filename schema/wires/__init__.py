"""How bytes move: log, objects, keys, telemetry. The only I/O of schema."""
