TABLE archive_positions
    feed text NOT NULL
    log_partition integer NOT NULL
    next bigint NOT NULL
    CONSTRAINT archive_positions_pkey PRIMARY KEY (feed, log_partition)
TABLE contents
    owner text NOT NULL
    sha256 text NOT NULL
    content_key text NOT NULL
    size bigint NOT NULL
    facts json NOT NULL
    stored_at timestamp with time zone NOT NULL
    CONSTRAINT contents_pkey PRIMARY KEY (owner, sha256)
TABLE dead_letters
    letter_id text NOT NULL
    topic text NOT NULL
    source_partition integer NOT NULL
    source_offset bigint NOT NULL
    key bytea
    value bytea
    cause text NOT NULL
    quarantined_key text NOT NULL
    task_id text
    failure text
    trace_id text
    at timestamp with time zone NOT NULL
    log_partition integer NOT NULL
    log_offset bigint NOT NULL
    state text NOT NULL DEFAULT 'open'::text
    who text
    why text
    closed_at timestamp with time zone
    CONSTRAINT dead_letters_pkey PRIMARY KEY (letter_id)
    CREATE INDEX dead_letters_by_time ON public.dead_letters USING btree (at DESC, letter_id DESC)
    CREATE INDEX dead_letters_in_log ON public.dead_letters USING btree (log_partition, log_offset)
    CREATE INDEX dead_letters_of_task ON public.dead_letters USING btree (task_id) WHERE (task_id IS NOT NULL)
    CREATE INDEX dead_letters_open ON public.dead_letters USING btree (at DESC) WHERE (state = 'open'::text)
TABLE materials
    material_id text NOT NULL
    user_id text NOT NULL
    tenant_id text NOT NULL
    content_type text NOT NULL
    size bigint NOT NULL
    sha256 text NOT NULL
    status text NOT NULL
    reason text
    private bytea
    seq bigint NOT NULL
    created_at timestamp with time zone NOT NULL
    updated_at timestamp with time zone NOT NULL
    detail text NOT NULL DEFAULT ''::text
    part_bytes bigint NOT NULL DEFAULT 0
    seconds_max integer NOT NULL DEFAULT 0
    upload_id text NOT NULL DEFAULT ''::text
    tries integer NOT NULL DEFAULT 0
    content_key text NOT NULL DEFAULT ''::text
    facts json
    active_at timestamp with time zone NOT NULL
    assembling_at timestamp with time zone
    used_at timestamp with time zone
    CONSTRAINT materials_pkey PRIMARY KEY (material_id)
    CREATE INDEX materials_of_user ON public.materials USING btree (user_id, created_at DESC)
    CREATE INDEX materials_ready ON public.materials USING btree (used_at) WHERE (status = 'READY'::text)
    CREATE INDEX materials_registered ON public.materials USING btree (active_at) WHERE (status = 'REGISTERED'::text)
TABLE parked_keys
    log_partition integer NOT NULL
    key text NOT NULL
    letter_id text NOT NULL
    cause text NOT NULL
    since timestamp with time zone NOT NULL
    CONSTRAINT parked_keys_pkey PRIMARY KEY (log_partition, key)
TABLE policy
    version integer NOT NULL
    document json NOT NULL
    who text NOT NULL
    why text NOT NULL
    adopted_at timestamp with time zone NOT NULL
    CONSTRAINT policy_pkey PRIMARY KEY (version)
TABLE pool_accounts
    pool_id text NOT NULL
    lane text NOT NULL
    account_id text NOT NULL
    waiting bigint NOT NULL
    CONSTRAINT pool_accounts_pkey PRIMARY KEY (pool_id, lane, account_id)
    CREATE INDEX pool_accounts_large ON public.pool_accounts USING btree (waiting) WHERE (waiting > 10)
TABLE pool_breakers
    pool_id text NOT NULL
    scene text NOT NULL
    state text NOT NULL
    failed bigint NOT NULL
    counted bigint NOT NULL
    who text NOT NULL
    why text NOT NULL
    since timestamp with time zone NOT NULL
    CONSTRAINT pool_breakers_pkey PRIMARY KEY (pool_id, scene)
