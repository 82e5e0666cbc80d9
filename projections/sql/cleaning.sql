DELETE FROM refusals WHERE ctid = ANY (ARRAY(
    SELECT ctid FROM refusals
    WHERE at < (SELECT max(at) FROM projection_positions) - interval '24 hours'
    LIMIT $1
))
-- ;;
DELETE FROM task_events WHERE ctid = ANY (ARRAY(
    SELECT ctid FROM task_events
    WHERE at < (SELECT max(at) FROM projection_positions) - interval '7 days'
    LIMIT $1
))
