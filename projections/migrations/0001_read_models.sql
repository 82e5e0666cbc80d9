-- The read models: everything here can be thrown away and folded again from the log.
-- Times are log times, money is micro-units, `shard` is the last 6 digits of user, task and material ids.

-- How far each partition of each topic has been applied. The first statement of every batch moves
-- its rows from where the batch starts to where it ends; whoever finds them elsewhere stops.
CREATE TABLE projection_positions (
    topic         text   NOT NULL,
    log_partition int    NOT NULL,
    next          bigint NOT NULL,
    at            timestamptz,           -- time of the newest record applied
    PRIMARY KEY (topic, log_partition)
);

-- One row: which incarnation of the log the positions are of, and when nothing was left to apply.
CREATE TABLE projection_log (
    one          boolean     PRIMARY KEY DEFAULT true CHECK (one),
    cluster_id   text        NOT NULL,
    epoch        text        NOT NULL,   -- first part of an SSE id
    caught_up_at timestamptz             -- clock of the projector, about every 5 s while it keeps up
);

-- seq of keys that have no row of their own (policies, by partition).
CREATE TABLE projection_seqs (
    topic text   NOT NULL,
    key   text   NOT NULL,
    seq   bigint NOT NULL,
    PRIMARY KEY (topic, key)
);

-- ---------------------------------------------------------------------------------------- tasks

CREATE TABLE tasks (
    shard             int         NOT NULL,
    task_id           text        NOT NULL,
    user_id           text        NOT NULL,
    tenant_id         text        NOT NULL,
    account_id        text        NOT NULL,
    scene             text        NOT NULL,
    tier              text        NOT NULL,
    lane              text        NOT NULL,
    pool_id           text        NOT NULL,
    status            text        NOT NULL,
    seq               bigint      NOT NULL,  -- of the newest event that wrote this row; milestones don't
    token             bigint      NOT NULL,  -- the last attempt that started; 0: none
    retries           int         NOT NULL,  -- counted ones since the task was made or retried by hand
    losses            int         NOT NULL,
    storing           boolean     NOT NULL,
    fingerprint       text        NOT NULL,
    parameters        json        NOT NULL,
    material_ids      text[]      NOT NULL,
    private           bytea,
    policy_version    int         NOT NULL,
    reservation_id    text        NOT NULL,
    reserved_micros   bigint      NOT NULL,
    charge_micros     bigint,                -- set by the end
    run_limit_seconds int         NOT NULL,
    trace_id          text        NOT NULL,
    runner_id         text,                  -- of the last attempt
    failure           text,                  -- of the last counted failure, or the final one
    last_failure      text,                  -- what the last attempt said, where retries are spent
    loss              text,                  -- what took the last attempt, where no failure did
    message           text,
    cause             text,                  -- who canceled
    reason            text,
    files             json,
    facts             json,
    card_ms           bigint      NOT NULL,  -- of all attempts that told it
    created_at        timestamptz NOT NULL,
    queued_at         timestamptz,
    started_at        timestamptz,           -- of the last attempt
    ended_at          timestamptz,
    updated_at        timestamptz NOT NULL,
    PRIMARY KEY (shard, task_id)
) PARTITION BY HASH (shard);

DO $$
BEGIN
    FOR number IN 0..63 LOOP
        EXECUTE format(
            'CREATE TABLE tasks_%s PARTITION OF tasks FOR VALUES WITH (MODULUS 64, REMAINDER %s)'
            ' WITH (fillfactor = 70)',
            lpad(number::text, 2, '0'), number);
    END LOOP;
END
$$;

CREATE INDEX tasks_of_user ON tasks (user_id, created_at DESC, task_id DESC);

-- Every event of a task, as it stands in the log (`body`). Seven days.
CREATE TABLE task_events (
    task_id       text        NOT NULL,
    seq           bigint      NOT NULL,
    user_id       text        NOT NULL,
    log_partition int         NOT NULL,
    log_offset    bigint      NOT NULL,
    kind          text        NOT NULL,
    at            timestamptz NOT NULL,
    body          json        NOT NULL,
    PRIMARY KEY (task_id, seq),
    UNIQUE (log_partition, log_offset)
);

CREATE INDEX task_events_of_user ON task_events (user_id, log_partition, log_offset);
CREATE INDEX task_events_by_time ON task_events USING brin (at);

-- --------------------------------------------------------------------------------------- quotas

CREATE TABLE quota_accounts (
    account_id     text        PRIMARY KEY,
    seq            bigint      NOT NULL,
    policy_version int,
    updated_at     timestamptz NOT NULL
);

-- Sums of a day or a month; user_id '' is the contract of the whole account.
CREATE TABLE quota_windows (
    account_id      text        NOT NULL,
    user_id         text        NOT NULL,
    scene           text        NOT NULL,
    kind            text        NOT NULL,    -- day, month
    start_at        timestamptz NOT NULL,
    end_at          timestamptz,             -- not known where only a refund reached back to it
    submitted       int         NOT NULL,    -- reservations, less those that are returned to the day
    reserved_micros bigint      NOT NULL,    -- held by open reservations (month)
    spent_micros    bigint      NOT NULL,    -- charged, less refunded (month)
    refunded_micros bigint      NOT NULL,
    topped_up_micros bigint     NOT NULL,
    limit_micros    bigint,                  -- as of the last reservation, top-ups included (month)
    updated_at      timestamptz NOT NULL,
    PRIMARY KEY (account_id, user_id, scene, kind, start_at)
);

