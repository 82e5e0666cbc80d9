-- Results after their task has ended, what was handed out of them, and the sweep that looks after them.

ALTER TABLE tasks ADD COLUMN publishes text;  -- the task whose result this one makes in full size

-- Only results that something happened to; of any other its task says all: hot since it ended.
CREATE TABLE results (
    task_id    text        PRIMARY KEY,
    user_id    text        NOT NULL,
    tenant_id  text        NOT NULL,
    state      text        NOT NULL,  -- hot, cold, withheld, deleted
    reason     text        NOT NULL,  -- why it is withheld or deleted
    cold       boolean     NOT NULL,  -- also while it is withheld
    published_by text      NOT NULL,  -- the task that makes it in full size, or its own; '': none
    seq        bigint      NOT NULL,
    hot_at     timestamptz,           -- when it was made hot again
    changed_at timestamptz NOT NULL,
    swept_at   timestamptz            -- when the store followed; a change makes it NULL
);
CREATE INDEX results_unswept ON results (changed_at) WHERE swept_at IS NULL;

-- Addresses that were handed out, for the cost of egress; `day` in UTC, by log time.
CREATE TABLE results_delivered (
    day       date   NOT NULL,
    tenant_id text   NOT NULL,
    scene     text   NOT NULL,
    cold      boolean NOT NULL,
    reads     bigint NOT NULL,
    bytes     bigint NOT NULL,
    PRIMARY KEY (day, tenant_id, scene, cold)
);

-- How far each walk of the sweep is; '' is the beginning.
CREATE TABLE sweep_cursors (
    walk       text        PRIMARY KEY,
    cursor     text        NOT NULL,
    begun_at   timestamptz NOT NULL,
    ended_at   timestamptz
);
