INSERT INTO refusals (
    command_id, command, key, user_id, reason, detail, remaining, resets_at, at, log_partition,
    log_offset
)
SELECT * FROM unnest(
    $1::text[], $2::text[], $3::text[], $4::text[], $5::text[], $6::text[], $7::json[],
    $8::timestamptz[], $9::timestamptz[], $10::int[], $11::bigint[]
)
ON CONFLICT (command_id) DO UPDATE SET
    command = excluded.command, key = excluded.key, user_id = excluded.user_id,
    reason = excluded.reason, detail = excluded.detail, remaining = excluded.remaining,
    resets_at = excluded.resets_at, at = excluded.at, log_partition = excluded.log_partition,
    log_offset = excluded.log_offset
