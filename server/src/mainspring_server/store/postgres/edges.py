"""Dependencies: graphs in, edges marked and counted, outcomes handed on.

Three kinds of transactions meet here, under READ COMMITTED, and each locks before it looks:

- A submit locks the predecessors, in id order, by setting `has_dependents` (also where it is set),
  and reads their status from the locked rows. A predecessor that ends meanwhile either committed
  before, and its status goes into the edge; or waits for the lock, is evaluated again on the new
  row (SUCCEED and APPLY test `has_dependents` there) and so tells the new dependent.
- A resolver locks the dependents, in id order, and only then marks and counts in statements of
  their own, whose snapshots see what earlier holders of those locks committed. Of two predecessors
  that end together one resolver comes second and sees both outcomes.
- `told` clears the predecessors' checks in a transaction of its own: dependents first and then
  predecessors in one would meet a submit's order head-on.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NoReturn

from ...domain.errors import AlreadyExists
from ...domain.task import (
    HANDED_BYTES,
    HANDED_OVERHEAD,
    TERMINAL,
    Edge,
    Handed,
    Inserted,
    InsertState,
    NewTask,
    Status,
    Waiting,
)
from ..schedules import refused_predecessor
from .insert import HOLDERS, PLAIN, columns_of, inserted, payloads_of
from .pool import Door, Session
from .rows import AT, NOW, TASK_COLUMNS, task_of

if TYPE_CHECKING:
    from .pool import Record

# Keys are taken in digest order; one that is taken is locked all the same.
_TAKE = f"""WITH {NOW}
INSERT INTO idempotency_keys AS k (digest, task_id, expires_at, request_hash)
SELECT * FROM unnest($2::uuid[], $3::uuid[], $4::bigint[], $5::bytea[])
    AS x(digest, task_id, expires_at, request_hash) ORDER BY digest
ON CONFLICT (digest) DO UPDATE SET task_id = excluded.task_id,
    expires_at = excluded.expires_at, request_hash = excluded.request_hash
WHERE k.expires_at <= {AT} OR k.digest = ANY($6::uuid[])
RETURNING k.digest"""

LOCK_PREDECESSORS = """UPDATE tasks t SET has_dependents = true
FROM unnest($1::uuid[]) AS u(task_id)
WHERE t.task_id = u.task_id AND t.namespace = ANY($2::text[])
RETURNING t.task_id, t.namespace, t.status"""

_ADD_EDGES = """INSERT INTO task_dependencies (downstream, predecessor, outcome)
SELECT * FROM unnest($1::uuid[], $2::uuid[], $3::smallint[]) AS u(downstream, predecessor, outcome)
ON CONFLICT (downstream, predecessor) DO NOTHING"""

_SCHEDULE = "SELECT namespace FROM schedules WHERE schedule_id = $1"

# A page of each predecessor's dependents is enough to know the first page of them all.
FIND_WAITING = """SELECT DISTINCT f.task_id FROM unnest($1::uuid[]) AS u(predecessor), LATERAL (
    SELECT t.task_id FROM task_dependencies d JOIN tasks t ON t.task_id = d.downstream
    WHERE d.predecessor = u.predecessor AND d.downstream > $2 AND t.status = 1
    ORDER BY d.downstream LIMIT $3) f
