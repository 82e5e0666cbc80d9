CREATE TEMP TABLE fold_pool_waiting (LIKE pool_waiting) ON COMMIT DELETE ROWS;
CREATE TEMP TABLE fold_pool_slots (LIKE pool_slots) ON COMMIT DELETE ROWS;
CREATE TEMP TABLE fold_runners (LIKE runners) ON COMMIT DELETE ROWS
-- ;;
SELECT pool_id AS key, seq FROM pools WHERE pool_id = ANY ($1::text[])
UNION ALL
SELECT key, seq FROM projection_seqs WHERE key = ANY ($1::text[]) AND topic = $2
-- ;;
DELETE FROM pool_waiting AS w
USING unnest($1::text[], $2::text[]) AS gone (pool_id, task_id)
WHERE w.pool_id = gone.pool_id AND w.task_id = gone.task_id
-- ;;
INSERT INTO pool_waiting
SELECT * FROM fold_pool_waiting
ON CONFLICT (pool_id, task_id) DO UPDATE SET
    token = excluded.token, lane = excluded.lane, account_id = excluded.account_id,
    scene = excluded.scene, enqueued_at = excluded.enqueued_at
-- ;;
DELETE FROM pool_slots AS s
USING unnest($1::text[], $2::text[], $3::bigint[]) AS gone (pool_id, task_id, token)
WHERE s.pool_id = gone.pool_id AND s.task_id = gone.task_id AND s.token = gone.token
-- ;;
INSERT INTO pool_slots
SELECT * FROM fold_pool_slots
ON CONFLICT (pool_id, task_id, token) DO UPDATE SET
    state = excluded.state, since = excluded.since
-- ;;
INSERT INTO runners
SELECT * FROM fold_runners
ON CONFLICT (pool_id, runner_id) DO UPDATE SET
    incarnation_id = excluded.incarnation_id, slots = excluded.slots, state = excluded.state,
    beat = excluded.beat, registered_at = excluded.registered_at, beat_at = excluded.beat_at
-- ;;
INSERT INTO pool_lanes VALUES ($1, $2, $3, $4, $5, $6)
ON CONFLICT (pool_id, lane) DO UPDATE SET
    paused = excluded.paused, who = excluded.who, why = excluded.why, since = excluded.since
-- ;;
INSERT INTO pools VALUES ($1, $2, $3)
ON CONFLICT (pool_id) DO UPDATE SET seq = excluded.seq, updated_at = excluded.updated_at
-- ;;
INSERT INTO projection_seqs (topic, key, seq) VALUES ($1, $2, $3)
ON CONFLICT (topic, key) DO UPDATE SET seq = excluded.seq