TABLE pool_flow
    at timestamp with time zone NOT NULL
    pool_id text NOT NULL
    lane text NOT NULL
    arrived bigint NOT NULL
    started bigint NOT NULL
    freed bigint NOT NULL
    held_ms bigint NOT NULL
    CONSTRAINT pool_flow_pkey PRIMARY KEY (at, pool_id, lane)
TABLE pool_lanes
    pool_id text NOT NULL
    lane text NOT NULL
    paused boolean NOT NULL
    who text NOT NULL
    why text NOT NULL
    since timestamp with time zone NOT NULL
    CONSTRAINT pool_lanes_pkey PRIMARY KEY (pool_id, lane)
TABLE pool_queues
    pool_id text NOT NULL
    lane text NOT NULL
    waiting bigint NOT NULL
    CONSTRAINT pool_queues_pkey PRIMARY KEY (pool_id, lane)
TABLE pool_slots
    pool_id text NOT NULL
    task_id text NOT NULL
    token bigint NOT NULL
    runner_id text NOT NULL
    incarnation_id text NOT NULL
    state text NOT NULL
    since timestamp with time zone NOT NULL
    lane text NOT NULL DEFAULT ''::text
    scene text NOT NULL DEFAULT ''::text
    proposed_at timestamp with time zone NOT NULL
    preempted_for text
    CONSTRAINT pool_slots_pkey PRIMARY KEY (pool_id, task_id, token)
TABLE pool_use
    at timestamp with time zone NOT NULL
    pool_id text NOT NULL
    used_ms bigint NOT NULL
    slots_ms bigint NOT NULL
    CONSTRAINT pool_use_pkey PRIMARY KEY (at, pool_id)
TABLE pool_waiting
    pool_id text NOT NULL
    task_id text NOT NULL
    token bigint NOT NULL
    lane text NOT NULL
    account_id text NOT NULL
    scene text NOT NULL
    enqueued_at timestamp with time zone NOT NULL
    move_pool_id text
    move_lane text
    move_reason text
    CONSTRAINT pool_waiting_pkey PRIMARY KEY (pool_id, task_id)
    CREATE INDEX pool_waiting_in_lane ON public.pool_waiting USING btree (pool_id, lane, enqueued_at)
TABLE pool_waste
    pool_id text NOT NULL
    cause text NOT NULL
    attempts bigint NOT NULL
    card_ms bigint NOT NULL
    burnt_ms bigint NOT NULL
    CONSTRAINT pool_waste_pkey PRIMARY KEY (pool_id, cause)
TABLE pools
    pool_id text NOT NULL
    seq bigint NOT NULL
    updated_at timestamp with time zone NOT NULL
    cards_wanted integer
    scale_reason text
    scaled_at timestamp with time zone
    demand_card_seconds bigint
    wait_p95_ms bigint
    oldest_wait_ms bigint
    CONSTRAINT pools_pkey PRIMARY KEY (pool_id)
TABLE projection_log
    one boolean NOT NULL DEFAULT true
    cluster_id text NOT NULL
    epoch text NOT NULL
    caught_up_at timestamp with time zone
    CONSTRAINT projection_log_one_check CHECK (one)
    CONSTRAINT projection_log_pkey PRIMARY KEY (one)
TABLE projection_migrations
    number integer NOT NULL
    name text NOT NULL
    sha256 text NOT NULL
    applied_at timestamp with time zone NOT NULL DEFAULT now()
    CONSTRAINT projection_migrations_pkey PRIMARY KEY (number)
TABLE projection_positions
    topic text NOT NULL
    log_partition integer NOT NULL
    next bigint NOT NULL
    at timestamp with time zone
    CONSTRAINT projection_positions_pkey PRIMARY KEY (topic, log_partition)
TABLE projection_seqs
    topic text NOT NULL
    key text NOT NULL
    seq bigint NOT NULL
    CONSTRAINT projection_seqs_pkey PRIMARY KEY (topic, key)
TABLE quota_accounts
    account_id text NOT NULL
    seq bigint NOT NULL
    policy_version integer
    updated_at timestamp with time zone NOT NULL
    CONSTRAINT quota_accounts_pkey PRIMARY KEY (account_id)
