-- What the store had of an upload when the sweep looked last; it looks rarely, and only at uploads
-- that nothing is heard of.
CREATE TABLE uploads_seen (
    material_id text        PRIMARY KEY,
    upload_id   text        NOT NULL,
    parts       text        NOT NULL,  -- a digest of the parts; '': there were none
    looked_at   timestamptz NOT NULL
);
CREATE INDEX uploads_seen_by_age ON uploads_seen (looked_at);

-- The prober is asked again by the decider itself.
DROP INDEX materials_assembling;
