SELECT material_id, seq FROM materials WHERE material_id = ANY ($1::text[])
-- ;;
INSERT INTO materials (
    material_id, user_id, tenant_id, content_type, size, sha256, status, reason, private, seq,
    created_at, updated_at, detail, part_bytes, seconds_max, upload_id, tries, content_key, facts,
    active_at, assembling_at, used_at
)
SELECT
    m.material_id, m.user_id, m.tenant_id, coalesce(s.content_type, m.content_type),
    coalesce(s.size, m.size), coalesce(s.sha256, m.sha256),
    -- Attached, and nothing else that moves it.
    CASE WHEN s.status IS NULL AND s.used_at IS NOT NULL AND m.status = 'COLD' THEN 'READY'
        ELSE coalesce(s.status, m.status) END,
    coalesce(s.reason, m.reason), coalesce(s.private, m.private), s.seq, m.created_at,
    s.updated_at, coalesce(s.detail, m.detail), coalesce(s.part_bytes, m.part_bytes),
    coalesce(s.seconds_max, m.seconds_max), coalesce(s.upload_id, m.upload_id),
    coalesce(s.tries, m.tries), coalesce(s.content_key, m.content_key),
    coalesce(s.facts, m.facts), coalesce(s.active_at, m.active_at),
    coalesce(s.assembling_at, m.assembling_at), coalesce(s.used_at, m.used_at)
FROM unnest(
    $1::text[], $2::text[], $3::bytea[], $4::text[], $5::bigint[], $6::text[], $7::text[],
    $8::bigint[], $9::timestamptz[], $10::text[], $11::bigint[], $12::int[], $13::text[],
    $14::int[], $15::text[], $16::json[], $17::timestamptz[], $18::timestamptz[],
    $19::timestamptz[]
) AS s (
    material_id, content_type, private, status, size, sha256, reason, seq, updated_at, detail,
    part_bytes, seconds_max, upload_id, tries, content_key, facts, active_at, assembling_at,
    used_at
)
CROSS JOIN LATERAL (
    SELECT * FROM materials WHERE materials.material_id = s.material_id OFFSET 0
) AS m
ON CONFLICT (material_id) DO UPDATE SET
    content_type = excluded.content_type, size = excluded.size, sha256 = excluded.sha256,
    status = excluded.status, reason = excluded.reason, private = excluded.private,
    seq = excluded.seq, updated_at = excluded.updated_at, detail = excluded.detail,
    part_bytes = excluded.part_bytes, seconds_max = excluded.seconds_max,
    upload_id = excluded.upload_id, tries = excluded.tries, content_key = excluded.content_key,
    facts = excluded.facts, active_at = excluded.active_at,
    assembling_at = excluded.assembling_at, used_at = excluded.used_at
-- ;;
-- The first one that was stored stands, whichever partition is read first.
INSERT INTO contents (owner, sha256, content_key, size, facts, stored_at)
SELECT DISTINCT ON (owner, sha256)
    CASE WHEN m.tenant_id = '' THEN 'u-' || m.user_id ELSE 't-' || m.tenant_id END AS owner,
    m.sha256, m.content_key, m.size, m.facts, s.stored_at
FROM unnest($1::text[], $2::timestamptz[]) AS s (material_id, stored_at)
CROSS JOIN LATERAL (
    SELECT * FROM materials WHERE materials.material_id = s.material_id OFFSET 0
) AS m
WHERE m.content_key <> '' AND m.facts IS NOT NULL
ORDER BY owner, sha256, s.stored_at, m.material_id
ON CONFLICT (owner, sha256) DO UPDATE SET
    content_key = excluded.content_key, size = excluded.size, facts = excluded.facts,
    stored_at = excluded.stored_at
WHERE excluded.stored_at < contents.stored_at