TABLE quota_entries
    event_id text NOT NULL
    account_id text NOT NULL
    seq bigint NOT NULL
    kind text NOT NULL
    user_id text
    scene text NOT NULL
    task_id text
    reservation_id text
    charge_id text
    amount_micros bigint NOT NULL
    released_micros bigint NOT NULL
    month_start timestamp with time zone NOT NULL
    day_start timestamp with time zone
    minute_start timestamp with time zone
    who text
    why text
    at timestamp with time zone NOT NULL
    CONSTRAINT quota_entries_pkey PRIMARY KEY (account_id, seq)
    CREATE INDEX quota_entries_of_reservation ON public.quota_entries USING btree (account_id, reservation_id) WHERE (kind = 'reserved'::text)
    CREATE INDEX quota_entries_of_user ON public.quota_entries USING btree (account_id, user_id, at)
TABLE quota_windows
    account_id text NOT NULL
    user_id text NOT NULL
    scene text NOT NULL
    kind text NOT NULL
    start_at timestamp with time zone NOT NULL
    end_at timestamp with time zone
    submitted integer NOT NULL
    reserved_micros bigint NOT NULL
    spent_micros bigint NOT NULL
    refunded_micros bigint NOT NULL
    topped_up_micros bigint NOT NULL
    limit_micros bigint
    updated_at timestamp with time zone NOT NULL
    CONSTRAINT quota_windows_pkey PRIMARY KEY (account_id, user_id, scene, kind, start_at)
TABLE refusals
    command_id text NOT NULL
    command text NOT NULL
    key text NOT NULL
    user_id text
    reason text NOT NULL
    detail text NOT NULL
    remaining json
    resets_at timestamp with time zone
    at timestamp with time zone NOT NULL
    log_partition integer NOT NULL
    log_offset bigint NOT NULL
    CONSTRAINT refusals_pkey PRIMARY KEY (command_id)
    CREATE INDEX refusals_by_time ON public.refusals USING brin (at)
    CREATE INDEX refusals_of_key ON public.refusals USING btree (key, at DESC)
TABLE results
    task_id text NOT NULL
    user_id text NOT NULL
    tenant_id text NOT NULL
    state text NOT NULL
    reason text NOT NULL
    cold boolean NOT NULL
    published_by text NOT NULL
    seq bigint NOT NULL
    hot_at timestamp with time zone
    changed_at timestamp with time zone NOT NULL
    swept_at timestamp with time zone
    CONSTRAINT results_pkey PRIMARY KEY (task_id)
    CREATE INDEX results_unswept ON public.results USING btree (changed_at) WHERE (swept_at IS NULL)
TABLE results_delivered
    day date NOT NULL
    tenant_id text NOT NULL
    scene text NOT NULL
    cold boolean NOT NULL
    reads bigint NOT NULL
    bytes bigint NOT NULL
    CONSTRAINT results_delivered_pkey PRIMARY KEY (day, tenant_id, scene, cold)
TABLE runners
    pool_id text NOT NULL
    runner_id text NOT NULL
    incarnation_id text NOT NULL
    slots integer NOT NULL
    state text NOT NULL
    beat bigint NOT NULL
    registered_at timestamp with time zone NOT NULL
    beat_at timestamp with time zone NOT NULL
    spot boolean NOT NULL DEFAULT false
    CONSTRAINT runners_pkey PRIMARY KEY (pool_id, runner_id)
TABLE sweep_cursors
    walk text NOT NULL
    cursor text NOT NULL
    begun_at timestamp with time zone NOT NULL
    ended_at timestamp with time zone
    CONSTRAINT sweep_cursors_pkey PRIMARY KEY (walk)
TABLE task_attempts
    task_id text NOT NULL
    token bigint NOT NULL
    pool_id text NOT NULL
    lane text NOT NULL
    scene text NOT NULL
    runner_id text NOT NULL
    queued_at timestamp with time zone NOT NULL
    started_at timestamp with time zone NOT NULL
    ended_at timestamp with time zone
    outcome text
    cause text
    card_ms bigint
    saved_ms bigint
    card_measured boolean
    CONSTRAINT task_attempts_pkey PRIMARY KEY (task_id, token)
    CREATE INDEX task_attempts_by_end ON public.task_attempts USING btree (ended_at) WHERE (ended_at IS NOT NULL)
    CREATE INDEX task_attempts_by_start ON public.task_attempts USING btree (started_at)
