-- Whether all of the log is applied, or was a moment ago: then what looks old is old.
SELECT caught_up_at > now() - interval '30 seconds' FROM projection_log
-- ;;
-- Nothing has come in for a day.
SELECT material_id, user_id, tenant_id FROM materials
WHERE status = 'REGISTERED' AND active_at < now() - interval '24 hours'
ORDER BY active_at
LIMIT $1
-- ;;
-- No task has used it for long.
SELECT material_id, user_id, tenant_id FROM materials
WHERE status = 'READY' AND used_at < now() - interval '30 days'
ORDER BY used_at
LIMIT $1
