-- Attempts with their waits and their ends, what was burnt, and how a pool flows.

ALTER TABLE tasks
    ADD COLUMN deadline_seconds int,                         -- what the caller asked for
    ADD COLUMN lower_spec       boolean NOT NULL DEFAULT false,  -- made with less from here on
    ADD COLUMN card_measured    boolean NOT NULL DEFAULT true;   -- false: a part of card_ms is log time

-- One row for each token that was started. Attempts from before this migration have none.
CREATE TABLE task_attempts (
    task_id       text        NOT NULL,
    token         bigint      NOT NULL,
    pool_id       text        NOT NULL,
    lane          text        NOT NULL,   -- in which it waited
    scene         text        NOT NULL,
    runner_id     text        NOT NULL,
    queued_at     timestamptz NOT NULL,   -- since when it waited; a retry's delay is no waiting
    started_at    timestamptz NOT NULL,
    ended_at      timestamptz,
    outcome       text,                   -- succeeded, failed, lost, canceled
    cause         text,                   -- of the last three
    card_ms       bigint,
    saved_ms      bigint,                 -- the part of card_ms that a checkpoint keeps
    card_measured boolean,                -- false: card_ms is log time, the most that it can be
    PRIMARY KEY (task_id, token)
) WITH (fillfactor = 80);
CREATE INDEX task_attempts_by_start ON task_attempts (started_at);
CREATE INDEX task_attempts_by_end ON task_attempts (ended_at) WHERE ended_at IS NOT NULL;

-- Card time of attempts that made nothing, since ever.
CREATE TABLE pool_waste (
    pool_id  text   NOT NULL,
    cause    text   NOT NULL,
    attempts bigint NOT NULL,
    card_ms  bigint NOT NULL,
    burnt_ms bigint NOT NULL,             -- card_ms less what checkpoints kept
    PRIMARY KEY (pool_id, cause)
);

ALTER TABLE pools
    ADD COLUMN cards_wanted        int,
    ADD COLUMN scale_reason        text,
    ADD COLUMN scaled_at           timestamptz,
    ADD COLUMN demand_card_seconds bigint,
    ADD COLUMN wait_p95_ms         bigint,
    ADD COLUMN oldest_wait_ms      bigint;

ALTER TABLE runners ADD COLUMN spot boolean NOT NULL DEFAULT false;

ALTER TABLE pool_waiting
    ADD COLUMN move_pool_id text,         -- where it is asked to wait instead
    ADD COLUMN move_lane    text,
    ADD COLUMN move_reason  text;

ALTER TABLE pool_slots
    ADD COLUMN lane          text NOT NULL DEFAULT '',
    ADD COLUMN scene         text NOT NULL DEFAULT '',
    ADD COLUMN proposed_at   timestamptz,
    ADD COLUMN preempted_for text;        -- the task that its room is held for
UPDATE pool_slots AS s SET
    proposed_at = s.since,
    lane = coalesce((SELECT t.lane FROM tasks AS t
                     WHERE t.shard = right(s.task_id, 6)::int AND t.task_id = s.task_id), ''),
    scene = coalesce((SELECT t.scene FROM tasks AS t
                      WHERE t.shard = right(s.task_id, 6)::int AND t.task_id = s.task_id), '');
ALTER TABLE pool_slots ALTER COLUMN proposed_at SET NOT NULL;

-- How many wait, kept: counting a million rows each second would cost more than the answer is worth.
CREATE TABLE pool_queues (
    pool_id text   NOT NULL,
    lane    text   NOT NULL,
    waiting bigint NOT NULL,
    PRIMARY KEY (pool_id, lane)
);
INSERT INTO pool_queues
SELECT pool_id, lane, count(*) FROM pool_waiting GROUP BY pool_id, lane;

-- The same by account, none with nothing: whoever has many waiting is in nobody else's way.
CREATE TABLE pool_accounts (
    pool_id    text   NOT NULL,
    lane       text   NOT NULL,
    account_id text   NOT NULL,
    waiting    bigint NOT NULL,
    PRIMARY KEY (pool_id, lane, account_id)
) WITH (fillfactor = 80);
CREATE INDEX pool_accounts_large ON pool_accounts (waiting) WHERE waiting > 10;
INSERT INTO pool_accounts
SELECT pool_id, lane, account_id, count(*) FROM pool_waiting GROUP BY pool_id, lane, account_id;

-- What came and went in ten seconds of log time; kept for an hour.
CREATE TABLE pool_flow (
    at      timestamptz NOT NULL,
    pool_id text        NOT NULL,
    lane    text        NOT NULL,
    arrived bigint      NOT NULL,
    started bigint      NOT NULL,
    freed   bigint      NOT NULL,
    held_ms bigint      NOT NULL,         -- of those freed: from the proposal on
    PRIMARY KEY (at, pool_id, lane)
);
CREATE TABLE pool_use (
    at       timestamptz NOT NULL,
    pool_id  text        NOT NULL,
    used_ms  bigint      NOT NULL,        -- slots taken x time
    slots_ms bigint      NOT NULL,        -- slots of ready runners x time
    PRIMARY KEY (at, pool_id)
);

CREATE TABLE pool_breakers (
    pool_id text        NOT NULL,
    scene   text        NOT NULL,
    state   text        NOT NULL,         -- closed, open, half_open
    failed  bigint      NOT NULL,
    counted bigint      NOT NULL,
    who     text        NOT NULL,
    why     text        NOT NULL,
    since   timestamptz NOT NULL,
    PRIMARY KEY (pool_id, scene)
);
