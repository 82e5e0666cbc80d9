"""The questions that the api asks the read models. Those of `tasks` give the shard."""

TASK_COLUMNS = """
t.task_id, t.user_id, t.tenant_id, t.account_id, t.scene, t.tier, t.lane, t.pool_id, t.status,
t.seq, t.token, t.retries, t.storing, t.parameters, t.material_ids, t.private,
t.deadline_seconds, t.lower_spec, t.card_measured,
t.reserved_micros, t.charge_micros, t.failure, t.last_failure, t.message, t.cause, t.reason,
t.files, t.facts, t.card_ms, t.created_at, t.queued_at, t.started_at, t.ended_at, t.updated_at,
t.publishes,
CASE WHEN t.status = 'SUCCEEDED' THEN (
    SELECT state FROM results WHERE results.task_id = t.task_id) END AS result_state,
CASE WHEN t.status = 'SUCCEEDED' THEN (
    SELECT reason FROM results WHERE results.task_id = t.task_id) END AS result_reason,
CASE WHEN t.status = 'SUCCEEDED' THEN (
    SELECT nullif(published_by, '') FROM results WHERE results.task_id = t.task_id
) END AS published_by,
CASE WHEN t.status = 'RUNNING' THEN (
    SELECT (e.body->>'percent')::int FROM task_events e
    WHERE e.task_id = t.task_id AND e.kind = 'task.progressed.v1'
        AND (e.body->>'token')::bigint = t.token
    ORDER BY e.seq DESC LIMIT 1
) END AS percent
"""

# One task is found in its partition at once. Many cost a plan over all 64, opened but not read;
# OFFSET 0 keeps the planner from joining whole partitions instead.
_ONE = "FROM tasks t WHERE t.shard = $1 AND t.task_id = $2"
_MANY = """
FROM unnest($1::int[], $2::text[]) AS asked (shard, task_id)
CROSS JOIN LATERAL (
    SELECT * FROM tasks
    WHERE tasks.shard = asked.shard AND tasks.task_id = asked.task_id
    OFFSET 0
) AS t
"""
_KNOWN_COLUMNS = "t.task_id, t.fingerprint, t.status, t.seq, t.lane, t.reserved_micros"

KNOWN_TASK = f"SELECT {_KNOWN_COLUMNS} {_ONE}"
KNOWN_TASKS = f"SELECT {_KNOWN_COLUMNS} {_MANY}"
TASK = f"SELECT {TASK_COLUMNS} {_ONE}"
TASKS = f"SELECT {TASK_COLUMNS} {_MANY}"

LIST_TASKS = f"""
SELECT {TASK_COLUMNS}
FROM tasks t
WHERE t.shard = $1 AND t.user_id = $2
    AND ($3::text[] IS NULL OR t.status = ANY($3))
    AND ($4::text IS NULL OR t.scene = $4)
    AND ($5::timestamptz IS NULL OR (t.created_at, t.task_id) < ($5, $6))
ORDER BY t.created_at DESC, t.task_id DESC
LIMIT $7
"""  # noqa: S608 - made of constants

REFUSED_SUBMISSIONS = """
SELECT DISTINCT ON (key) key, user_id, reason, detail, remaining, resets_at, at
FROM refusals
WHERE key = ANY($1) AND command = 'task.submit.v1'
ORDER BY key, at DESC
"""

# A cursor is known when its event is stored; what follows an event that is stored is stored too.
CURSOR_KNOWN = """
SELECT true FROM task_events WHERE log_partition = $1 AND log_offset = $2 AND user_id = $3
"""

TASK_EVENTS = """
SELECT task_id, seq, log_partition, log_offset, body::text AS body
FROM task_events
WHERE task_id = $1 AND seq > $2
ORDER BY seq
LIMIT $3
"""

TASK_EVENTS_AFTER_OFFSET = """
SELECT task_id, seq, log_partition, log_offset, body::text AS body
FROM task_events
WHERE task_id = $1 AND log_offset > $2
ORDER BY seq
LIMIT $3
"""

USER_EVENTS_AFTER_OFFSET = """
SELECT task_id, seq, log_partition, log_offset, body::text AS body
FROM task_events
WHERE user_id = $1 AND log_partition = $2 AND log_offset > $3
ORDER BY log_offset
LIMIT $4
"""

TASK_EVENTS_POSITION = """
SELECT next FROM projection_positions WHERE topic = 'task-events' AND log_partition = $1
"""

# One statement, so that the rows stand exactly where the position says.
TASK_SNAPSHOT = f"""
SELECT p.next, {TASK_COLUMNS}
FROM (SELECT max(next) AS next FROM projection_positions
      WHERE topic = 'task-events' AND log_partition = $1) AS p
LEFT JOIN tasks t ON t.shard = $2 AND t.task_id = $3
"""  # noqa: S608 - made of constants

