-- Where something is new; one look a page of all feeds.
SELECT f.feed, p.log_partition, coalesce(a.next, 0) AS next, p.next AS upto
FROM unnest($1::text[], $2::text[]) AS f (feed, topic)
JOIN projection_positions AS p ON p.topic = f.topic
LEFT JOIN archive_positions AS a ON a.feed = f.feed AND a.log_partition = p.log_partition
WHERE CASE f.topic
    WHEN 'task-events' THEN EXISTS (
        SELECT 1 FROM task_events AS e
        WHERE e.log_partition = p.log_partition AND e.kind = 'task.failed.v1'
            AND e.log_offset >= coalesce(a.next, 0) AND e.log_offset < p.next)
    ELSE EXISTS (
        SELECT 1 FROM dead_letters AS d
        WHERE d.log_partition = p.log_partition
            AND d.log_offset >= coalesce(a.next, 0) AND d.log_offset < p.next)
    END
ORDER BY array_position($1, f.feed), p.log_partition
-- ;;
-- Whoever finds it elsewhere moves nothing: another one is at work.
INSERT INTO archive_positions AS a (feed, log_partition, next) VALUES ($1, $2, $4)
ON CONFLICT (feed, log_partition) DO UPDATE SET next = excluded.next WHERE a.next = $3
-- ;;
SELECT task_id, seq, log_offset, body::text AS body
FROM task_events
WHERE log_partition = $1 AND log_offset >= $2 AND log_offset < $3 AND kind = 'task.failed.v1'
ORDER BY log_offset
LIMIT $4
-- ;;
SELECT body::text AS body FROM task_events WHERE task_id = $1 AND seq <= $2 ORDER BY seq
-- ;;
SELECT user_id, tenant_id, account_id, scene, tier, lane, pool_id, trace_id, policy_version
FROM tasks WHERE shard = $1 AND task_id = $2
-- ;;
SELECT letter_id, topic, source_partition, source_offset, value, cause, quarantined_key, task_id,
    failure, trace_id, at, log_offset
FROM dead_letters
WHERE log_partition = $1 AND log_offset >= $2 AND log_offset < $3
ORDER BY log_offset
LIMIT $4
-- ;;
SELECT count(*) FROM dead_letters WHERE state = 'open'
