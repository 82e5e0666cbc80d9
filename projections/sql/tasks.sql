CREATE TEMP TABLE fold_tasks (
    shard int, task_id text, seq bigint, updated_at timestamptz, reset boolean, verdict boolean,
    status text, token bigint, retries int, losses int, storing boolean, policy_version int,
    reservation_id text, reserved_micros bigint, charge_micros bigint, runner_id text, failure text,
    last_failure text, loss text, message text, cause text, reason text, files json, facts json,
    card_ms bigint, queued_at timestamptz, started_at timestamptz, ended_at timestamptz
) ON COMMIT DELETE ROWS
-- ;;
-- OFFSET 0 keeps the planner from reading whole partitions; events are asked for known tasks only.
SELECT t.task_id,
       greatest(t.seq, (SELECT max(seq) FROM task_events AS e WHERE e.task_id = t.task_id)) AS seq
FROM unnest($1::text[], $2::int[]) AS asked (task_id, shard)
CROSS JOIN LATERAL (
    SELECT tasks.task_id, tasks.seq FROM tasks
    WHERE tasks.shard = asked.shard AND tasks.task_id = asked.task_id
    OFFSET 0
) AS t
-- ;;
UPDATE tasks AS t SET
    seq = s.seq,
    updated_at = s.updated_at,
    status = coalesce(s.status, t.status),
    token = coalesce(s.token, t.token),
    retries = CASE WHEN s.reset THEN 0 ELSE t.retries END + s.retries,
    losses = CASE WHEN s.reset THEN 0 ELSE t.losses END + s.losses,
    storing = coalesce(s.storing, t.storing),
    policy_version = coalesce(s.policy_version, t.policy_version),
    reservation_id = coalesce(s.reservation_id, t.reservation_id),
    reserved_micros = coalesce(s.reserved_micros, t.reserved_micros),
    charge_micros = CASE WHEN s.reset THEN s.charge_micros
                         ELSE coalesce(s.charge_micros, t.charge_micros) END,
    runner_id = coalesce(s.runner_id, t.runner_id),
    failure = CASE WHEN s.verdict THEN s.failure ELSE t.failure END,
    last_failure = CASE WHEN s.verdict THEN s.last_failure ELSE t.last_failure END,
    loss = CASE WHEN s.verdict THEN s.loss ELSE t.loss END,
    message = CASE WHEN s.verdict THEN s.message ELSE t.message END,
    cause = coalesce(s.cause, t.cause),
    reason = coalesce(s.reason, t.reason),
    files = coalesce(s.files, t.files),
    facts = coalesce(s.facts, t.facts),
    card_ms = t.card_ms + s.card_ms,
    queued_at = coalesce(s.queued_at, t.queued_at),
    started_at = coalesce(s.started_at, t.started_at),
    ended_at = CASE WHEN s.reset THEN s.ended_at ELSE coalesce(s.ended_at, t.ended_at) END
FROM fold_tasks AS s
WHERE t.shard = s.shard AND t.task_id = s.task_id
