"""What a store must do, for every adapter alike.

Batch first: a list in, a list of the same length and order out, one transaction per call. Every
write of task state is conditional; an item whose condition no longer holds is answered as stale
and changes nothing, which is a value and no error. The store's own clock (PostgreSQL's `now()`,
the injected clock for SQLite) decides what is due and what has expired. Rows are locked in id
order. A call that raises has changed nothing, except where the connection broke after the commit
was sent: the caller repeats it, and the conditions make the repeat harmless.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from ..domain.leases import Beat, BeatAnswer, Grant, LeaseRef, Success, Want
from ..domain.lifecycle import Change
from ..domain.task import (
    Attempt,
    Edge,
    Handed,
    Inserted,
    NewTask,
    ReadyAnswer,
    ReadyRef,
    Status,
    Task,
    Waiting,
    Written,
)
from .schedules import ScheduleStore

CLAIM_BYTES = 16 * 1_024 * 1_024
"""Payload that one claim brings into memory, at about."""


@dataclass(frozen=True, slots=True)
class DueEntry:
    """A PENDING task that falls due."""

    due_at: int
    priority: int
    task_id: bytes


@dataclass(frozen=True, slots=True)
class DueDigest:
    """What is PENDING of one shard and one second, in a form that can be compared.

    `mark` is the exclusive or of `id_mark` over the ids: equal count and mark mean the same tasks.
    """

    shard: int
    second: int  # due_at // 1000
    count: int
    mark: int


def id_mark(task_id: bytes) -> int:
    """The random half of an id as a signed 64-bit number."""
    return int.from_bytes(task_id[8:], "big", signed=True)


@dataclass(frozen=True, slots=True)
class Field:
    """One comparison of a filter: `name op value`; labels are `labels.KEY`.

    Names: status, task_type, queue, priority, schedule_id, graph_id, retry_of, worker_id,
    attempts, create_time, due_time, complete_time, labels.KEY. Values: str, int (status: its number; times:
    ms), bytes (ids). Operators: = != < <= > >=.
    """

    name: str
    op: str
    value: str | int | bytes


@dataclass(frozen=True, slots=True)
class Not:
    """Negation."""

    item: Filter


@dataclass(frozen=True, slots=True)
class All:
    """Conjunction; empty is true."""

    items: tuple[Filter, ...]


@dataclass(frozen=True, slots=True)
class Any:
    """Disjunction; empty is false."""

    items: tuple[Filter, ...]


Filter = Field | Not | All | Any


@dataclass(frozen=True, slots=True)
class ListQuery:
    """A page of tasks of one namespace, ordered by (`order`, task_id), after the `after` key.

    `order` is create_time or due_time; `after` is the (order value, task_id) of the last task of
    the page before, or None. A NULL column makes every comparison on it false, also `!=`.
    """

    namespace: str
    where: Filter
    order: str
    descending: bool
    after: tuple[int, bytes] | None
    limit: int


@dataclass(frozen=True, slots=True)
class LaneCounts:
    """Live tasks of one lane. `oldest_ready_at` is the smallest max(ready_at, due_at) that waits."""

    lane: str
    pending: int
    ready: int
    running: int
    oldest_ready_at: int | None


@dataclass(frozen=True, slots=True)
class PausedQueue:
    """A queue whose tasks are not handed out."""

    lane: str
    reason: str
    paused_at: int


@dataclass(frozen=True, slots=True)
class WorkerRow:
    """A worker as ListWorkers shows it. `queues` and `task_types` as in its Hello."""

    worker_id: str
    namespace: str
    session_id: str
    node: str
    hostname: str
    sdk: str
    slots: int
    in_use: int
    queues: tuple[str, ...]
    task_types: tuple[str, ...]
    connected_at: int
    seen_at: int


@dataclass(frozen=True, slots=True)
class ShardLease:
    """A named ownership: `name` is e.g. `shard/17`; `term` grows with each change of owner."""

    name: str
    owner: str
    term: int
    expires_at: int


class TaskStore(Protocol):
    """The hot path: every method is one transaction over a batch."""

    async def now(self) -> int:
        """The store's clock."""

    async def insert(self, tasks: Sequence[NewTask]) -> list[Inserted]:
        """Insert with payload and idempotency key. `version` starts at 1, attempts at 0.

        A READY task also gets ready_at = published_at = the store's now, and its due_at is lowered
        to the store's now where it is later (clocks differ by some ms). Tasks with a key: an
        unexpired key with the same request hash answers EXISTING with the first task's id and its
        status and due time now; another hash CONFLICT; an expired key is taken over. Two tasks of
        one batch with one key behave as if they came one after the other. Keys are taken in
        digest order. A task_id that exists already (a repeated call) answers INSERTED again.
        """

    async def load(
        self, ids: Sequence[bytes], *, payload: bool = False, namespace: str | None = None
    ) -> list[Task | None]:
        """The rows as they stand; None where unknown or of another namespace."""

    async def make_ready(self, ids: Sequence[bytes], lead_ms: int = 0) -> list[ReadyAnswer]:
        """PENDING -> READY where due_at <= now + lead: version + 1, ready_at = published_at = now.

        next_check_at stays, unless the task has a queue timeout that ends earlier. A task whose
        deadline_at has passed is STALE (the sweeper ends it).
        """

    async def claim(self, refs: Sequence[ReadyRef], want: Want) -> list[Grant]:
        """READY -> RUNNING for those of `refs` that are READY in that version and due (<= now).

        Grants are filled into the seats of `want` in order, so at most sum(room) refs may be
        given. Sets worker_id, started_at = now, lease_expires_at = now + lease, lease_acked =
        want.acked, version + 1, attempts + 1; clears progress; next_check_at stays, unless a run
        timeout ends earlier. Refs that were not granted are simply missing from the answer.
        """

    async def claim_lanes(self, wants: Sequence[Want], turn: int) -> list[Grant]:
        """The same, choosing from the store: per want up to sum(room) READY and due tasks of its
        lanes by (priority, due_at), skipping rows that others have locked. It may stop once the
        payloads of the call make CLAIM_BYTES; the caller then asks again.

        `turn` is a running number of the caller's for the starvation guard: every 8th turn takes
        first from priorities >= 4, every 32nd first from priorities >= 7; the rest as usual.
        """

    async def succeed(self, results: Sequence[Success]) -> list[Written]:
        """RUNNING -> SUCCEEDED where version = token: version + 1, outcome, completed_at = now,
        outcome_token = token, outcome_by = WORKER_SUCCEEDED, next_check_at NULL; with dependents
        next_check_at = now + grace instead, and the answer is TELL.
        """

    async def apply(self, changes: Sequence[Change]) -> list[Written]:
        """The general conditional write (see Change); terminal with dependents as in `succeed`.

        Where the new status is READY, published_at = now as well.
        """

    async def extend(self, beats: Sequence[Beat]) -> list[BeatAnswer]:
        """Heartbeats: where RUNNING and version = token: lease_expires_at = greatest(old, now +
        lease), lease_acked, progress and checkpoint where given; version and next_check_at stay.
        One task may appear twice in a batch: the later one wins.

        A CANCELLED row whose outcome_token is the token answers CANCEL_REQUESTED, any other LOST.
        """

    async def acknowledge(self, leases: Sequence[LeaseRef]) -> None:
        """Mark leases as acknowledged without extending them (their stream broke)."""

    async def due(
        self, shards: Sequence[int], until: int, limit: int, since: int = 0
    ) -> list[DueEntry]:
        """PENDING tasks of the shards with since <= due_at <= until, soonest first (through
        next_check_at).

        Those whose deadline has passed, or passes before `since`, are left to the sweeper.
        """

    async def due_digest(self, shards: Sequence[int], since: int, until: int) -> list[DueDigest]:
        """What `due` would answer without a limit, counted per shard and second; in no order,
        and without the seconds in which nothing is due.
        """

    async def overdue(
        self, shards: Sequence[int], until: int, after: tuple[int, bytes] | None, limit: int
    ) -> list[Task]:
        """Rows with next_check_at <= until, by (next_check_at, task_id), after the given key."""

    async def defer(self, checks: Sequence[tuple[bytes, int, int]]) -> None:
        """(task_id, version, next_check_at): move the check of rows that are still in that version.

        A row without a check (told meanwhile) stays without one.
        """

    async def republish(self, ids: Sequence[tuple[bytes, int]]) -> list[ReadyRef | None]:
        """(task_id, version): set published_at = now on rows still READY in that version; not version."""