ORDER BY f.task_id LIMIT $3"""

LOCK_WAITING = f"""SELECT {TASK_COLUMNS}
FROM unnest($1::uuid[]) AS u(task_id) JOIN tasks t ON t.task_id = u.task_id
WHERE t.status = 1 FOR UPDATE OF t"""

# From the predecessors' side, between the first and the last of the locked dependents; as an index
# condition the list would be probed once for each predecessor.
MARK_FROM = """UPDATE task_dependencies d SET outcome = t.status
FROM unnest($1::uuid[]) AS u(predecessor) JOIN tasks t ON t.task_id = u.predecessor
WHERE t.status >= 5 AND d.predecessor = u.predecessor
    AND d.downstream >= $2 AND d.downstream <= $3 AND (d.downstream = ANY($4::uuid[])) IS TRUE
    AND d.outcome IS NULL"""

MARK_ALL = """UPDATE task_dependencies d SET outcome = t.status
FROM unnest($1::uuid[]) AS u(downstream), tasks t
WHERE d.downstream = u.downstream AND d.outcome IS NULL
    AND t.task_id = d.predecessor AND t.status >= 5"""

COUNT = """SELECT u.downstream, c.* FROM unnest($1::uuid[]) AS u(downstream), LATERAL (
    SELECT count(*) FILTER (WHERE d.outcome IS NULL), count(*) FILTER (WHERE d.outcome = 5),
        count(*) FILTER (WHERE d.outcome = 6), count(*) FILTER (WHERE d.outcome = 7),
        coalesce(min(d.predecessor::text) FILTER (WHERE d.outcome = 6),
            min(d.predecessor::text) FILTER (WHERE d.outcome = 7))::uuid
    FROM task_dependencies d WHERE d.downstream = u.downstream HAVING count(*) > 0) c"""

TOLD = """UPDATE tasks t SET next_check_at = NULL
FROM unnest($1::uuid[]) AS u(task_id)
WHERE t.task_id = u.task_id AND t.status >= 5 AND t.next_check_at IS NOT NULL"""

# The window follows the primary key; over all dependents at once it would walk the whole of it.
HANDED = f"""SELECT u.downstream, h.predecessor, h.local_ref, h.status, h.outcome
FROM unnest($1::uuid[]) AS u(downstream), LATERAL (
    SELECT d.predecessor, t.local_ref, coalesce(t.status, d.outcome) AS status, t.outcome,
        sum({HANDED_OVERHEAD} + coalesce(octet_length(t.outcome), 0))
            OVER (ORDER BY d.predecessor) AS size
    FROM task_dependencies d LEFT JOIN tasks t ON t.task_id = d.predecessor
    WHERE d.downstream = u.downstream AND coalesce(t.status, d.outcome) >= 5) h
WHERE h.size <= {HANDED_BYTES}"""

EDGES = """SELECT d.downstream, d.predecessor, d.outcome
FROM unnest($1::uuid[]) AS u(downstream) JOIN task_dependencies d ON d.downstream = u.downstream
ORDER BY d.downstream, d.predecessor"""

DEPENDENTS = """SELECT d.downstream, d.predecessor, d.outcome
FROM unnest($1::uuid[]) AS u(predecessor) JOIN task_dependencies d ON d.predecessor = u.predecessor
ORDER BY d.downstream, d.predecessor LIMIT $2"""


async def insert_graph(door: Door, clock: int | None, tasks: Sequence[NewTask]) -> list[Inserted]:
    """The store's `insert_graph`, one transaction: keys, predecessors, rows, edges."""
    if not tasks:
        return []

    async def work(session: Session) -> list[Inserted]:
        existing = await take_keys(session, clock, tasks)
        if existing is not None:
            return existing
        now, _ = await store_graph(session, clock, tasks)
        return [inserted(task, now) for task in tasks]

    return await door.run(work)


async def store_graph(
    session: Session, clock: int | None, tasks: Sequence[NewTask]
) -> tuple[int, list[bytes]]:
    """Insert rows and edges; answers the clock, and the tasks of which a predecessor has ended."""
    own = {task.task_id for task in tasks}
    edges = [
        (task.task_id, predecessor)
        for task in tasks
        if task.waits
        for predecessor in dict.fromkeys(task.waits.predecessors)
    ]
    parents = {predecessor for _, predecessor in edges if predecessor in own}
    outcomes = await _lock_predecessors(session, tasks, own)
    rows = await session.rows(PLAIN, clock, *columns_of(tasks, parents), *payloads_of(tasks))
    if edges:
        downstream, predecessor = zip(*edges, strict=True)
        found = [outcomes.get(task_id) for task_id in predecessor]
        await session.rows(_ADD_EDGES, downstream, predecessor, found)
    ended = {task for task, predecessor in edges if outcomes.get(predecessor) is not None}
    return rows[0][0], sorted(ended)


async def take_keys(
    session: Session, clock: int | None, tasks: Sequence[NewTask]
) -> list[Inserted] | None:
    """Take the keys; answers the tasks of an earlier call, None where the keys are free."""
    keys = sorted((t.idempotency, t.task_id) for t in tasks if t.idempotency is not None)
    if not keys:
        return None
    digests = [key.digest for key, _ in keys]
    if len(set(digests)) < len(digests):
        _refuse_keys()
    columns = (
        digests,
        [task_id for _, task_id in keys],
        [key.expires_at for key, _ in keys],
        [key.request_hash for key, _ in keys],
    )
    won = {row[0] for row in await session.rows(_TAKE, clock, *columns, [])}
    lost = [digest for digest in digests if digest not in won]
    if not lost:
        return None
    holders = {row[0]: row[1:] for row in await session.rows(HOLDERS, lost)}
    if all(holders[digest][2] is None for digest in lost):  # their tasks are gone
        await session.rows(_TAKE, clock, *columns, lost)
        return None
    found = []
    for task in tasks:
        key = task.idempotency
        holder = holders.get(key.digest) if key else None
        if key is None or holder is None or holder[2] is None or holder[0] != key.request_hash:
            _refuse_keys()
        found.append(Inserted(InsertState.EXISTING, holder[1], Status(holder[2]), holder[3]))
    return found


