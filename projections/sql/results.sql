SELECT task_id, seq FROM results WHERE task_id = ANY ($1::text[])
-- ;;
SELECT key, seq FROM projection_seqs WHERE topic = 'material-events' AND key = ANY ($1::text[])
-- ;;
INSERT INTO results AS r (
    task_id, user_id, tenant_id, state, reason, cold, published_by, seq, hot_at, changed_at
)
SELECT * FROM unnest(
    $1::text[], $2::text[], $3::text[], $4::text[], $5::text[], $6::boolean[], $7::text[],
    $8::bigint[], $9::timestamptz[], $10::timestamptz[]
)
ON CONFLICT (task_id) DO UPDATE SET
    state = excluded.state, reason = excluded.reason, cold = excluded.cold,
    published_by = excluded.published_by, seq = excluded.seq, hot_at = excluded.hot_at,
    changed_at = excluded.changed_at, swept_at = NULL
-- ;;
SELECT task_id, user_id, tenant_id, state, reason, cold, published_by, seq, hot_at, changed_at
FROM results WHERE task_id = ANY ($1::text[])
-- ;;
INSERT INTO results_delivered AS r (day, tenant_id, scene, cold, reads, bytes)
SELECT * FROM unnest($1::date[], $2::text[], $3::text[], $4::boolean[], $5::bigint[], $6::bigint[])
ON CONFLICT (day, tenant_id, scene, cold) DO UPDATE SET
    reads = r.reads + excluded.reads, bytes = r.bytes + excluded.bytes
-- ;;
INSERT INTO projection_seqs (topic, key, seq)
SELECT 'material-events', * FROM unnest($1::text[], $2::bigint[])
ON CONFLICT (topic, key) DO UPDATE SET seq = excluded.seq