class Edges(Protocol):
    """Dependencies: rows (downstream, predecessor, outcome); the outcome is NULL until it is known.

    A predecessor that is the target of an edge has `has_dependents` set, and its end keeps a
    `next_check_at` until `told` clears it, so a crash in between is replayed by the sweeper.
    """

    async def insert_graph(self, tasks: Sequence[NewTask]) -> list[Inserted]:
        """Insert tasks with their edges, all or nothing. A predecessor that is named twice is one.

        Predecessors are tasks of the batch or existing ones of their dependent's namespace. The existing
        ones are locked in id order by setting has_dependents (also where it is set already),
        before anything is inserted; the edges to those that are terminal get their outcome at
        once. An unknown or foreign one raises NotFound PREDECESSOR_NOT_FOUND with `task_id` in
        the metadata, a schedule's id InvalidArgument PREDECESSOR_IS_SCHEDULE (none in a store
        without schedules). CREATED tasks are stored as such whatever their edges say: the caller
        settles them next. Idempotency keys: all EXISTING if every task has a key that is known with
        its request, else AlreadyExists IDEMPOTENCY_KEY_REUSED if any is known, or given twice. A
        key is taken before anything else is looked at; one whose task is gone is free.
        """

    async def resolve(
        self, predecessors: Sequence[bytes], after: bytes | None, limit: int
    ) -> list[Waiting]:
        """Write the outcome of terminal predecessors into the edges to them, and answer who waits.

        At most `limit` dependents that are CREATED, by id, from above `after` on; their rows are
        locked in id order before their edges are marked and counted, so that of two predecessors
        that end together one sees both. Repeats are harmless.
        """

    async def waiting(self, ids: Sequence[bytes]) -> list[Waiting]:
        """Those of `ids` that are CREATED, counted after marking edges whose predecessor is terminal."""

    async def told(self, ids: Sequence[bytes]) -> None:
        """Terminal tasks whose dependents have all been told: next_check_at NULL, version stays."""

    async def predecessors(self, ids: Sequence[bytes]) -> dict[bytes, list[Handed]]:
        """Per task that has predecessors: what those that have ended hand over, in id order.

        As many as fit into HANDED_BYTES, each counted with HANDED_OVERHEAD. Of one that retention
        has dropped only the status is left.
        """

    async def edges(self, downstream: Sequence[bytes]) -> list[Edge]:
        """All edges of these dependents, by (downstream, predecessor)."""

    async def dependents(self, predecessors: Sequence[bytes], limit: int) -> list[Edge]:
        """Edges to these predecessors, by (downstream, predecessor), at most `limit`."""


