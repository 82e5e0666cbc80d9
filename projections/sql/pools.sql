SELECT pool_id AS key, seq FROM pools WHERE pool_id = ANY ($1::text[])
UNION ALL
SELECT key, seq FROM projection_seqs WHERE key = ANY ($1::text[]) AND topic = $2
-- ;;
-- OFFSET 0: each is found by its key, whatever the planner thinks of the table.
SELECT w.*
FROM unnest($1::text[], $2::text[]) AS asked (pool_id, task_id)
CROSS JOIN LATERAL (
    SELECT * FROM pool_waiting AS p
    WHERE p.pool_id = asked.pool_id AND p.task_id = asked.task_id
    OFFSET 0
) AS w
-- ;;
DELETE FROM pool_waiting AS w
USING unnest($1::text[], $2::text[]) AS gone (pool_id, task_id)
WHERE w.pool_id = gone.pool_id AND w.task_id = gone.task_id
-- ;;
INSERT INTO pool_waiting (
    pool_id, task_id, token, lane, account_id, scene, enqueued_at, move_pool_id, move_lane,
    move_reason
)
SELECT * FROM unnest(
    $1::text[], $2::text[], $3::bigint[], $4::text[], $5::text[], $6::text[], $7::timestamptz[],
    $8::text[], $9::text[], $10::text[]
)
ON CONFLICT (pool_id, task_id) DO UPDATE SET
    token = excluded.token, lane = excluded.lane, account_id = excluded.account_id,
    scene = excluded.scene, enqueued_at = excluded.enqueued_at,
    move_pool_id = excluded.move_pool_id, move_lane = excluded.move_lane,
    move_reason = excluded.move_reason
-- ;;
DELETE FROM pool_slots AS s
USING unnest($1::text[], $2::text[], $3::bigint[]) AS gone (pool_id, task_id, token)
WHERE s.pool_id = gone.pool_id AND s.task_id = gone.task_id AND s.token = gone.token
-- ;;
INSERT INTO pool_slots (
    pool_id, task_id, token, runner_id, incarnation_id, state, since, lane, scene, proposed_at,
    preempted_for
)
SELECT * FROM unnest(
    $1::text[], $2::text[], $3::bigint[], $4::text[], $5::text[], $6::text[], $7::timestamptz[],
    $8::text[], $9::text[], $10::timestamptz[], $11::text[]
)
ON CONFLICT (pool_id, task_id, token) DO UPDATE SET
    -- All of it: a token that was refused may be proposed again, to another runner.
    runner_id = excluded.runner_id, incarnation_id = excluded.incarnation_id,
    state = excluded.state, since = excluded.since, lane = excluded.lane, scene = excluded.scene,
    proposed_at = excluded.proposed_at, preempted_for = excluded.preempted_for
-- ;;
INSERT INTO runners (
    pool_id, runner_id, incarnation_id, slots, state, beat, registered_at, beat_at, spot
)
SELECT * FROM unnest(
    $1::text[], $2::text[], $3::text[], $4::int[], $5::text[], $6::bigint[], $7::timestamptz[],
    $8::timestamptz[], $9::boolean[]
)
ON CONFLICT (pool_id, runner_id) DO UPDATE SET
    incarnation_id = excluded.incarnation_id, slots = excluded.slots, state = excluded.state,
    beat = excluded.beat, registered_at = excluded.registered_at, beat_at = excluded.beat_at,
    spot = excluded.spot
-- ;;
INSERT INTO pool_lanes VALUES ($1, $2, $3, $4, $5, $6)
ON CONFLICT (pool_id, lane) DO UPDATE SET
    paused = excluded.paused, who = excluded.who, why = excluded.why, since = excluded.since
-- ;;
INSERT INTO pool_breakers VALUES ($1, $2, $3, $4, $5, $6, $7, $8)
ON CONFLICT (pool_id, scene) DO UPDATE SET
    state = excluded.state, failed = excluded.failed, counted = excluded.counted,
    who = excluded.who, why = excluded.why, since = excluded.since
-- ;;
INSERT INTO pools VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)
ON CONFLICT (pool_id) DO UPDATE SET
    seq = excluded.seq, updated_at = excluded.updated_at, cards_wanted = excluded.cards_wanted,
    scale_reason = excluded.scale_reason, scaled_at = excluded.scaled_at,
    demand_card_seconds = excluded.demand_card_seconds, wait_p95_ms = excluded.wait_p95_ms,
    oldest_wait_ms = excluded.oldest_wait_ms
-- ;;
INSERT INTO projection_seqs (topic, key, seq) VALUES ($1, $2, $3)
ON CONFLICT (topic, key) DO UPDATE SET seq = excluded.seq
-- ;;
INSERT INTO pool_queues AS q
SELECT * FROM unnest($1::text[], $2::text[], $3::bigint[])
ON CONFLICT (pool_id, lane) DO UPDATE SET waiting = q.waiting + excluded.waiting
-- ;;
INSERT INTO pool_flow AS f
SELECT * FROM unnest($1::timestamptz[], $2::text[], $3::text[], $4::bigint[], $5::bigint[],
                     $6::bigint[], $7::bigint[])
ON CONFLICT (at, pool_id, lane) DO UPDATE SET
    arrived = f.arrived + excluded.arrived, started = f.started + excluded.started,
    freed = f.freed + excluded.freed, held_ms = f.held_ms + excluded.held_ms
-- ;;
INSERT INTO pool_use AS u
SELECT * FROM unnest($1::timestamptz[], $2::text[], $3::bigint[], $4::bigint[])
ON CONFLICT (at, pool_id) DO UPDATE SET
    used_ms = u.used_ms + excluded.used_ms, slots_ms = u.slots_ms + excluded.slots_ms
-- ;;
INSERT INTO pool_accounts AS a
SELECT * FROM unnest($1::text[], $2::text[], $3::text[], $4::bigint[])
ON CONFLICT (pool_id, lane, account_id) DO UPDATE SET waiting = a.waiting + excluded.waiting
-- ;;
DELETE FROM pool_accounts AS a
USING unnest($1::text[], $2::text[], $3::text[]) AS changed (pool_id, lane, account_id)
WHERE a.pool_id = changed.pool_id AND a.lane = changed.lane
    AND a.account_id = changed.account_id AND a.waiting = 0