USER_SNAPSHOT = f"""
SELECT p.next, {TASK_COLUMNS}
FROM (SELECT max(next) AS next FROM projection_positions
      WHERE topic = 'task-events' AND log_partition = $1) AS p
LEFT JOIN LATERAL (
    SELECT * FROM tasks WHERE shard = $2 AND user_id = $3
    ORDER BY created_at DESC, task_id DESC LIMIT $4
) AS t ON true
"""  # noqa: S608 - made of constants

LOG = """
SELECT epoch, EXTRACT(EPOCH FROM now() - caught_up_at)::float8 AS behind_seconds
FROM projection_log
"""

NEWER_POLICY = """
SELECT document::text AS document FROM policy WHERE version > $1 ORDER BY version DESC LIMIT 1
"""

QUOTA_WINDOWS = """
SELECT user_id, scene, kind, submitted, reserved_micros, spent_micros, topped_up_micros
FROM quota_windows
WHERE account_id = $1 AND user_id IN ($2, '')
    AND ((kind = 'day' AND start_at = $3) OR (kind = 'month' AND start_at = $4))
"""

QUOTA_MINUTE = """
SELECT scene, count(*) AS submitted
FROM quota_entries
WHERE account_id = $1 AND user_id = $2 AND kind = 'reserved' AND at >= $3
GROUP BY scene
"""

PAUSED_LANES = "SELECT pool_id, lane, who, why, since FROM pool_lanes WHERE paused"
WAITING = "SELECT pool_id, lane, waiting FROM pool_queues"
LARGE = """
SELECT pool_id, lane, account_id, waiting FROM pool_accounts
WHERE waiting > 10 ORDER BY waiting DESC LIMIT 1000
"""
SLOTS = """
SELECT pool_id, sum(slots)::bigint AS slots FROM runners WHERE state = 'ready' GROUP BY pool_id
"""
USED = "SELECT pool_id, count(*) AS used FROM pool_slots WHERE state <> 'storing' GROUP BY pool_id"
BREAKERS = "SELECT pool_id, scene, state, failed, counted, who, why, since FROM pool_breakers"
SCALED = """
SELECT pool_id, cards_wanted, scale_reason, scaled_at FROM pools WHERE cards_wanted IS NOT NULL
"""

# Of late, by the pool's own time. Spans of ten seconds: the first whole one begins `seconds` ago.
ARRIVALS = """
SELECT f.pool_id, f.lane, sum(f.arrived)::float8 / max(w.seconds) AS per_second
FROM pools AS p
CROSS JOIN LATERAL (
    SELECT s.since, greatest(1, extract(epoch FROM p.updated_at - s.since))::float8 AS seconds
    FROM (SELECT to_timestamp(
        ceil(extract(epoch FROM p.updated_at - $1::interval) / 10) * 10) AS since) AS s
) AS w
JOIN pool_flow AS f ON f.pool_id = p.pool_id AND f.at >= w.since
GROUP BY f.pool_id, f.lane
"""
HELD = """
SELECT p.pool_id, u.used_ms, f.freed
FROM pools AS p
CROSS JOIN LATERAL (SELECT sum(used_ms)::bigint AS used_ms FROM pool_use AS u
    WHERE u.pool_id = p.pool_id AND u.at > p.updated_at - $1::interval) AS u
CROSS JOIN LATERAL (SELECT sum(freed)::bigint AS freed FROM pool_flow AS f
    WHERE f.pool_id = p.pool_id AND f.at > p.updated_at - $1::interval) AS f
WHERE f.freed >= $2
"""

# --- objectives: of the last minutes of log time; LIMIT bounds what a busy window costs ----------

LOG_TIME = "SELECT max(at) AS at FROM projection_positions"
WAITS = """
SELECT pool_id, lane, count(*) AS started,
    percentile_cont(0.5) WITHIN GROUP (ORDER BY seconds) AS p50,
    percentile_cont(0.95) WITHIN GROUP (ORDER BY seconds) AS p95
FROM (
    SELECT pool_id, lane, extract(epoch FROM started_at - queued_at)::float8 AS seconds
    FROM task_attempts WHERE started_at > $1 ORDER BY started_at DESC LIMIT $2
) AS recent
GROUP BY pool_id, lane
"""
OLDEST = """
SELECT q.pool_id, q.lane, extract(epoch FROM $1 - w.enqueued_at)::float8 AS seconds
FROM pool_queues AS q
CROSS JOIN LATERAL (
    SELECT enqueued_at FROM pool_waiting AS p
    WHERE p.pool_id = q.pool_id AND p.lane = q.lane ORDER BY enqueued_at LIMIT 1
) AS w
WHERE q.waiting > 0
"""
ENDS = """
SELECT pool_id, outcome, cause, count(*) AS ended, sum(card_ms)::bigint AS card_ms
FROM (
    SELECT pool_id, outcome, cause, card_ms FROM task_attempts
    WHERE ended_at > $1 ORDER BY ended_at DESC LIMIT $2
) AS recent
GROUP BY pool_id, outcome, cause
"""
USE = """
SELECT pool_id, sum(used_ms)::bigint AS used_ms, sum(slots_ms)::bigint AS slots_ms
FROM pool_use WHERE at > $1 GROUP BY pool_id
"""
WASTE = "SELECT pool_id, cause, attempts, card_ms, burnt_ms FROM pool_waste"

