-- Version 1 of the file's layout, which PRAGMA user_version carries.
-- Times are integer milliseconds since the epoch, ids 16-byte blobs. `seq` is
-- the rowid: payloads are found by it, and index entries stay short. A row is
-- inserted, claimed and finished, so every index here is paid for three times;
-- partial ones cost nothing to the rows that they leave out.
BEGIN;

CREATE TABLE tasks (
    seq INTEGER PRIMARY KEY,
    task_id BLOB NOT NULL UNIQUE,
    namespace TEXT NOT NULL,
    task_type TEXT NOT NULL,
    queue TEXT NOT NULL,
    priority INTEGER NOT NULL,
    status INTEGER NOT NULL CHECK (status BETWEEN 1 AND 7),
    version INTEGER NOT NULL,
    due_at INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    max_attempts INTEGER NOT NULL,
    retry_initial_ms INTEGER NOT NULL,
    retry_multiplier REAL NOT NULL,
    retry_max_ms INTEGER NOT NULL,
    attempts INTEGER NOT NULL,
    lost_grants INTEGER NOT NULL,
    lease_acked INTEGER NOT NULL,
    next_check_at INTEGER,
    ready_at INTEGER,
    published_at INTEGER,
    started_at INTEGER,
    completed_at INTEGER,
    worker_id TEXT,
    lease_expires_at INTEGER,
    outcome_token INTEGER,
    outcome_by INTEGER,
    outcome BLOB,
    deadline_at INTEGER,
    queue_ms INTEGER,
    run_ms INTEGER,
    total_ms INTEGER,
    progress REAL,
    progress_message TEXT,
    checkpoint BLOB,
    error_type TEXT,
    error_message TEXT,
    status_reason TEXT,
    labels TEXT,
    trace_context TEXT,
    retry_of BLOB,
    schedule_id BLOB,
    nominal_at INTEGER,
    rule INTEGER,
    delay_after_ms INTEGER NOT NULL DEFAULT 0,
    has_dependents INTEGER NOT NULL DEFAULT 0,
    graph_id BLOB,
    local_ref TEXT
) STRICT;

-- The claim takes a lane's tasks from here in the order of the index.
CREATE INDEX tasks_ready ON tasks (namespace, queue, priority, due_at) WHERE status = 3;
-- The wheel is filled from here.
CREATE INDEX tasks_pending ON tasks (due_at, priority) WHERE status = 2;
-- The sweeper pages through this one; every live task is in it.
CREATE INDEX tasks_checks ON tasks (next_check_at, task_id) WHERE next_check_at IS NOT NULL;
-- Lists by create_time, and retention, which begins with the oldest.
CREATE INDEX tasks_created ON tasks (created_at);
CREATE INDEX tasks_schedule ON tasks (schedule_id) WHERE schedule_id IS NOT NULL;
CREATE INDEX tasks_graph ON tasks (graph_id) WHERE graph_id IS NOT NULL;
-- A batch of ends asks here who has dependents; empty where there are no graphs.
CREATE INDEX tasks_parents ON tasks (task_id) WHERE has_dependents = 1;
CREATE INDEX tasks_retry_of ON tasks (retry_of) WHERE retry_of IS NOT NULL;

-- Apart from the row that every transition rewrites; only where there is one.
CREATE TABLE payloads (
    seq INTEGER PRIMARY KEY,
    kind INTEGER NOT NULL,
    body BLOB NOT NULL,
    metadata TEXT
) STRICT;

CREATE TABLE task_attempts (
    task_id BLOB NOT NULL,
    attempt INTEGER NOT NULL,
    token INTEGER NOT NULL,
    worker_id TEXT NOT NULL,
    outcome INTEGER NOT NULL,
    started_at INTEGER NOT NULL,
    ended_at INTEGER,
    error_type TEXT,
    error_message TEXT,
    PRIMARY KEY (task_id, attempt, token)
) STRICT, WITHOUT ROWID;

-- An edge's outcome is NULL until the predecessor is terminal and the edge was told.
CREATE TABLE task_dependencies (
    downstream BLOB NOT NULL,
    predecessor BLOB NOT NULL,
    outcome INTEGER,
    PRIMARY KEY (downstream, predecessor)
) STRICT, WITHOUT ROWID;
CREATE INDEX task_dependents ON task_dependencies (predecessor, downstream);

CREATE TABLE idempotency_keys (
    digest BLOB PRIMARY KEY,
    request_hash BLOB NOT NULL,
    task_id BLOB NOT NULL,
    expires_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE INDEX idempotency_keys_expiry ON idempotency_keys (expires_at);

-- Rewritten with every visit; what only a caller changes is in a table of its own. `instances` are
-- the ids, one behind the other, of the tasks that were live after the last visit.
CREATE TABLE schedules (
    seq INTEGER PRIMARY KEY,
    schedule_id BLOB NOT NULL UNIQUE,
    namespace TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    settled_at INTEGER NOT NULL,
    next_check_at INTEGER,
    version INTEGER NOT NULL,
    next_nominal_at INTEGER,
    runs INTEGER NOT NULL,
    paused_at INTEGER,
    pause_note TEXT,
    resume_from INTEGER,
    ended_at INTEGER,
    end_reason TEXT,
    tz_version TEXT NOT NULL,
    labels TEXT,
    instances BLOB NOT NULL
) STRICT;

-- The materialiser's way to what it has to visit; empty of what has ended.
CREATE INDEX schedules_checks ON schedules (next_check_at) WHERE next_check_at IS NOT NULL;
CREATE INDEX schedules_ended ON schedules (ended_at) WHERE ended_at IS NOT NULL;

CREATE TABLE schedule_definitions (
    seq INTEGER PRIMARY KEY,
    definition BLOB NOT NULL
) STRICT;

CREATE TABLE schedule_ledger (
    schedule_id BLOB NOT NULL,
    nominal_at INTEGER NOT NULL,
    source INTEGER NOT NULL,
    sequence INTEGER NOT NULL,
    task_id BLOB,
    due_at INTEGER NOT NULL,
    outcome INTEGER NOT NULL CHECK (outcome BETWEEN 1 AND 7),
    outcome_at INTEGER,
    reason TEXT,
    PRIMARY KEY (schedule_id, nominal_at, source, sequence)
) STRICT, WITHOUT ROWID;

-- One row a schedule, mostly: the instance whose time has not come.
CREATE INDEX schedule_ledger_open ON schedule_ledger (schedule_id) WHERE outcome = 1;
-- Retention begins with the oldest.
CREATE INDEX schedule_ledger_over ON schedule_ledger (outcome_at) WHERE outcome > 1;

CREATE TABLE paused_queues (
    lane TEXT PRIMARY KEY,
    reason TEXT NOT NULL,
    paused_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE workers (
    session_id TEXT PRIMARY KEY,
    worker_id TEXT NOT NULL,
    namespace TEXT NOT NULL,
    node TEXT NOT NULL,
    hostname TEXT NOT NULL,
    sdk TEXT NOT NULL,
    slots INTEGER NOT NULL,
    in_use INTEGER NOT NULL,
    queues TEXT NOT NULL,
    task_types TEXT NOT NULL,
    connected_at INTEGER NOT NULL,
    seen_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE shard_leases (
    name TEXT PRIMARY KEY,
    owner TEXT NOT NULL,
    term INTEGER NOT NULL,
    expires_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

PRAGMA user_version = 1;
COMMIT;
