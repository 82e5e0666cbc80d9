"""Events to read models: Postgres for what is asked later, Redis for what is watched now.

`projector` reads the log and applies batches; `positions` makes each batch and how far it goes one
transaction; `tasks`, `quotas`, `pools`, `materials`, `refusals` and `letters` fold one topic each
into their own tables; `notices` and `progress` tell Redis; `failures` archives what failed;
`migrations` makes the tables. All of it can be thrown away and folded again.
"""