# A task that waited for its material first was told an estimate for another time.
FIRST_STARTS = """
SELECT a.task_id, extract(epoch FROM a.started_at - a.queued_at)::float8 AS waited_seconds,
    extract(epoch FROM a.queued_at - t.created_at)::float8 AS created_seconds
FROM unnest($1::int[], $2::text[]) AS asked (shard, task_id)
CROSS JOIN LATERAL (
    SELECT * FROM task_attempts
    WHERE task_attempts.task_id = asked.task_id AND task_attempts.token = 1
    OFFSET 0
) AS a
CROSS JOIN LATERAL (
    SELECT created_at FROM tasks
    WHERE tasks.shard = asked.shard AND tasks.task_id = asked.task_id
    OFFSET 0
) AS t
"""

_MATERIAL_COLUMNS = """
material_id, user_id, tenant_id, content_type, size, sha256, status, reason, detail, private, seq,
part_bytes, seconds_max, upload_id, facts, created_at, updated_at
"""

MATERIAL = f"""
SELECT {_MATERIAL_COLUMNS}
FROM materials
WHERE material_id = $1
"""  # noqa: S608 - made of constants

LIST_MATERIALS = f"""
SELECT {_MATERIAL_COLUMNS}
FROM materials
WHERE user_id = $1 AND tenant_id = $2
    AND ($3::text[] IS NULL OR status = ANY($3))
    AND ($4::timestamptz IS NULL OR (created_at, material_id) < ($4, $5))
ORDER BY created_at DESC, material_id DESC
LIMIT $6
"""  # noqa: S608 - made of constants

MATERIAL_KINDS = """
SELECT material_id, user_id, tenant_id, facts->>'kind' AS kind
FROM materials
WHERE material_id = ANY($1::text[]) AND status IN ('READY', 'COLD')
    AND facts->>'animated' IS DISTINCT FROM 'true'
"""
"""What was counted, never what was announced; an animation is a picture and a film."""

CONTENT = """
SELECT content_key, size, facts FROM contents WHERE owner = $1 AND sha256 = $2
"""


# --- dead letters --------------------------------------------------------------------------------

_OF_LETTER = """
LEFT JOIN LATERAL (
    SELECT * FROM tasks
    WHERE tasks.shard = CASE WHEN d.task_id ~ '[0-9]{6}$' THEN right(d.task_id, 6)::int END
        AND tasks.task_id = d.task_id
    OFFSET 0
) AS t ON d.task_id IS NOT NULL
LEFT JOIN parked_keys AS k ON k.log_partition = d.log_partition AND k.key = d.quarantined_key
"""
_LETTER_COLUMNS = """
d.letter_id, d.topic, d.source_partition, d.source_offset, d.cause, d.quarantined_key, d.task_id,
d.failure, nullif(coalesce(d.trace_id, t.trace_id), '') AS trace_id, d.at, d.state, d.who, d.why,
d.closed_at,
k.letter_id AS held_by, t.status, t.user_id, t.tenant_id, t.account_id, t.scene, t.tier, t.seq,
t.token, t.material_ids
"""
LETTERS = f"""
SELECT {_LETTER_COLUMNS} FROM dead_letters AS d {_OF_LETTER}
WHERE $1::text IS NULL OR d.state = $1
ORDER BY d.at DESC, d.letter_id DESC LIMIT $2
"""  # noqa: S608 - made of constants
# Found by each of its ids for itself: one question for all of them would read every letter there is
# with its task. Only letters that say of no trace themselves are asked for that of their task.
_LETTERS_OF = f"""
FROM (
    SELECT letter_id FROM dead_letters WHERE letter_id = $1
    UNION
    SELECT letter_id FROM dead_letters WHERE task_id = $1
    UNION
    SELECT letter_id FROM dead_letters WHERE trace_id = $1
    UNION
    SELECT d.letter_id FROM dead_letters AS d {_OF_LETTER}
    WHERE d.trace_id IS NULL AND t.trace_id = $1
) AS asked
JOIN dead_letters AS d ON d.letter_id = asked.letter_id
{_OF_LETTER}
WHERE $2::text IS NULL OR d.state = $2
"""  # noqa: S608 - made of constants
LETTERS_OF = f"""
SELECT {_LETTER_COLUMNS} {_LETTERS_OF} ORDER BY d.at DESC, d.letter_id DESC LIMIT $3
"""
# In the order in which they came, with their records.
LETTERS_WHOLE = f"""
SELECT {_LETTER_COLUMNS}, d.value {_LETTERS_OF} ORDER BY d.log_partition, d.log_offset LIMIT $3
"""
PARKED_KEYS = """
SELECT log_partition, key, letter_id, cause, since FROM parked_keys ORDER BY since, key LIMIT $1
"""
