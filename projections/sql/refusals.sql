CREATE TEMP TABLE fold_refusals (LIKE refusals) ON COMMIT DELETE ROWS
-- ;;
INSERT INTO refusals
SELECT * FROM fold_refusals
ON CONFLICT (command_id) DO UPDATE SET
    command = excluded.command, key = excluded.key, user_id = excluded.user_id,
    reason = excluded.reason, detail = excluded.detail, remaining = excluded.remaining,
    resets_at = excluded.resets_at, at = excluded.at, log_partition = excluded.log_partition,
    log_offset = excluded.log_offset
