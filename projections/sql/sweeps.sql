-- Whether all of the log is applied, or was a moment ago: then what looks old is old.
SELECT caught_up_at > now() - interval '30 seconds' FROM projection_log
-- ;;
-- Said to be sent whole, and nothing is heard of the try: 2, 4, 8 … minutes, an hour at most.
SELECT material_id, user_id, tenant_id, tries FROM materials
WHERE status = 'ASSEMBLING'
    AND assembling_at < now() - least(
        interval '2 minutes' * power(2, least(tries, 6) - 1), interval '1 hour')
ORDER BY assembling_at
LIMIT $1
-- ;;
-- Nothing has come in for a day, or nobody could look at it for a day.
SELECT material_id, user_id, tenant_id, tries FROM materials
WHERE status = 'REGISTERED' AND active_at < now() - interval '24 hours'
UNION ALL
SELECT material_id, user_id, tenant_id, tries FROM materials
WHERE status = 'ASSEMBLING' AND active_at < now() - interval '24 hours'
LIMIT $1
-- ;;
-- No task has used it for long.
SELECT material_id, user_id, tenant_id, tries FROM materials
WHERE status = 'READY' AND used_at < now() - interval '30 days'
ORDER BY used_at
LIMIT $1
