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
-- Found by the key and written by the key: there is no join whose order a plan could get wrong.
-- OFFSET 0 keeps the planner from reading whole partitions.
INSERT INTO tasks (
    shard, task_id, user_id, tenant_id, account_id, scene, tier, lane, pool_id, status, seq,
    token, retries, losses, storing, fingerprint, parameters, material_ids, private,
    policy_version, reservation_id, reserved_micros, charge_micros, run_limit_seconds, trace_id,
    runner_id, failure, last_failure, loss, message, cause, reason, files, facts, card_ms,
    created_at, queued_at, started_at, ended_at, updated_at, deadline_seconds, lower_spec,
    card_measured
)
SELECT
    t.shard,
    t.task_id,
    t.user_id,
    t.tenant_id,
    t.account_id,
    t.scene,
    t.tier,
    coalesce(s.lane, t.lane),
    coalesce(s.pool_id, t.pool_id),
    coalesce(s.status, t.status),
    s.seq,
    coalesce(s.token, t.token),
    CASE WHEN s.reset THEN 0 ELSE t.retries END + s.retries,
    CASE WHEN s.reset THEN 0 ELSE t.losses END + s.losses,
    coalesce(s.storing, t.storing),
    t.fingerprint,
    t.parameters,
    t.material_ids,
    t.private,
    coalesce(s.policy_version, t.policy_version),
    coalesce(s.reservation_id, t.reservation_id),
    coalesce(s.reserved_micros, t.reserved_micros),
    CASE WHEN s.reset THEN s.charge_micros
                         ELSE coalesce(s.charge_micros, t.charge_micros) END,
    t.run_limit_seconds,
    t.trace_id,
    coalesce(s.runner_id, t.runner_id),
    CASE WHEN s.verdict THEN s.failure ELSE t.failure END,
    CASE WHEN s.verdict THEN s.last_failure ELSE t.last_failure END,
    CASE WHEN s.verdict THEN s.loss ELSE t.loss END,
    CASE WHEN s.verdict THEN s.message ELSE t.message END,
    coalesce(s.cause, t.cause),
    coalesce(s.reason, t.reason),
    coalesce(s.files, t.files),
    coalesce(s.facts, t.facts),
    t.card_ms + s.card_ms,
    t.created_at,
    coalesce(s.queued_at, t.queued_at),
    coalesce(s.started_at, t.started_at),
    CASE WHEN s.reset THEN s.ended_at ELSE coalesce(s.ended_at, t.ended_at) END,
    s.updated_at,
    t.deadline_seconds,
    coalesce(s.lower_spec, t.lower_spec),
    t.card_measured AND s.card_measured
FROM unnest(
    $1::int[], $2::text[], $3::bigint[], $4::timestamptz[], $5::boolean[], $6::boolean[],
    $7::text[], $8::bigint[], $9::int[], $10::int[], $11::boolean[], $12::int[], $13::text[],
    $14::bigint[], $15::bigint[], $16::text[], $17::text[], $18::text[], $19::text[], $20::text[],
    $21::text[], $22::text[], $23::json[], $24::json[], $25::bigint[], $26::boolean[],
    $27::boolean[], $28::text[], $29::text[], $30::timestamptz[], $31::timestamptz[],
    $32::timestamptz[]
) AS s (
    shard, task_id, seq, updated_at, reset, verdict, status, token, retries, losses, storing,
    policy_version, reservation_id, reserved_micros, charge_micros, runner_id, failure,
    last_failure, loss, message, cause, reason, files, facts, card_ms, card_measured, lower_spec,
    pool_id, lane, queued_at, started_at, ended_at
)
CROSS JOIN LATERAL (
    SELECT * FROM tasks
    WHERE tasks.shard = s.shard AND tasks.task_id = s.task_id
    OFFSET 0
) AS t
ON CONFLICT (shard, task_id) DO UPDATE SET
    lane = excluded.lane, pool_id = excluded.pool_id, status = excluded.status,
    seq = excluded.seq, token = excluded.token, retries = excluded.retries,
    losses = excluded.losses, storing = excluded.storing,
    policy_version = excluded.policy_version, reservation_id = excluded.reservation_id,
    reserved_micros = excluded.reserved_micros, charge_micros = excluded.charge_micros,
    runner_id = excluded.runner_id, failure = excluded.failure,
    last_failure = excluded.last_failure, loss = excluded.loss, message = excluded.message,
    cause = excluded.cause, reason = excluded.reason, files = excluded.files,
    facts = excluded.facts, card_ms = excluded.card_ms, queued_at = excluded.queued_at,
    started_at = excluded.started_at, ended_at = excluded.ended_at,
    updated_at = excluded.updated_at, lower_spec = excluded.lower_spec,
    card_measured = excluded.card_measured
