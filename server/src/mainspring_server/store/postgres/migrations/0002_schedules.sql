-- Why: recurring tasks: schedules, and a ledger with one row a nominal time.
-- Locks: none on anything that exists; every table is new.
-- Kind: expand.

-- Rewritten with every visit. `definition` (calendar, policy, template) changes only when a caller
-- changes it; a long one lies out of the row and is not copied. `instances` are the ids, 16 bytes
-- each, of the tasks that were live after the last visit: an index on tasks that told live from
-- ended instances would cost every task's updates their HOT.
CREATE TABLE schedules (
    schedule_id     uuid     NOT NULL,
    created_at      bigint   NOT NULL,
    settled_at      bigint   NOT NULL,
    next_check_at   bigint,
    version         bigint   NOT NULL,
    next_nominal_at bigint,
    runs            bigint   NOT NULL,
    paused_at       bigint,
    resume_from     bigint,
    ended_at        bigint,
    shard           smallint NOT NULL,
    namespace       text COLLATE "C" NOT NULL,
    pause_note      text,
    end_reason      text,
    tz_version      text     NOT NULL,
    labels          text,
    instances       bytea    NOT NULL DEFAULT '',
    definition      bytea    NOT NULL,
    PRIMARY KEY (schedule_id)
) WITH (
    fillfactor = 70, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0,
    toast_tuple_target = 1024
);

-- The materialiser's way to what it has to visit, soonest first; empty of what has ended. The time
-- leads: by shard first, the next 500 of a herd would be sought among the next 500 of each shard.
CREATE INDEX schedules_check ON schedules (next_check_at, schedule_id, shard)
    WHERE next_check_at IS NOT NULL;
CREATE INDEX schedules_ended ON schedules (ended_at) WHERE ended_at IS NOT NULL;

-- `sequence` tells apart what one moment was asked for more than once. The outcome is 1 (open) until
-- the nominal time has come, then written once.
CREATE TABLE schedule_ledger (
    schedule_id uuid     NOT NULL,
    nominal_at  bigint   NOT NULL,
    sequence    bigint   NOT NULL,
    due_at      bigint   NOT NULL,
    outcome_at  bigint,
    task_id     uuid,
    source      smallint NOT NULL,
    outcome     smallint NOT NULL CHECK (outcome BETWEEN 1 AND 7),
    reason      text,
    PRIMARY KEY (schedule_id, nominal_at, source, sequence)
) WITH (
    fillfactor = 80, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0
);

-- One row a schedule, mostly: the instance whose time has not come.
CREATE INDEX schedule_ledger_open ON schedule_ledger (schedule_id) WHERE outcome = 1;
-- Retention begins with the oldest.
CREATE INDEX schedule_ledger_over ON schedule_ledger (outcome_at) WHERE outcome > 1;
