INSERT INTO dead_letters VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14)
ON CONFLICT (letter_id) DO NOTHING
-- ;;
INSERT INTO parked_keys VALUES ($1, $2, $3, $4, $5)
ON CONFLICT (log_partition, key) DO UPDATE SET
    letter_id = excluded.letter_id, cause = excluded.cause
