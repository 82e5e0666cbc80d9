SELECT material_id, seq FROM materials WHERE material_id = ANY ($1::text[])
-- ;;
INSERT INTO materials (
    material_id, user_id, tenant_id, content_type, size, sha256, status, reason, private, seq,
    created_at, updated_at
)
SELECT
    m.material_id, m.user_id, m.tenant_id, coalesce(s.content_type, m.content_type),
    coalesce(s.size, m.size), coalesce(s.sha256, m.sha256), coalesce(s.status, m.status),
    coalesce(s.reason, m.reason), coalesce(s.private, m.private), s.seq, m.created_at, s.updated_at
FROM unnest(
    $1::text[], $2::text[], $3::bytea[], $4::text[], $5::bigint[], $6::text[], $7::text[],
    $8::bigint[], $9::timestamptz[]
) AS s (
    material_id, content_type, private, status, size, sha256, reason, seq, updated_at
)
CROSS JOIN LATERAL (
    SELECT * FROM materials WHERE materials.material_id = s.material_id OFFSET 0
) AS m
ON CONFLICT (material_id) DO UPDATE SET
    content_type = excluded.content_type, size = excluded.size, sha256 = excluded.sha256,
    status = excluded.status, reason = excluded.reason, private = excluded.private,
    seq = excluded.seq, updated_at = excluded.updated_at
