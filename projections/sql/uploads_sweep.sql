-- Uploads that nothing is heard of. Who sends straight to the store tells nobody: as long as that
-- may be, it is looked every three minutes; later in steps of a quarter of the silence.
SELECT m.material_id, m.user_id, m.tenant_id, m.seq, m.size, m.part_bytes, m.upload_id,
    coalesce(s.parts, '') AS parts
FROM materials AS m
LEFT JOIN uploads_seen AS s ON s.material_id = m.material_id AND s.upload_id = m.upload_id
WHERE m.status = 'REGISTERED' AND m.upload_id <> '' AND m.part_bytes > 0
    AND m.active_at < now() - interval '2 minutes'
    AND (s.looked_at IS NULL
        OR s.looked_at < now() - greatest(interval '3 minutes', (now() - m.active_at) / 4))
ORDER BY coalesce(s.looked_at, m.active_at)
LIMIT $1
-- ;;
INSERT INTO uploads_seen (material_id, upload_id, parts, looked_at) VALUES ($1, $2, $3, now())
ON CONFLICT (material_id) DO UPDATE SET
    upload_id = excluded.upload_id, parts = excluded.parts, looked_at = excluded.looked_at
-- ;;
-- An upload is open for no longer than a day after the last sign of it.
DELETE FROM uploads_seen WHERE ctid = ANY (ARRAY(
    SELECT ctid FROM uploads_seen WHERE looked_at < now() - interval '30 hours' LIMIT $1
))
