INSERT INTO projection_positions (topic, log_partition, next)
SELECT * FROM unnest($1::text[], $2::int[], $3::bigint[])
ON CONFLICT (topic, log_partition) DO NOTHING
-- ;;
SELECT topic, log_partition, next FROM projection_positions
-- ;;
UPDATE projection_positions AS p SET next = m.finish, at = coalesce(m.at, p.at)
FROM unnest($1::text[], $2::int[], $3::bigint[], $4::bigint[], $5::timestamptz[])
     AS m (topic, log_partition, start, finish, at)
WHERE p.topic = m.topic AND p.log_partition = m.log_partition AND p.next = m.start
-- ;;
INSERT INTO projection_log (cluster_id, epoch) VALUES ($1, $2) ON CONFLICT (one) DO NOTHING
-- ;;
SELECT cluster_id, epoch FROM projection_log
-- ;;
UPDATE projection_log SET caught_up_at = now()
-- ;;
SELECT true FROM projection_log FOR UPDATE
