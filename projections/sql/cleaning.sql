-- Whether all of the log is applied, or was a moment ago.
SELECT caught_up_at > now() - interval '30 seconds' FROM projection_log
-- ;;
DELETE FROM refusals WHERE ctid = ANY (ARRAY(
    SELECT ctid FROM refusals
    WHERE at < (SELECT max(at) FROM projection_positions) - interval '24 hours'
    LIMIT $1
))
-- ;;
DELETE FROM task_events WHERE ctid = ANY (ARRAY(
    SELECT ctid FROM task_events AS e
    WHERE at < (SELECT max(at) FROM projection_positions) - interval '7 days'
        -- A failure stays until it is archived, or until the log has forgotten it too.
        AND NOT (
            kind = 'task.failed.v1'
            AND at >= (SELECT max(at) FROM projection_positions) - interval '90 days'
            AND log_offset >= coalesce((
                SELECT next FROM archive_positions
                WHERE feed = 'failures' AND archive_positions.log_partition = e.log_partition), 0))
    LIMIT $1
))
-- ;;
DELETE FROM task_attempts WHERE ctid = ANY (ARRAY(
    SELECT ctid FROM task_attempts
    WHERE started_at < (SELECT max(at) FROM projection_positions) - interval '7 days'
    LIMIT $1
))
-- ;;
DELETE FROM pool_flow WHERE ctid = ANY (ARRAY(
    SELECT ctid FROM pool_flow
    WHERE at < (SELECT max(at) FROM projection_positions) - interval '1 hour'
    LIMIT $1
))
-- ;;
DELETE FROM pool_use WHERE ctid = ANY (ARRAY(
    SELECT ctid FROM pool_use
    WHERE at < (SELECT max(at) FROM projection_positions) - interval '1 hour'
    LIMIT $1
))
