"""A whole platform on one virtual clock: the real deciders, people, cards and what goes wrong.

`python -m processors.simulation SCENARIO --seed N` (or `cutlog simulate`) answers what a policy is
worth before it is published: who waits how long, who is refused with which estimate, what the cards
do, what it costs, and what first come first served would have made of the same day.

Real: the rules of quotas, tasks and pools, the engine's clocks, the index of deadlines, the
estimate of the door. Modelled: the log (a queue for each topic and partition), the time that
anything takes, the runners' protocol, the people. Nothing is encoded, so it is fast.

Read `scenarios` (what can be played), `policies` (by which rules), `play` (one run), `flow` (the
processors), `fleet` (the cards), `crowd` (who asks), `door`, `watch` (what must always hold),
`fifo` (the rival), `figures` and `report`. Faust is not imported here.
"""
