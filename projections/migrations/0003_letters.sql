-- What operators did with dead letters, and how far failures are archived.

ALTER TABLE dead_letters
    ADD COLUMN state     text NOT NULL DEFAULT 'open',  -- open, redriven, discarded, replaced
    ADD COLUMN who       text,                          -- closed it
    ADD COLUMN why       text,
    ADD COLUMN closed_at timestamptz;
CREATE INDEX dead_letters_in_log ON dead_letters (log_partition, log_offset);
CREATE INDEX dead_letters_of_task ON dead_letters (task_id) WHERE task_id IS NOT NULL;
CREATE INDEX dead_letters_open ON dead_letters (at DESC) WHERE state = 'open';

-- The archive looks for these alone.
CREATE INDEX task_events_failed ON task_events (log_partition, log_offset)
    WHERE kind = 'task.failed.v1';

-- The archive's own: moved when what lies before is in the object store, or told.
CREATE TABLE archive_positions (
    feed          text   NOT NULL,   -- failures, letters, alerts
    log_partition int    NOT NULL,
    next          bigint NOT NULL,
    PRIMARY KEY (feed, log_partition)
);
