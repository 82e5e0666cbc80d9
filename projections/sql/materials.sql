CREATE TEMP TABLE fold_materials (
    material_id text, content_type text, private bytea, status text, size bigint, sha256 text,
    reason text, seq bigint, updated_at timestamptz
) ON COMMIT DELETE ROWS
-- ;;
SELECT material_id, seq FROM materials WHERE material_id = ANY ($1::text[])
-- ;;
UPDATE materials AS m SET
    content_type = coalesce(s.content_type, m.content_type),
    private = coalesce(s.private, m.private),
    status = coalesce(s.status, m.status),
    size = coalesce(s.size, m.size),
    sha256 = coalesce(s.sha256, m.sha256),
    reason = coalesce(s.reason, m.reason),
    seq = s.seq,
    updated_at = s.updated_at
FROM fold_materials AS s
WHERE m.material_id = s.material_id
