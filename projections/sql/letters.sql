INSERT INTO dead_letters VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14)
ON CONFLICT (letter_id) DO NOTHING
-- ;;
INSERT INTO parked_keys VALUES ($1, $2, $3, $4, $5)
ON CONFLICT (log_partition, key) DO UPDATE SET
    letter_id = excluded.letter_id, cause = excluded.cause
-- ;;
-- The first word on a letter counts; whoever says another one afterwards changes nothing.
UPDATE dead_letters SET state = $2, who = $3, why = $4, closed_at = $5
WHERE letter_id = $1 AND state = 'open'
-- ;;
DELETE FROM parked_keys WHERE log_partition = $1 AND key = $2
