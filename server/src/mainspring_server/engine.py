"""The only writer of task state.

Every method is a batch. The order is always the same: the store decides in one conditional write,
then hints go out (ready queue, wheel, listeners). A hint that fails is logged and left to the
sweeper, which finds the row through `next_check_at`; the caller's answer never depends on it.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Sequence
from typing import Protocol

from .batching import Batcher
from .clock import Clock
from .domain import lifecycle
from .domain.checks import Finding
from .domain.errors import Aborted, FailedPrecondition, NotFound
from .domain.graph import Fate, Outcomes, evaluate
from .domain.leases import (
    Beat,
    BeatAnswer,
    Failure,
    Grant,
    LeaseRef,
    ResultState,
    Snooze,
    Success,
    Want,
    WorkerResult,
)
from .domain.lifecycle import Change, Event
from .domain.task import (
    Inserted,
    InsertState,
    NewTask,
    OutcomeBy,
    ReadyAnswer,
    ReadyState,
    Rule,
    Status,
    Task,
    Waiting,
    Written,
)
from .effects import Effects
from .ids import text_of
from .queue.port import ReadyQueue
from .store.port import Edges, TaskStore
from .wheel.port import Wheel

log = logging.getLogger(__name__)

CAS_ROUNDS = 8
"""How often a decision is taken again when another writer was faster."""

Decide = Callable[[Task], Change | None]


class EngineStore(TaskStore, Edges, Protocol):
    """What the engine needs of a store."""


class Engine:
    """Submit, make_ready, claim, heartbeat, complete, cancel, expire."""

    def __init__(
        self, store: EngineStore, wheel: Wheel, queue: ReadyQueue, clock: Clock, batch: int = 1_000
    ) -> None:
        self.store = store
        self.wheel = wheel
        self.queue = queue
        self.clock = clock
        self.effects = Effects(wheel, queue, clock)
        self._random = random.Random()
        self._inserts: Batcher[NewTask, Inserted] = Batcher(self._insert, batch)
        self._graphs: Batcher[NewTask, Inserted] = Batcher(self.submit_graph, batch)
        self._results: Batcher[WorkerResult, ResultState] = Batcher(self._finish, 2 * batch)
        self._beats: Batcher[Beat, BeatAnswer] = Batcher(self._extend, 2 * batch)

    async def drain(self) -> None:
        """Return when every batch under way is stored."""
        await self._inserts.drain()
        await self._graphs.drain()
        await self._results.drain()
        await self._beats.drain()

    # --- Submit -------------------------------------------------------------------------------

    async def submit(self, tasks: list[NewTask]) -> list[Inserted | Exception]:
        """Store new tasks durably, then pass them on; calls that arrive together share a batch."""
        return await self._inserts.submit(tasks)

    async def _insert(self, tasks: list[NewTask]) -> list[Inserted]:
        answers = await self.store.insert(tasks)
        await self.effects.added(tasks, answers)
        return answers

    async def submit_waiting(self, tasks: list[NewTask]) -> list[Inserted | Exception]:
        """Store tasks that wait for existing ones, each on its own terms.

        Calls that arrive together share a transaction, apart from those without predecessors; one
        that is refused is found by halving, and harms no neighbour.
        """
        return await self._graphs.submit(tasks)

    async def submit_graph(self, tasks: Sequence[NewTask]) -> list[Inserted]:
        """Store tasks that depend on each other or on existing ones, all or nothing."""
        answers = await self.store.insert_graph(tasks)
        await self.effects.added(tasks, answers)
        created = [task.task_id for task in tasks if task.status is Status.CREATED]
        if created and answers[0].state is InsertState.INSERTED:
            try:
                await self.settle(await self.store.waiting(created))
            except Exception:
                log.warning("%d new tasks are settled by the sweeper", len(created), exc_info=True)
        return answers

    # --- Trigger ------------------------------------------------------------------------------

    async def make_ready(self, ids: Sequence[bytes], lead_ms: int = 0) -> list[ReadyAnswer]:
        """PENDING -> READY for those that are due, and publish them."""
        answers = await self.store.make_ready(ids, lead_ms)
        await self.effects.publish([answer.ref for answer in answers if answer.ref is not None])
        self.effects.tell(
            [i for i, a in zip(ids, answers, strict=True) if a.state is ReadyState.APPLIED]
        )
        return answers

    async def republish(self, rows: Sequence[Task]) -> None:
        """Publish READY rows again whose records are lost; the version stays."""
        refs = await self.store.republish([(row.task_id, row.version) for row in rows])
        await self.effects.publish([ref for ref in refs if ref is not None])

    # --- Lease --------------------------------------------------------------------------------

    async def claim(self, wants: Sequence[Want]) -> list[Grant]:
        """READY -> RUNNING for what fits the credit."""
        grants = await self.queue.claim(wants)
        self.effects.tell([grant.task_id for grant in grants])
        waited = [grant.task_id for grant in grants if grant.has_predecessors]
        return await self._with_handed(grants, waited) if waited else grants

    async def _with_handed(self, grants: list[Grant], waited: Sequence[bytes]) -> list[Grant]:
        """The grants with what predecessors hand over; without it such a task must not start."""
        try:
            handed = await self.store.predecessors(waited)
        except Exception:
            log.warning("outcomes of predecessors cannot be read: these go back", exc_info=True)
            mine = [grant for grant in grants if grant.has_predecessors]
            await self.hand_back([LeaseRef(grant.task_id, grant.token) for grant in mine])
            return [grant for grant in grants if not grant.has_predecessors]
        return [
            grant._replace(handed=tuple(handed.get(grant.task_id, ())))
            if grant.has_predecessors
            else grant
            for grant in grants
        ]

    async def heartbeat(self, beats: list[Beat]) -> list[BeatAnswer | Exception]:
        """Extend leases; calls that arrive together share a batch."""
        return await self._beats.submit(beats)

    async def _extend(self, beats: list[Beat]) -> list[BeatAnswer]:
        return await self.store.extend(beats)

    async def acknowledge(self, leases: Sequence[LeaseRef]) -> None:
        """Note that workers had started these, so that a later expiry counts as their attempt."""
        if leases:
            await self.store.acknowledge(leases)

    async def hand_back(self, leases: Sequence[LeaseRef]) -> set[LeaseRef]:
        """RUNNING -> READY for leases that were not started; answers those that were taken back."""
        asked = {LeaseRef(*lease) for lease in leases}

        def decide(task: Task) -> Change | None:
            ref = LeaseRef(task.task_id, task.version)
            if task.status is not Status.RUNNING or ref not in asked:
                return None
            return lifecycle.hand_back(task, self.clock.now())

        changes = await self._decide([ref.task_id for ref in asked], decide)
        return {LeaseRef(change.task_id, change.version) for change in changes}

    # --- Complete -----------------------------------------------------------------------------

    async def complete(self, results: list[WorkerResult]) -> list[ResultState | Exception]:
        """Store the results of attempts; calls that arrive together share a batch."""
        return await self._results.submit(results)

    async def _finish(self, results: list[WorkerResult]) -> list[ResultState]:
        states = [ResultState.APPLIED] * len(results)
        wins = [(n, r) for n, r in enumerate(results) if isinstance(r, Success)]
        others = [(n, r) for n, r in enumerate(results) if not isinstance(r, Success)]
        refused: list[int] = []
        if wins:
            applied = await self.store.succeed([result for _, result in wins])
            self.effects.tell_dependents((r.task_id for _, r in wins), applied)
            refused = [n for (n, _), done in zip(wins, applied, strict=True) if not done]
            self.effects.tell(
                [r.task_id for (_, r), done in zip(wins, applied, strict=True) if done]
            )
        if others:
            refused += await self._retry_or_fail(others)
        if refused:
            rows = await self.store.load([results[n].task_id for n in refused])
            for n, row in zip(refused, rows, strict=True):
                states[n] = _refusal(row, results[n])
        return states

    async def _retry_or_fail(self, results: Sequence[tuple[int, WorkerResult]]) -> list[int]:
        """Apply failures and snoozes; the positions of those that did not apply."""
        # By lease, not by task: a batch may hold a result of an older lease beside the real one.
        by_lease: dict[LeaseRef, tuple[int, WorkerResult]] = {}
        refused = []
        for n, result in results:
            ref = LeaseRef(result.task_id, result.token)
            if ref in by_lease:
                refused.append(n)  # a repeat within the batch: a duplicate of the first
            else:
                by_lease[ref] = (n, result)

        def decide(task: Task) -> Change | None:
            found = by_lease.get(LeaseRef(task.task_id, task.version))
            if task.status is not Status.RUNNING or found is None:
                return None
            result = found[1]
            now = self.clock.now()
            if isinstance(result, Failure):
                return lifecycle.fail(task, result, now, self._random.random())
            assert isinstance(result, Snooze)
            return lifecycle.snooze(task, result.token, result.delay_ms, now)

        changes = await self._decide([ref.task_id for ref in by_lease], decide)
        done = {LeaseRef(change.task_id, change.version) for change in changes}
        return refused + [n for ref, (n, _) in by_lease.items() if ref not in done]

    # --- Dependencies -------------------------------------------------------------------------

    def replay(self, ids: Sequence[bytes]) -> None:
        """These ended earlier and their dependents may not have been told."""
        self.effects.tell_dependents(ids, [Written.TELL] * len(ids))

    async def settle(self, rows: Sequence[Waiting]) -> None:
        """Release what may run now, cancel what never can; a row that changed meanwhile is left."""
        now = self.clock.now()
        changes, before = [], {}
        for row in rows:
            rule = row.task.rule or Rule.ALL_SUCCEEDED
            fate = evaluate(rule, Outcomes(*row[1:5]))
            late = rule is Rule.ALL_DONE_IN_TIME and row.task.due_at <= now
            if fate is not Fate.WAIT and not late:
                before[row.task.task_id] = row.task
                run = fate is Fate.RUN
                changes.append(
                    lifecycle.release(row.task, now)
                    if run
                    else lifecycle.cancel(row.task, _why_never(row), now)
                )
        if not changes:
            return
        done = await self.store.apply(changes)
        self.effects.tell_dependents((change.task_id for change in changes), done)
        won = [change for change, written in zip(changes, done, strict=True) if written]
        await self.effects.follow(won, before)

    # --- Cancel, reschedule, expire -----------------------------------------------------------

    async def cancel(
        self, ids: Sequence[bytes], reason: str, namespace: str | None = None
    ) -> set[bytes]:
        """Cancel what is not terminal; the ids that this call cancelled. Unknown ids are left out."""

        def decide(task: Task) -> Change | None:
            if task.terminal or (namespace is not None and task.namespace != namespace):
                return None
            return lifecycle.cancel(task, reason, self.clock.now())

        return {change.task_id for change in await self._decide(ids, decide)}

    async def reschedule(
        self, task_id: bytes, due_at: int, namespace: str, version: int | None = None
    ) -> Task:
        """Another due time for a PENDING or READY task, if it is at `version`; its row afterwards."""

        def decide(task: Task) -> Change | None:
            if task.namespace != namespace:
                return None
            if version is not None and task.version != version:
                raise Aborted(
                    "VERSION_MISMATCH",
                    f"task {text_of(task_id)} is at version {task.version}, not {version}: read it "
                    "again",
                    field="version",
                    metadata={"task_id": text_of(task_id), "version": str(task.version)},
                )
            if task.status not in (Status.PENDING, Status.READY):
                raise FailedPrecondition(
                    "STATUS_CONFLICT",
                    f"task {text_of(task_id)} is {task.status.name}; only a PENDING or READY task "
                    "can be rescheduled",
                    metadata={"task_id": text_of(task_id), "status": task.status.name},
                )
            return lifecycle.reschedule(task, due_at, self.clock.now())

        await self._decide([task_id], decide)
        row = (await self.store.load([task_id], namespace=namespace))[0]
        if row is None:
            raise NotFound(
                "TASK_NOT_FOUND",
                f"no task {text_of(task_id)}",
                metadata={"task_id": text_of(task_id)},
            )
        return row

    async def expire(self, found: Sequence[tuple[Task, Finding]]) -> int:
        """End leases and waits that are over; answers how many changed."""
        findings = {row.task_id: (row.version, finding) for row, finding in found}

        def decide(task: Task) -> Change | None:
            version, finding = findings[task.task_id]
            if task.version != version:
                return None
            return self._expiry(task, finding)

        changes = await self._decide([row.task_id for row, _ in found], decide, rounds=1)
        return len(changes)

    def _expiry(self, task: Task, finding: Finding) -> Change | None:
        now, fraction = self.clock.now(), self._random.random()
        if finding is Finding.LEASE_EXPIRED:
            return lifecycle.expire_lease(task, now, fraction)
        if finding is Finding.RUN_TIMEOUT:
            return lifecycle.time_out_run(task, now, fraction)
        if finding is Finding.QUEUE_TIMEOUT:
            return lifecycle.time_out_waiting(task, Event.QUEUE_TIMEOUT, now)
        if finding is Finding.TOTAL_TIMEOUT:
            return lifecycle.time_out_waiting(task, Event.TOTAL_TIMEOUT, now)
        return None

    async def _decide(
        self, ids: Sequence[bytes], decide: Decide, rounds: int = CAS_ROUNDS
    ) -> list[Change]:
        """Load, decide, write conditionally; again for those where another writer was faster."""
        applied: list[Change] = []
        left = sorted(set(ids))
        for _ in range(rounds):
            rows = [row for row in await self.store.load(left) if row is not None]
            before = {row.task_id: row for row in rows}
            changes = [change for row in rows if (change := decide(row)) is not None]
            if not changes:
                break
            done = await self.store.apply(changes)
            self.effects.tell_dependents((change.task_id for change in changes), done)
            won = [change for change, ok in zip(changes, done, strict=True) if ok]
            await self.effects.follow(won, before)
            applied += won
            left = [change.task_id for change, ok in zip(changes, done, strict=True) if not ok]
            if not left:
                break
        return applied


def _why_never(row: Waiting) -> str:
    rule = (row.task.rule or Rule.ALL_SUCCEEDED).name
    if row.culprit is None:
        return f"its rule {rule} can no longer hold"
    how = "failed" if row.failed else "was cancelled"
    return f"its rule {rule} can no longer hold: predecessor {text_of(row.culprit)} {how}"


_KINDS = {Failure: OutcomeBy.WORKER_FAILED, Snooze: OutcomeBy.WORKER_SNOOZED}


def _refusal(row: Task | None, result: WorkerResult) -> ResultState:
    """A repeat of the outcome that this token's holder itself gave is a duplicate, all else stale."""
    if row is None or row.outcome_token != result.token:
        return ResultState.STALE
    if isinstance(result, Success):
        same = row.outcome_by is OutcomeBy.WORKER_SUCCEEDED and row.outcome == result.outcome
        return ResultState.DUPLICATE if same else ResultState.STALE
    same = row.outcome_by is _KINDS[type(result)]
    return ResultState.DUPLICATE if same else ResultState.STALE