class TaskQueries(Protocol):
    """Reads for people; none is on the hot path."""

    async def list_tasks(self, query: ListQuery) -> list[Task]:
        """One page."""

    async def count_tasks(
        self, namespace: str, where: Filter, group_by: str | None
    ) -> list[tuple[str | int | None, int]]:
        """(group value, count) per group, or one row with None; group_by: status, task_type, queue."""

    async def attempts(self, task_id: bytes, after: int, limit: int) -> list[Attempt]:
        """Unsuccessful attempts by (attempt, token), from the `after`-th row on."""

    async def lane_counts(self, namespace: str) -> list[LaneCounts]:
        """Lanes with live tasks, by name."""

    async def purge(self, completed_before: int, limit: int) -> int:
        """Delete terminal tasks with nothing left to do (retention); answers how many.

        Along with them go expired idempotency keys and leases of nodes and lanes long gone.
        """


class QueueStore(Protocol):
    """Paused queues and connected workers: small tables, read whole."""

    async def pause(self, lane: str, reason: str) -> None:
        """Idempotent; a second reason replaces the first, the time stays."""

    async def resume(self, lane: str) -> bool:
        """False if it was not paused."""

    async def paused(self) -> list[PausedQueue]:
        """All of them."""

    async def save_workers(self, rows: Sequence[WorkerRow], gone: Sequence[str]) -> None:
        """Upsert by session_id; delete the sessions in `gone` and all not seen for a minute."""

    async def workers(self, namespace: str) -> list[WorkerRow]:
        """Those seen within the last minute."""


DEAD_LEASE_MS = 3_600_000
"""A lease that expired so long ago is forgotten by `purge`, its term too: nobody acts on that any more."""


class ShardLeases(Protocol):
    """Ownership with terms. It only saves work: two owners of a shard do no harm."""

    async def acquire(self, names: Sequence[str], owner: str, ttl_ms: int) -> list[ShardLease]:
        """Take those that are free or expired (term + 1) and renew those that are mine; answer all mine."""

    async def release(self, leases: Sequence[ShardLease]) -> None:
        """Expire at once those whose owner and term still match."""

    async def shard_leases(self, *prefixes: str) -> list[ShardLease]:
        """All unexpired leases whose names begin with one of these, by name."""


class Store(TaskStore, Edges, TaskQueries, QueueStore, ShardLeases, Protocol):
    """Everything of one database, opened and closed together."""

    @property
    def schedules(self) -> ScheduleStore:
        """Recurring tasks, in the same database."""

    async def open(self) -> None:
        """Connect, check the schema (SQLite: create it)."""

    async def close(self) -> None:
        """Finish what runs, then disconnect."""


NON_TERMINAL = (Status.CREATED, Status.PENDING, Status.READY, Status.RUNNING)
