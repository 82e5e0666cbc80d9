SELECT max(at) AS at FROM projection_positions
-- ;;
INSERT INTO sweep_cursors AS s (walk, cursor, begun_at) VALUES ($1, '', now())
ON CONFLICT (walk) DO UPDATE SET
    begun_at = CASE WHEN s.ended_at IS NULL THEN s.begun_at ELSE now() END,
    ended_at = NULL
    WHERE s.ended_at IS NULL OR s.ended_at <= now() - $2::interval
RETURNING cursor
-- ;;
UPDATE sweep_cursors SET cursor = $2, ended_at = CASE WHEN $2 = '' THEN now() END WHERE walk = $1
-- ;;
-- A page of all tasks, by key; OFFSET 0 keeps the join to the rows of the page.
SELECT t.shard, t.task_id, t.user_id, t.tenant_id, t.status, t.files::text AS files, t.ended_at,
    r.state, coalesce(r.seq, 0) AS seq, r.hot_at
FROM (
    SELECT shard, task_id, user_id, tenant_id, status, files, ended_at FROM tasks
    WHERE (shard, task_id) > ($1, $2)
    ORDER BY shard, task_id LIMIT $3 OFFSET 0
) AS t
LEFT JOIN results AS r ON r.task_id = t.task_id
ORDER BY t.shard, t.task_id
-- ;;
SELECT t.task_id, t.files::text AS files, r.state, r.cold, r.changed_at
FROM (
    SELECT task_id, state, cold, changed_at FROM results
    WHERE swept_at IS NULL ORDER BY changed_at LIMIT $1
) AS r
CROSS JOIN LATERAL (
    SELECT tasks.task_id, tasks.files FROM tasks
    WHERE tasks.shard = right(r.task_id, 6)::int AND tasks.task_id = r.task_id
    OFFSET 0
) AS t
-- ;;
UPDATE results SET swept_at = now() WHERE task_id = $1 AND changed_at = $2
-- ;;
SELECT t.task_id, t.status, t.token, r.state
FROM unnest($1::int[], $2::text[]) AS asked (shard, task_id)
CROSS JOIN LATERAL (
    SELECT tasks.task_id, tasks.status, tasks.token FROM tasks
    WHERE tasks.shard = asked.shard AND tasks.task_id = asked.task_id
    OFFSET 0
) AS t
LEFT JOIN results AS r ON r.task_id = t.task_id
