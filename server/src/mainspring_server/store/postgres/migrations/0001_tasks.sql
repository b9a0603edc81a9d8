-- Why: the tables of tasks, their payloads, keys and history, and the small tables beside them.
-- Locks: none on anything that exists; every table is new.
-- Kind: expand.
--
-- `tasks`, `task_payloads`, `task_attempts` and `task_dependencies` are partitioned by the task's
-- id, a UUIDv7: the first 48 bits are the time of creation, so a range of ids is a span of time. The
-- partitions are made by the store (see partitions.py), not here: they depend on the day on which
-- this runs.

CREATE TABLE tasks (
    task_id          uuid   NOT NULL,
    version          bigint NOT NULL DEFAULT 1,
    due_at           bigint NOT NULL,
    created_at       bigint NOT NULL,
    next_check_at    bigint,
    ready_at         bigint,
    published_at     bigint,
    started_at       bigint,
    completed_at     bigint,
    deadline_at      bigint,
    lease_expires_at bigint,
    outcome_token    bigint,
    nominal_at       bigint,
    queue_ms         bigint,
    run_ms           bigint,
    total_ms         bigint,
    -- Three NULLs stand for the default policy.
    retry_initial_ms bigint,
    retry_max_ms     bigint,
    retry_multiplier double precision,
    progress         double precision,
    attempts         integer  NOT NULL DEFAULT 0,
    lost_grants      integer  NOT NULL DEFAULT 0,
    max_attempts     integer  NOT NULL,
    shard            smallint NOT NULL,
    status           smallint NOT NULL CHECK (status BETWEEN 1 AND 7),
    priority         smallint NOT NULL,
    outcome_by       smallint,
    lease_acked      boolean  NOT NULL DEFAULT false,
    -- Of its predecessors; NULL for a task that never had any.
    rule             smallint,
    delay_after_ms   bigint,
    -- Set when the first dependent is submitted; NULL, which costs nothing, until then.
    has_dependents   boolean,
    schedule_id      uuid,
    retry_of         uuid,
    graph_id         uuid,
    namespace        text COLLATE "C" NOT NULL,
    task_type        text COLLATE "C" NOT NULL,
    queue            text COLLATE "C" NOT NULL,
    worker_id        text COLLATE "C",
    labels           text,
    trace_context    text,
    local_ref        text,
    progress_message text,
    error_type       text,
    error_message    text,
    status_reason    text,
    checkpoint       bytea,
    outcome          bytea,
    -- The id alone: every hot statement names ids, and an id prunes to one partition.
    PRIMARY KEY (task_id)
) PARTITION BY RANGE (task_id);

-- The one secondary index of most rows: what still has something to happen to it, and when to look. It names
-- no column that READY and RUNNING change, so these updates stay HOT.
CREATE INDEX tasks_check ON tasks (shard, next_check_at) WHERE next_check_at IS NOT NULL;

-- Rows outside a graph and rows that are no copies are in neither; both columns never change.
CREATE INDEX tasks_graph ON tasks (graph_id) WHERE graph_id IS NOT NULL;
CREATE INDEX tasks_retry_of ON tasks (retry_of) WHERE retry_of IS NOT NULL;

-- Out of `tasks`, whose tuples are copied by every update.
CREATE TABLE task_payloads (
    task_id  uuid     NOT NULL,
    kind     smallint NOT NULL,
    body     bytea    NOT NULL,
    metadata text,
    PRIMARY KEY (task_id)
) PARTITION BY RANGE (task_id);

-- Attempts that did not succeed. An attempt number comes again after a hand-back; a token does not.
CREATE TABLE task_attempts (
    task_id       uuid     NOT NULL,
    token         bigint   NOT NULL,
    started_at    bigint   NOT NULL,
    ended_at      bigint,
    attempt       integer  NOT NULL,
    outcome       smallint NOT NULL,
    worker_id     text     NOT NULL,
    error_type    text,
    error_message text,
    PRIMARY KEY (task_id, token)
) PARTITION BY RANGE (task_id);

-- Edges, in the partition of the dependent: they live and go with it. The outcome is the terminal
-- status of the predecessor; NULL until the dependent was told. It is what counts once retention
-- has dropped the predecessor.
CREATE TABLE task_dependencies (
    downstream  uuid NOT NULL,
    predecessor uuid NOT NULL,
    outcome     smallint,
    PRIMARY KEY (downstream, predecessor)
) PARTITION BY RANGE (downstream);

CREATE INDEX task_dependents ON task_dependencies (predecessor, downstream);

-- 16-byte digests are kept as uuid: fixed length, no header, cheap to compare.
CREATE TABLE idempotency_keys (
    digest       uuid   NOT NULL,
    task_id      uuid   NOT NULL,
    expires_at   bigint NOT NULL,
    request_hash bytea  NOT NULL,
    PRIMARY KEY (digest)
) PARTITION BY HASH (digest);

DO $$
BEGIN
    FOR part IN 0..7 LOOP
        EXECUTE format(
            'CREATE TABLE idempotency_keys_%s PARTITION OF idempotency_keys '
            'FOR VALUES WITH (MODULUS 8, REMAINDER %s) WITH (fillfactor = 90)', part, part);
    END LOOP;
END
$$;

CREATE INDEX idempotency_keys_expiry ON idempotency_keys (expires_at);

CREATE TABLE paused_queues (
    lane      text COLLATE "C" PRIMARY KEY,
    reason    text   NOT NULL,
    paused_at bigint NOT NULL
);

-- Small and updated all the time: room on the page keeps the updates HOT.
CREATE TABLE workers (
    session_id   text COLLATE "C" PRIMARY KEY,
    worker_id    text    NOT NULL,
    namespace    text    NOT NULL,
    node         text    NOT NULL,
    hostname     text    NOT NULL,
    sdk          text    NOT NULL,
    slots        integer NOT NULL,
    in_use       integer NOT NULL,
    queues       text[]  NOT NULL,
    task_types   text[]  NOT NULL,
    connected_at bigint  NOT NULL,
    seen_at      bigint  NOT NULL
) WITH (fillfactor = 50);

CREATE TABLE shard_leases (
    name       text COLLATE "C" PRIMARY KEY,
    owner      text   NOT NULL,
    term       bigint NOT NULL,
    expires_at bigint NOT NULL
) WITH (fillfactor = 50);
