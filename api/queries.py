"""The questions that the api asks the read models. Those of `tasks` give the shard."""

TASK_COLUMNS = """
t.task_id, t.user_id, t.tenant_id, t.account_id, t.scene, t.tier, t.lane, t.pool_id, t.status,
t.seq, t.token, t.retries, t.storing, t.parameters, t.material_ids, t.private,
t.reserved_micros, t.charge_micros, t.failure, t.last_failure, t.message, t.cause, t.reason,
t.files, t.facts, t.card_ms, t.created_at, t.queued_at, t.started_at, t.ended_at, t.updated_at,
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

PAUSED_LANES = "SELECT pool_id, lane FROM pool_lanes WHERE paused"
WAITING = "SELECT pool_id, lane, count(*) AS waiting FROM pool_waiting GROUP BY pool_id, lane"
SLOTS = """
SELECT pool_id, sum(slots)::bigint AS slots FROM runners WHERE state = 'ready' GROUP BY pool_id
"""
USED = "SELECT pool_id, count(*) AS used FROM pool_slots GROUP BY pool_id"

MATERIAL = """
SELECT material_id, user_id, tenant_id, content_type, size, sha256, status, reason, private, seq,
    created_at, updated_at
FROM materials
WHERE material_id = $1
"""