TABLE task_events
    task_id text NOT NULL
    seq bigint NOT NULL
    user_id text NOT NULL
    log_partition integer NOT NULL
    log_offset bigint NOT NULL
    kind text NOT NULL
    at timestamp with time zone NOT NULL
    body json NOT NULL
    CONSTRAINT task_events_log_partition_log_offset_key UNIQUE (log_partition, log_offset)
    CONSTRAINT task_events_pkey PRIMARY KEY (task_id, seq)
    CREATE INDEX task_events_by_time ON public.task_events USING brin (at)
    CREATE INDEX task_events_failed ON public.task_events USING btree (log_partition, log_offset) WHERE (kind = 'task.failed.v1'::text)
    CREATE INDEX task_events_of_user ON public.task_events USING btree (user_id, log_partition, log_offset)
TABLE tasks PARTITION BY HASH (shard)
    shard integer NOT NULL
    task_id text NOT NULL
    user_id text NOT NULL
    tenant_id text NOT NULL
    account_id text NOT NULL
    scene text NOT NULL
    tier text NOT NULL
    lane text NOT NULL
    pool_id text NOT NULL
    status text NOT NULL
    seq bigint NOT NULL
    token bigint NOT NULL
    retries integer NOT NULL
    losses integer NOT NULL
    storing boolean NOT NULL
    fingerprint text NOT NULL
    parameters json NOT NULL
    material_ids text[] NOT NULL
    private bytea
    policy_version integer NOT NULL
    reservation_id text NOT NULL
    reserved_micros bigint NOT NULL
    charge_micros bigint
    run_limit_seconds integer NOT NULL
    trace_id text NOT NULL
    runner_id text
    failure text
    last_failure text
    loss text
    message text
    cause text
    reason text
    files json
    facts json
    card_ms bigint NOT NULL
    created_at timestamp with time zone NOT NULL
    queued_at timestamp with time zone
    started_at timestamp with time zone
    ended_at timestamp with time zone
    updated_at timestamp with time zone NOT NULL
    deadline_seconds integer
    lower_spec boolean NOT NULL DEFAULT false
    card_measured boolean NOT NULL DEFAULT true
    publishes text
    CONSTRAINT tasks_pkey PRIMARY KEY (shard, task_id)
    CREATE INDEX tasks_of_user ON ONLY public.tasks USING btree (user_id, created_at DESC, task_id DESC)
    PARTITION tasks_00 FOR VALUES WITH (modulus 64, remainder 0)
    PARTITION tasks_01 FOR VALUES WITH (modulus 64, remainder 1)
    PARTITION tasks_02 FOR VALUES WITH (modulus 64, remainder 2)
    PARTITION tasks_03 FOR VALUES WITH (modulus 64, remainder 3)
    PARTITION tasks_04 FOR VALUES WITH (modulus 64, remainder 4)
    PARTITION tasks_05 FOR VALUES WITH (modulus 64, remainder 5)
    PARTITION tasks_06 FOR VALUES WITH (modulus 64, remainder 6)
    PARTITION tasks_07 FOR VALUES WITH (modulus 64, remainder 7)
    PARTITION tasks_08 FOR VALUES WITH (modulus 64, remainder 8)
    PARTITION tasks_09 FOR VALUES WITH (modulus 64, remainder 9)
    PARTITION tasks_10 FOR VALUES WITH (modulus 64, remainder 10)
    PARTITION tasks_11 FOR VALUES WITH (modulus 64, remainder 11)
    PARTITION tasks_12 FOR VALUES WITH (modulus 64, remainder 12)
    PARTITION tasks_13 FOR VALUES WITH (modulus 64, remainder 13)
    PARTITION tasks_14 FOR VALUES WITH (modulus 64, remainder 14)
    PARTITION tasks_15 FOR VALUES WITH (modulus 64, remainder 15)
    PARTITION tasks_16 FOR VALUES WITH (modulus 64, remainder 16)
    PARTITION tasks_17 FOR VALUES WITH (modulus 64, remainder 17)
    PARTITION tasks_18 FOR VALUES WITH (modulus 64, remainder 18)
    PARTITION tasks_19 FOR VALUES WITH (modulus 64, remainder 19)
    PARTITION tasks_20 FOR VALUES WITH (modulus 64, remainder 20)
    PARTITION tasks_21 FOR VALUES WITH (modulus 64, remainder 21)
    PARTITION tasks_22 FOR VALUES WITH (modulus 64, remainder 22)
    PARTITION tasks_23 FOR VALUES WITH (modulus 64, remainder 23)
    PARTITION tasks_24 FOR VALUES WITH (modulus 64, remainder 24)
    PARTITION tasks_25 FOR VALUES WITH (modulus 64, remainder 25)
    PARTITION tasks_26 FOR VALUES WITH (modulus 64, remainder 26)
    PARTITION tasks_27 FOR VALUES WITH (modulus 64, remainder 27)
    PARTITION tasks_28 FOR VALUES WITH (modulus 64, remainder 28)
    PARTITION tasks_29 FOR VALUES WITH (modulus 64, remainder 29)
    PARTITION tasks_30 FOR VALUES WITH (modulus 64, remainder 30)
    PARTITION tasks_31 FOR VALUES WITH (modulus 64, remainder 31)
    PARTITION tasks_32 FOR VALUES WITH (modulus 64, remainder 32)
    PARTITION tasks_33 FOR VALUES WITH (modulus 64, remainder 33)
    PARTITION tasks_34 FOR VALUES WITH (modulus 64, remainder 34)
    PARTITION tasks_35 FOR VALUES WITH (modulus 64, remainder 35)
    PARTITION tasks_36 FOR VALUES WITH (modulus 64, remainder 36)
    PARTITION tasks_37 FOR VALUES WITH (modulus 64, remainder 37)
    PARTITION tasks_38 FOR VALUES WITH (modulus 64, remainder 38)
    PARTITION tasks_39 FOR VALUES WITH (modulus 64, remainder 39)
    PARTITION tasks_40 FOR VALUES WITH (modulus 64, remainder 40)
    PARTITION tasks_41 FOR VALUES WITH (modulus 64, remainder 41)
    PARTITION tasks_42 FOR VALUES WITH (modulus 64, remainder 42)
    PARTITION tasks_43 FOR VALUES WITH (modulus 64, remainder 43)
    PARTITION tasks_44 FOR VALUES WITH (modulus 64, remainder 44)
    PARTITION tasks_45 FOR VALUES WITH (modulus 64, remainder 45)
    PARTITION tasks_46 FOR VALUES WITH (modulus 64, remainder 46)
    PARTITION tasks_47 FOR VALUES WITH (modulus 64, remainder 47)
    PARTITION tasks_48 FOR VALUES WITH (modulus 64, remainder 48)
    PARTITION tasks_49 FOR VALUES WITH (modulus 64, remainder 49)
    PARTITION tasks_50 FOR VALUES WITH (modulus 64, remainder 50)
    PARTITION tasks_51 FOR VALUES WITH (modulus 64, remainder 51)
    PARTITION tasks_52 FOR VALUES WITH (modulus 64, remainder 52)
    PARTITION tasks_53 FOR VALUES WITH (modulus 64, remainder 53)
    PARTITION tasks_54 FOR VALUES WITH (modulus 64, remainder 54)
    PARTITION tasks_55 FOR VALUES WITH (modulus 64, remainder 55)
    PARTITION tasks_56 FOR VALUES WITH (modulus 64, remainder 56)
    PARTITION tasks_57 FOR VALUES WITH (modulus 64, remainder 57)
    PARTITION tasks_58 FOR VALUES WITH (modulus 64, remainder 58)
    PARTITION tasks_59 FOR VALUES WITH (modulus 64, remainder 59)
    PARTITION tasks_60 FOR VALUES WITH (modulus 64, remainder 60)
    PARTITION tasks_61 FOR VALUES WITH (modulus 64, remainder 61)
    PARTITION tasks_62 FOR VALUES WITH (modulus 64, remainder 62)
    PARTITION tasks_63 FOR VALUES WITH (modulus 64, remainder 63)
TABLE uploads_seen
    material_id text NOT NULL
    upload_id text NOT NULL
    parts text NOT NULL
    looked_at timestamp with time zone NOT NULL
    CONSTRAINT uploads_seen_pkey PRIMARY KEY (material_id)
    CREATE INDEX uploads_seen_by_age ON public.uploads_seen USING btree (looked_at)
