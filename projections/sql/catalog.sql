WITH tables AS (
    SELECT c.oid, c.relname, c.relkind, c.relispartition
    FROM pg_class AS c
    WHERE c.relnamespace = 'public'::regnamespace AND c.relkind IN ('r', 'p')
),
lines AS (
    SELECT relname, 0 AS kind, 0 AS place,
           'TABLE ' || relname
           || CASE WHEN relkind = 'p' THEN ' PARTITION BY ' || pg_get_partkeydef(oid) ELSE '' END
           AS line
    FROM tables WHERE NOT relispartition
    UNION ALL
    SELECT t.relname, 1, a.attnum,
           '    ' || a.attname || ' ' || format_type(a.atttypid, a.atttypmod)
           || CASE WHEN a.attnotnull THEN ' NOT NULL' ELSE '' END
           || coalesce(' DEFAULT ' || pg_get_expr(d.adbin, d.adrelid), '')
    FROM tables AS t
    JOIN pg_attribute AS a ON a.attrelid = t.oid AND a.attnum > 0 AND NOT a.attisdropped
    LEFT JOIN pg_attrdef AS d ON d.adrelid = t.oid AND d.adnum = a.attnum
    WHERE NOT t.relispartition
    UNION ALL
    SELECT t.relname, 2, 0, '    CONSTRAINT ' || c.conname || ' ' || pg_get_constraintdef(c.oid)
    FROM tables AS t JOIN pg_constraint AS c ON c.conrelid = t.oid
    WHERE NOT t.relispartition AND c.contype <> 'n'
    UNION ALL
    SELECT t.relname, 3, 0, '    ' || pg_get_indexdef(i.indexrelid)
    FROM tables AS t JOIN pg_index AS i ON i.indrelid = t.oid
    WHERE NOT t.relispartition
      AND NOT EXISTS (SELECT FROM pg_constraint AS c WHERE c.conindid = i.indexrelid)
    UNION ALL
    SELECT p.relname, 4, 0,
           '    PARTITION ' || t.relname || ' ' || pg_get_expr(c.relpartbound, c.oid)
    FROM tables AS t
    JOIN pg_class AS c ON c.oid = t.oid
    JOIN pg_inherits AS h ON h.inhrelid = t.oid
    JOIN pg_class AS p ON p.oid = h.inhparent
)
SELECT line FROM lines ORDER BY relname, kind, place, line COLLATE "C"