-- The ledger.
CREATE TABLE quota_entries (
    event_id       text        NOT NULL,
    account_id     text        NOT NULL,
    seq            bigint      NOT NULL,
    kind           text        NOT NULL,     -- reserved, committed, released, refunded, topped_up
    user_id        text,                     -- NULL: the contract
    scene          text        NOT NULL,
    task_id        text,
    reservation_id text,
    charge_id      text,
    amount_micros  bigint      NOT NULL,
    released_micros bigint     NOT NULL,
    month_start    timestamptz NOT NULL,
    day_start      timestamptz,
    minute_start   timestamptz,
    who            text,
    why            text,
    at             timestamptz NOT NULL,
    PRIMARY KEY (account_id, seq)
);

CREATE INDEX quota_entries_of_user ON quota_entries (account_id, user_id, at);
CREATE INDEX quota_entries_of_reservation ON quota_entries (account_id, reservation_id)
    WHERE kind = 'reserved';

CREATE TABLE policy (
    version    int         PRIMARY KEY,
    document   json        NOT NULL,
    who        text        NOT NULL,
    why        text        NOT NULL,
    adopted_at timestamptz NOT NULL          -- by the first partition that did
);

-- ---------------------------------------------------------------------------------------- pools

CREATE TABLE pools (
    pool_id    text        PRIMARY KEY,
    seq        bigint      NOT NULL,
    updated_at timestamptz NOT NULL
);

CREATE TABLE pool_lanes (
    pool_id   text    NOT NULL,
    lane      text    NOT NULL,
    paused    boolean NOT NULL,
    who       text    NOT NULL,
    why       text    NOT NULL,
    since     timestamptz NOT NULL,
    PRIMARY KEY (pool_id, lane)
);

-- Tasks that wait for a slot.
CREATE TABLE pool_waiting (
    pool_id     text        NOT NULL,
    task_id     text        NOT NULL,
    token       bigint      NOT NULL,
    lane        text        NOT NULL,
    account_id  text        NOT NULL,
    scene       text        NOT NULL,
    enqueued_at timestamptz NOT NULL,
    PRIMARY KEY (pool_id, task_id)
);

CREATE INDEX pool_waiting_in_lane ON pool_waiting (pool_id, lane, enqueued_at);

-- Slots that are taken.
CREATE TABLE pool_slots (
    pool_id        text        NOT NULL,
    task_id        text        NOT NULL,
    token          bigint      NOT NULL,
    runner_id      text        NOT NULL,
    incarnation_id text        NOT NULL,
    state          text        NOT NULL,     -- proposed, granted, accepted, storing, over, lost
    since          timestamptz NOT NULL,
    PRIMARY KEY (pool_id, task_id, token)
);

CREATE TABLE runners (
    pool_id        text        NOT NULL,
    runner_id      text        NOT NULL,
    incarnation_id text        NOT NULL,
    slots          int         NOT NULL,
    state          text        NOT NULL,     -- ready, draining, gone
    beat           bigint      NOT NULL,
    registered_at  timestamptz NOT NULL,
    beat_at        timestamptz NOT NULL,
    PRIMARY KEY (pool_id, runner_id)
);

-- ------------------------------------------------------------------------------------ materials

CREATE TABLE materials (
    material_id  text        PRIMARY KEY,
    user_id      text        NOT NULL,
    tenant_id    text        NOT NULL,
    content_type text        NOT NULL,
    size         bigint      NOT NULL,
    sha256       text        NOT NULL,
    status       text        NOT NULL,       -- REGISTERED, READY, REFUSED
    reason       text,
    private      bytea,
    seq          bigint      NOT NULL,
    created_at   timestamptz NOT NULL,
    updated_at   timestamptz NOT NULL
);

CREATE INDEX materials_of_user ON materials (user_id, created_at DESC);

-- ------------------------------------------------------------------- what was refused or set aside

-- For 24 hours: what a GET of something that was refused says.
CREATE TABLE refusals (
    command_id    text        PRIMARY KEY,
    command       text        NOT NULL,
    key           text        NOT NULL,
    user_id       text,
    reason        text        NOT NULL,
    detail        text        NOT NULL,
    remaining     json,
    resets_at     timestamptz,
    at            timestamptz NOT NULL,
    log_partition int         NOT NULL,
    log_offset    bigint      NOT NULL
);

CREATE INDEX refusals_of_key ON refusals (key, at DESC);
CREATE INDEX refusals_by_time ON refusals USING brin (at);

CREATE TABLE dead_letters (
    letter_id       text        PRIMARY KEY,
    topic           text        NOT NULL,
    source_partition int        NOT NULL,
    source_offset   bigint      NOT NULL,
    key             bytea,
    value           bytea,
    cause           text        NOT NULL,
    quarantined_key text        NOT NULL,
    task_id         text,
    failure         text,
    trace_id        text,
    at              timestamptz NOT NULL,
    log_partition   int         NOT NULL,
    log_offset      bigint      NOT NULL
);

CREATE INDEX dead_letters_by_time ON dead_letters (at DESC, letter_id DESC);

-- Keys behind which commands are parked since a dead letter.
CREATE TABLE parked_keys (
    log_partition int         NOT NULL,
    key           text        NOT NULL,
    letter_id     text        NOT NULL,      -- the newest one
    cause         text        NOT NULL,
    since         timestamptz NOT NULL,
    PRIMARY KEY (log_partition, key)
);