def _refuse_keys() -> NoReturn:
    raise AlreadyExists(
        "IDEMPOTENCY_KEY_REUSED",
        "an idempotency key belongs to another request; send all of it as before, or with new keys",
    )


async def _lock_predecessors(
    session: Session, tasks: Sequence[NewTask], own: set[bytes]
) -> dict[bytes, int | None]:
    """Existing predecessors locked and marked as such; their outcome, None while they live."""
    wanted: dict[bytes, set[str]] = {}
    for task in tasks:
        for predecessor in task.waits.predecessors if task.waits else ():
            if predecessor not in own:
                wanted.setdefault(predecessor, set()).add(task.namespace)
    if not wanted:
        return {}
    namespaces = sorted({task.namespace for task in tasks})
    rows = await session.rows(LOCK_PREDECESSORS, sorted(wanted), namespaces)
    found = {row[0]: (row[1], row[2]) for row in rows}
    for predecessor in sorted(wanted):
        if predecessor not in found or wanted[predecessor] != {found[predecessor][0]}:
            schedules = await session.rows(_SCHEDULE, predecessor)
            known = any(wanted[predecessor] == {namespace} for (namespace,) in schedules)
            raise refused_predecessor(predecessor, schedule=known)
    return {
        task_id: status if Status(status) in TERMINAL else None
        for task_id, (_, status) in found.items()
    }


async def resolve(
    door: Door, predecessors: Sequence[bytes], after: bytes | None, limit: int
) -> list[Waiting]:
    """The store's `resolve`."""
    parents = sorted(set(predecessors))

    async def work(session: Session) -> list[Waiting]:
        rows: list[Record] = []
        start = after or bytes(16)
        while len(rows) < limit:
            # Who is released between the two statements is missing from the second: go on behind.
            room = limit - len(rows)
            page = [row[0] for row in await session.rows(FIND_WAITING, parents, start, room)]
            if page:
                rows += await session.rows(LOCK_WAITING, page)
                start = page[-1]
            if len(page) < room:
                break
        if not rows:
            return []
        ids = [row[0] for row in rows]
        await session.rows(MARK_FROM, parents, ids[0], ids[-1], ids)
        return await _counted(session, rows)

    return await door.run(work) if parents and limit > 0 else []


async def waiting(door: Door, ids: Sequence[bytes]) -> list[Waiting]:
    """The store's `waiting`."""

    async def work(session: Session) -> list[Waiting]:
        rows = await session.rows(LOCK_WAITING, sorted(set(ids)))
        if not rows:
            return []
        await session.rows(MARK_ALL, [row[0] for row in rows])
        return await _counted(session, rows)

    return await door.run(work) if ids else []


async def _counted(session: Session, rows: Sequence[Record]) -> list[Waiting]:
    counts = {row[0]: row[1:] for row in await session.rows(COUNT, [row[0] for row in rows])}
    return [Waiting(task_of(row), *counts[row[0]]) for row in rows if row[0] in counts]


async def told(door: Door, ids: Sequence[bytes]) -> None:
    """The store's `told`."""
    if ids:
        await door.rows(TOLD, sorted(set(ids)))


async def predecessors(door: Door, ids: Sequence[bytes]) -> dict[bytes, list[Handed]]:
    """The store's `predecessors`."""
    if not ids:
        return {}
    found: dict[bytes, list[Handed]] = {}
    for downstream, predecessor, local_ref, status, outcome in await door.rows(
        HANDED, sorted(set(ids))
    ):
        handed = Handed(predecessor, local_ref, Status(status), outcome)
        found.setdefault(downstream, []).append(handed)
    return found


async def edges(door: Door, downstream: Sequence[bytes]) -> list[Edge]:
    """The store's `edges`."""
    return _edges(await door.rows(EDGES, sorted(set(downstream))))


async def dependents(door: Door, of: Sequence[bytes], limit: int) -> list[Edge]:
    """The store's `dependents`."""
    return _edges(await door.rows(DEPENDENTS, sorted(set(of)), limit))


def _edges(rows: Sequence[Record]) -> list[Edge]:
    return [Edge(row[0], row[1], None if row[2] is None else Status(row[2])) for row in rows]
