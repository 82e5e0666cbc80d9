"""The rules: pure deciders. `decide(state, command, now)` says what follows, `evolve` what changes.

No I/O, no clock, no random number: everything comes with the command, and `now` is the log's time.
"""