-- ;;
-- Before the tasks of the batch are written: they stand as they were when the batch began, and know
-- what the batch doesn't. An attempt that ended within the batch is written once.
INSERT INTO task_attempts
    (task_id, token, pool_id, lane, scene, runner_id, queued_at, started_at, ended_at, outcome,
     cause, card_ms, saved_ms, card_measured)
SELECT s.task_id, s.token, s.pool_id, coalesce(s.lane, t.lane, ''), coalesce(s.scene, t.scene, ''),
       s.runner_id, coalesce(s.queued_at, t.queued_at, s.started_at), s.started_at, s.ended_at,
       s.outcome, s.cause, s.card_ms, s.saved_ms, s.card_measured
FROM unnest(
    $1::int[], $2::text[], $3::bigint[], $4::text[], $5::text[], $6::text[], $7::text[],
    $8::timestamptz[], $9::timestamptz[], $10::timestamptz[], $11::text[], $12::text[],
    $13::bigint[], $14::bigint[], $15::boolean[]
) AS s (
    shard, task_id, token, pool_id, lane, scene, runner_id, queued_at, started_at, ended_at,
    outcome, cause, card_ms, saved_ms, card_measured
)
LEFT JOIN LATERAL (
    SELECT tasks.lane, tasks.scene, tasks.queued_at FROM tasks
    WHERE tasks.shard = s.shard AND tasks.task_id = s.task_id
        AND (s.lane IS NULL OR s.scene IS NULL OR s.queued_at IS NULL)
    OFFSET 0
) AS t ON true
-- ;;
WITH ended AS (
    INSERT INTO task_attempts AS a (
        task_id, token, pool_id, lane, scene, runner_id, queued_at, started_at, ended_at, outcome,
        cause, card_ms, saved_ms, card_measured
    )
    SELECT t.task_id, t.token, t.pool_id, t.lane, t.scene, t.runner_id, t.queued_at, t.started_at,
        s.ended_at, s.outcome, s.cause, s.card_ms, s.saved_ms, s.card_measured
    FROM unnest(
        $1::text[], $2::bigint[], $3::timestamptz[], $4::text[], $5::text[], $6::bigint[],
        $7::bigint[], $8::boolean[]
    ) AS s (
        task_id, token, ended_at, outcome, cause, card_ms, saved_ms, card_measured
    )
    CROSS JOIN LATERAL (
        SELECT * FROM task_attempts AS a
        WHERE a.task_id = s.task_id AND a.token = s.token AND a.ended_at IS NULL
        OFFSET 0
    ) AS t
    ON CONFLICT (task_id, token) DO UPDATE SET
        ended_at = excluded.ended_at, outcome = excluded.outcome, cause = excluded.cause,
        card_ms = excluded.card_ms, saved_ms = excluded.saved_ms,
        card_measured = excluded.card_measured
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
-- ;;
INSERT INTO pool_waste AS w (pool_id, cause, attempts, card_ms, burnt_ms)
SELECT * FROM unnest($1::text[], $2::text[], $3::bigint[], $4::bigint[], $5::bigint[])
ON CONFLICT (pool_id, cause) DO UPDATE SET
    attempts = w.attempts + excluded.attempts, card_ms = w.card_ms + excluded.card_ms,
    burnt_ms = w.burnt_ms + excluded.burnt_ms
-- ;;
-- What checkpoints kept of earlier attempts is given up: from here on it is burnt as well, in the
-- pool where it was worked, by the cause for which it is given up. Each is given up once.
WITH dropped AS (
    SELECT a.task_id, a.token, a.pool_id, d.cause, least(a.saved_ms, a.card_ms) AS saved_ms
    FROM unnest($1::text[], $2::bigint[], $3::bigint[], $4::text[])
        AS d (task_id, above, upto, cause)
    CROSS JOIN LATERAL (
        SELECT * FROM task_attempts
        WHERE task_attempts.task_id = d.task_id AND task_attempts.token > d.above
            AND task_attempts.token <= d.upto
        OFFSET 0
    ) AS a
    WHERE a.saved_ms > 0
),
emptied AS (
    UPDATE task_attempts AS a SET saved_ms = 0 FROM dropped
    WHERE a.task_id = dropped.task_id AND a.token = dropped.token
)
INSERT INTO pool_waste AS w
SELECT pool_id, cause, 0, 0, sum(saved_ms) FROM dropped GROUP BY pool_id, cause
ON CONFLICT (pool_id, cause) DO UPDATE SET burnt_ms = w.burnt_ms + excluded.burnt_ms
