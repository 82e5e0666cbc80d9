CREATE TEMP TABLE fold_tasks (
    shard int, task_id text, seq bigint, updated_at timestamptz, reset boolean, verdict boolean,
    status text, token bigint, retries int, losses int, storing boolean, policy_version int,
    reservation_id text, reserved_micros bigint, charge_micros bigint, runner_id text, failure text,
    last_failure text, loss text, message text, cause text, reason text, files json, facts json,
    card_ms bigint, card_measured boolean, lower_spec boolean, pool_id text, lane text,
    queued_at timestamptz, started_at timestamptz, ended_at timestamptz
) ON COMMIT DELETE ROWS;
CREATE TEMP TABLE fold_starts (
    shard int, task_id text, token bigint, pool_id text, lane text, scene text, runner_id text,
    queued_at timestamptz, started_at timestamptz
) ON COMMIT DELETE ROWS;
CREATE TEMP TABLE fold_ends (
    task_id text, token bigint, ended_at timestamptz, outcome text, cause text, card_ms bigint,
    saved_ms bigint, card_measured boolean
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
    card_measured = t.card_measured AND s.card_measured,
    lower_spec = coalesce(s.lower_spec, t.lower_spec),
    pool_id = coalesce(s.pool_id, t.pool_id),
    lane = coalesce(s.lane, t.lane),
    queued_at = coalesce(s.queued_at, t.queued_at),
    started_at = coalesce(s.started_at, t.started_at),
    ended_at = CASE WHEN s.reset THEN s.ended_at ELSE coalesce(s.ended_at, t.ended_at) END
FROM fold_tasks AS s
WHERE t.shard = s.shard AND t.task_id = s.task_id
-- ;;
-- Before the tasks of the batch are written: they stand as they were when the batch began.
INSERT INTO task_attempts
    (task_id, token, pool_id, lane, scene, runner_id, queued_at, started_at)
SELECT s.task_id, s.token, s.pool_id, coalesce(s.lane, t.lane, ''), coalesce(s.scene, t.scene, ''),
       s.runner_id, coalesce(s.queued_at, t.queued_at, s.started_at), s.started_at
FROM fold_starts AS s
LEFT JOIN LATERAL (
    SELECT tasks.lane, tasks.scene, tasks.queued_at FROM tasks
    WHERE tasks.shard = s.shard AND tasks.task_id = s.task_id
    OFFSET 0
) AS t ON true
-- ;;
WITH ended AS (
    UPDATE task_attempts AS a SET
        ended_at = s.ended_at, outcome = s.outcome, cause = s.cause, card_ms = s.card_ms,
        saved_ms = s.saved_ms, card_measured = s.card_measured
    FROM fold_ends AS s
    WHERE a.task_id = s.task_id AND a.token = s.token AND a.ended_at IS NULL
    RETURNING a.pool_id, a.cause, a.card_ms, a.saved_ms
)
INSERT INTO pool_waste AS w
SELECT pool_id, cause, count(*), sum(card_ms), sum(card_ms - least(saved_ms, card_ms))
FROM ended
WHERE cause IS NOT NULL
GROUP BY pool_id, cause
ON CONFLICT (pool_id, cause) DO UPDATE SET
    attempts = w.attempts + excluded.attempts, card_ms = w.card_ms + excluded.card_ms,
    burnt_ms = w.burnt_ms + excluded.burnt_ms
