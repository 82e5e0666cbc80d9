"""Commands in, events out: the single writer of every key.

`engine` is Faust with one Kafka transaction a batch; `tasks`, `quotas`, `pools` and `materials`
hand each command to its decider and write what it decides; `rules` puts them together.
"""
