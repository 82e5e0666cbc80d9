-- Uploads in parts: how far they are, what the probe found, and whose content is known already.

ALTER TABLE materials
    ADD COLUMN detail        text   NOT NULL DEFAULT '',  -- of a refusal, or why it was opened again
    ADD COLUMN part_bytes    bigint NOT NULL DEFAULT 0,
    ADD COLUMN seconds_max   int    NOT NULL DEFAULT 0,
    ADD COLUMN upload_id     text   NOT NULL DEFAULT '',
    ADD COLUMN tries         int    NOT NULL DEFAULT 0,   -- number of the newest one to assemble it
    ADD COLUMN content_key   text   NOT NULL DEFAULT '',  -- '': of an older release
    ADD COLUMN facts         json,
    ADD COLUMN active_at     timestamptz,                 -- last sign that its upload goes on
    ADD COLUMN assembling_at timestamptz,                 -- when the newest try began
    ADD COLUMN used_at       timestamptz;                 -- READY or attached; later than active_at
UPDATE materials SET active_at = updated_at, used_at = updated_at;
ALTER TABLE materials ALTER COLUMN active_at SET NOT NULL;

-- What the sweeps look for: nothing of the rest is read.
CREATE INDEX materials_assembling ON materials (assembling_at) WHERE status = 'ASSEMBLING';
CREATE INDEX materials_registered ON materials (active_at) WHERE status = 'REGISTERED';
CREATE INDEX materials_ready ON materials (used_at) WHERE status = 'READY';

-- The contents that an owner (t-TENANT or u-USER) holds: uploaded once, by whoever was first.
CREATE TABLE contents (
    owner       text        NOT NULL,
    sha256      text        NOT NULL,
    content_key text        NOT NULL,
    size        bigint      NOT NULL,
    facts       json        NOT NULL,
    stored_at   timestamptz NOT NULL,
    PRIMARY KEY (owner, sha256)
);
