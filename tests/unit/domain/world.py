"""A store, trigger, workers and resolver in a few lines, to live through a schedule on virtual time."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable
from dataclasses import replace

from mainspring_server.domain import recurrence
from mainspring_server.domain.calendar import CalendarSpec
from mainspring_server.domain.graph import Fate, Outcomes, evaluate
from mainspring_server.domain.schedule import (
    LedgerRow,
    Outcome,
    Plan,
    Policy,
    Schedule,
    Source,
    TemplateTask,
    View,
)
from mainspring_server.domain.task import NewTask, Rule, Status, Task

START = 1_767_225_600_000  # 2026-01-01T00:00:00Z, a Thursday
MINUTE = 60_000
HOUR = 60 * MINUTE
ID = bytes(15) + b"\x07"


class World:
    """One schedule and everything around it; each task runs for `runs_for` ms and succeeds."""

    def __init__(
        self,
        expression: str,
        policy: Policy | None = None,
        *,
        runs_for: int = 1_000,
        **spec: object,
    ) -> None:
        self.now = START
        self.runs_for = runs_for
        self.fails = False
        self.materialises = True
        calendar = CalendarSpec(
            expression,
            schedule_id=ID,
            start_at=START,
            anchor_at=START,
            exact=True,
            **spec,  # type: ignore[arg-type]
        )
        self.schedule = Schedule(
            ID,
            "default",
            calendar,
            policy or Policy(),
            (TemplateTask("t", "t", 5),),
            START,
            START,
            START,
        )
        self.ledger: dict[tuple[int, Source, int], LedgerRow] = {}
        self.tasks: dict[bytes, Task] = {}
        self.waits: dict[bytes, tuple[bytes, ...]] = {}
        self.starts: list[tuple[int, bytes]] = []
        self._ids = itertools.count(1)
        self._failed = False

    def mint(self, count: int) -> list[bytes]:
        return [next(self._ids).to_bytes(16, "big") for _ in range(count)]

    def view(self) -> View:
        opened = tuple(
            (row, self.tasks.get(row.task_id) if row.task_id else None)
            for row in self.ledger.values()
            if row.outcome is Outcome.OPEN
        )
        live = tuple(task for task in self.tasks.values() if not task.terminal)
        failed, self._failed = self._failed, False
        return View(replace(self.schedule), self.now, opened, live, failed)

    def do(self, operation: Callable[..., Plan], *args: object) -> Plan:
        """One visit, applied as a store would."""
        plan = operation(self.view(), self.mint, *args)
        assert plan.schedule is not None
        self.schedule = plan.schedule
        for row in plan.forget:
            assert self.ledger[self.key(row)].outcome is Outcome.OPEN
            del self.ledger[self.key(row)]
        for row in plan.record:
            before = self.ledger.get(self.key(row))
            assert before is None or before.outcome is Outcome.OPEN, "one outcome per nominal time"
            if row.outcome is not Outcome.OPEN:
                assert row.nominal_at <= self.now, "no outcome before its nominal time"
            self.ledger[self.key(row)] = row
        for change in plan.changes:
            task = self.tasks[change.task_id]
            assert task.version == change.version
            task.status, task.version, task.due_at = change.status, task.version + 1, change.due_at
            task.completed_at = change.completed_at
        for new in plan.insert:
            self.insert(new)
        return plan

    @staticmethod
    def key(row: LedgerRow) -> tuple[int, Source, int]:
        return row.nominal_at, row.source, row.sequence

    def insert(self, new: NewTask) -> None:
        self.tasks[new.task_id] = Task(
            task_id=new.task_id,
            namespace=new.namespace,
            task_type=new.task_type,
            queue=new.queue,
            priority=new.priority,
            status=new.status,
            version=1,
            due_at=new.due_at,
            created_at=new.created_at,
            retry=new.retry,
            timeouts=new.timeouts,
            schedule_id=new.schedule_id,
            nominal_at=new.nominal_at,
            rule=new.waits.rule if new.waits else None,
            graph_id=new.graph_id,
            local_ref=new.local_ref,
        )
        if new.waits:
            self.waits[new.task_id] = new.waits.predecessors

    def step(self) -> None:
        """Everything that is due at this moment."""
        check = self.schedule.next_check_at
        while self.materialises and check is not None and check <= self.now:
            self.do(recurrence.visit)
            check = self.schedule.next_check_at
        for task in list(self.tasks.values()):
            if task.status is Status.PENDING and task.due_at <= self.now:
                task.status = Status.READY
            if task.status is Status.READY:
                task.status, task.started_at, task.version = (
                    Status.RUNNING,
                    self.now,
                    task.version + 1,
                )
                self.starts.append((self.now, task.task_id))
            elif (
                task.status is Status.RUNNING and (task.started_at or 0) + self.runs_for <= self.now
            ):
                task.status = Status.FAILED if self.fails else Status.SUCCEEDED
                self._failed = self._failed or self.fails
                task.completed_at, task.version = self.now, task.version + 1
                self.resolve()

    def resolve(self) -> None:
        for task in self.tasks.values():
            if task.status is Status.CREATED and task.task_id in self.waits:
                statuses = [self.tasks[i].status for i in self.waits[task.task_id]]
                assert task.rule is not None
                late = task.rule is Rule.ALL_DONE_IN_TIME and task.due_at <= self.now
                if not late and evaluate(task.rule, Outcomes.of(statuses)) is Fate.RUN:
                    task.status, task.version = Status.PENDING, task.version + 1
                    task.due_at = max(task.due_at, self.now)

    def live_for(self, ms: int, step: int = 1_000) -> World:
        until = self.now + ms
        while self.now < until:
            self.now += min(step, until - self.now)
            self.step()
        return self

    def counts(self, source: Source = Source.CRON) -> dict[str, int]:
        rows = [row for row in self.ledger.values() if row.source is source]
        return dict(Counter(row.outcome.name for row in rows if row.outcome is not Outcome.OPEN))

    def nominals(self) -> list[int]:
        """Nominal times with an outcome, as minutes after the start."""
        return sorted(
            (row.nominal_at - START) // MINUTE
            for row in self.ledger.values()
            if row.outcome is not Outcome.OPEN and row.source is Source.CRON
        )

    def most_at_once(self) -> int:
        """The largest number of attempts that ran side by side."""
        edges = sorted((moment, 1) for moment, _ in self.starts)
        edges += [(moment + self.runs_for, -1) for moment, _ in self.starts]
        most = running = 0
        for _, change in sorted(edges):
            running += change
            most = max(most, running)
        return most
