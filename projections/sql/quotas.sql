SELECT account_id AS key, seq FROM quota_accounts WHERE account_id = ANY ($1::text[])
UNION ALL
SELECT key, seq FROM projection_seqs WHERE key = ANY ($1::text[]) AND topic = $2
-- ;;
SELECT e.account_id, e.reservation_id, e.day_start
FROM unnest($1::text[], $2::text[]) AS asked (account_id, reservation_id)
JOIN quota_entries AS e
  ON e.account_id = asked.account_id AND e.reservation_id = asked.reservation_id
WHERE e.kind = 'reserved'
-- ;;
INSERT INTO quota_windows AS w (
    account_id, user_id, scene, kind, start_at, end_at, submitted, reserved_micros, spent_micros,
    refunded_micros, topped_up_micros, limit_micros, updated_at
)
SELECT * FROM unnest(
    $1::text[], $2::text[], $3::text[], $4::text[], $5::timestamptz[], $6::timestamptz[],
    $7::int[], $8::bigint[], $9::bigint[], $10::bigint[], $11::bigint[], $12::bigint[],
    $13::timestamptz[]
)
ON CONFLICT (account_id, user_id, scene, kind, start_at) DO UPDATE SET
    end_at = coalesce(excluded.end_at, w.end_at),
    submitted = w.submitted + excluded.submitted,
    reserved_micros = w.reserved_micros + excluded.reserved_micros,
    spent_micros = w.spent_micros + excluded.spent_micros,
    refunded_micros = w.refunded_micros + excluded.refunded_micros,
    topped_up_micros = w.topped_up_micros + excluded.topped_up_micros,
    limit_micros = coalesce(excluded.limit_micros, w.limit_micros),
    updated_at = excluded.updated_at
-- ;;
INSERT INTO quota_accounts AS a (
    account_id, seq, policy_version, updated_at
)
SELECT * FROM unnest(
    $1::text[], $2::bigint[], $3::int[], $4::timestamptz[]
)
ON CONFLICT (account_id) DO UPDATE SET
    seq = excluded.seq,
    policy_version = coalesce(excluded.policy_version, a.policy_version),
    updated_at = excluded.updated_at
-- ;;
INSERT INTO projection_seqs (topic, key, seq) VALUES ($1, $2, $3)
ON CONFLICT (topic, key) DO UPDATE SET seq = excluded.seq
-- ;;
INSERT INTO policy AS p (version, document, who, why, adopted_at) VALUES ($1, $2, $3, $4, $5)
ON CONFLICT (version) DO UPDATE SET adopted_at = least(p.adopted_at, excluded.adopted_at)
