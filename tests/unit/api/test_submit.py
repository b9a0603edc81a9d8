"""Reading a SubmitRequest: every field at its bound and one past it; any bytes have a defined answer."""

import hashlib
import json
from collections.abc import Callable

import pytest
from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import DecodeError
from google.protobuf.timestamp_pb2 import Timestamp
from hypothesis import given
from hypothesis import strategies as st

from mainspring.v1 import task_pb2, task_requests_pb2
from mainspring_server.admission.limits import Limits
from mainspring_server.api.submit import SubmitReader
from mainspring_server.domain.errors import MainspringError
from mainspring_server.domain.retry import RetryPolicy
from mainspring_server.domain.task import NewTask, PayloadKind, Status, Timeouts
from mainspring_server.ids import mint

NOW = 1_700_000_000_000
DAY_MS = 86_400_000
TEN_YEARS_MS = 3_653 * DAY_MS
ID = mint(NOW, 1)[0]
READER = SubmitReader(Limits())

Request = task_requests_pb2.SubmitRequest


def request(**fields: object) -> Request:
    message = Request(task_type="resize", **fields)  # type: ignore[arg-type]
    if not message.HasField("schedule"):
        message.schedule.immediate.SetInParent()
    return message


def read(message: Request) -> NewTask:
    return READER.read(message, "default", NOW, ID)


def refused(message: Request) -> tuple[str, str | None]:
    with pytest.raises(MainspringError) as caught:
        read(message)
    assert caught.value.message
    return caught.value.reason, caught.value.field


# --- Names, schedule --------------------------------------------------------------------------


def test_defaults() -> None:
    task = read(request())
    assert (task.task_type, task.queue, task.priority) == ("resize", "resize", 5)
    assert (task.status, task.due_at, task.created_at) == (Status.READY, NOW, NOW)
    assert task.payload.kind is PayloadKind.NONE
    assert task.retry == RetryPolicy()
    assert task.next_check_at is not None
    assert task.labels is task.idempotency is task.deadline_at is None


def test_the_type_is_required_and_a_name() -> None:
    assert refused(Request()) == ("FIELD_REQUIRED", "task_type")
    assert refused(Request(task_type="a b")) == ("FIELD_INVALID", "task_type")
    assert refused(Request(task_type="x" * 129)) == ("FIELD_INVALID", "task_type")


def test_queue() -> None:
    assert read(request(queue="images")).queue == "images"
    assert refused(request(queue="a/b")) == ("FIELD_INVALID", "queue")


def test_the_schedule_is_required() -> None:
    assert refused(Request(task_type="a")) == ("FIELD_REQUIRED", "schedule")
    empty = Request(task_type="a")
    empty.schedule.SetInParent()
    assert refused(empty) == ("FIELD_REQUIRED", "schedule")


def _delayed(seconds: int, nanos: int = 0) -> Request:
    message = Request(task_type="a")
    message.schedule.delay.CopyFrom(Duration(seconds=seconds, nanos=nanos))
    return message


@pytest.mark.parametrize(
    ("seconds", "nanos", "status", "wait"),
    [
        (0, 0, Status.READY, 0),
        (0, 1, Status.PENDING, 1),
        (1, 500_000_001, Status.PENDING, 1_501),
        (400 * 86_400, 0, Status.PENDING, 400 * DAY_MS),
        (TEN_YEARS_MS // 1_000, 0, Status.PENDING, TEN_YEARS_MS),
    ],
)
def test_delays(seconds: int, nanos: int, status: Status, wait: int) -> None:
    task = read(_delayed(seconds, nanos))
    assert (task.status, task.due_at) == (status, NOW + wait)


@pytest.mark.parametrize(
    ("seconds", "nanos"),
    [
        (-1, 0),
        (0, -1),
        (1, -1),
        (0, 1_000_000_000),
        (TEN_YEARS_MS // 1_000, 1),
        (315_576_000_000, 0),
        (2**63 - 1, 0),
        (-(2**63), 0),
    ],
)
def test_delays_out_of_range(seconds: int, nanos: int) -> None:
    assert refused(_delayed(seconds, nanos)) == ("DUE_TIME_OUT_OF_RANGE", "schedule.delay")


def _due(seconds: int, nanos: int = 0) -> Request:
    message = Request(task_type="a")
    message.schedule.due_time.CopyFrom(Timestamp(seconds=seconds, nanos=nanos))
    return message


@pytest.mark.parametrize(
    ("seconds", "nanos", "status", "due_at"),
    [
        (0, 0, Status.READY, NOW),
        (-62_135_596_800, 0, Status.READY, NOW),
        (NOW // 1_000, 0, Status.READY, NOW),
        (NOW // 1_000, 1, Status.PENDING, NOW + 1),
        ((NOW + TEN_YEARS_MS) // 1_000, 0, Status.PENDING, NOW + TEN_YEARS_MS),
    ],
)
def test_due_times(seconds: int, nanos: int, status: Status, due_at: int) -> None:
    task = read(_due(seconds, nanos))
    assert (task.status, task.due_at) == (status, due_at)


@pytest.mark.parametrize(
    ("seconds", "nanos"),
    [
        ((NOW + TEN_YEARS_MS) // 1_000, 1),
        (253_402_300_799, 0),
        (253_402_300_800, 0),
        (-62_135_596_801, 0),
        (0, -1),
        (0, 1_000_000_000),
        (2**63 - 1, 0),
    ],
)
def test_due_times_out_of_range(seconds: int, nanos: int) -> None:
    assert refused(_due(seconds, nanos)) == ("DUE_TIME_OUT_OF_RANGE", "schedule.due_time")


def test_what_belongs_elsewhere_is_refused() -> None:
    cron = Request(task_type="a")
    cron.schedule.cron.expression = "* * * * *"
    assert refused(cron) == ("FIELD_INVALID", "schedule")
    assert refused(request(local_ref="a")) == ("LOCAL_REF_INVALID", "local_ref")
    assert read(request(dependencies=task_pb2.Dependencies())).status is Status.READY


# --- Payload ----------------------------------------------------------------------------------


def test_payload_forms() -> None:
    as_json = read(request(payload=task_pb2.Payload(json='{"ä":1}'))).payload
    assert (as_json.kind, as_json.body) == (PayloadKind.JSON, '{"ä":1}'.encode())
    as_data = read(request(payload=task_pb2.Payload(data=b"\0\xff"))).payload
    assert (as_data.kind, as_data.body) == (PayloadKind.DATA, b"\0\xff")
    with_metadata = read(request(payload=task_pb2.Payload(metadata={"b": "2", "a": "1"}))).payload
    assert (with_metadata.kind, with_metadata.metadata) == (PayloadKind.NONE, '{"a":"1","b":"2"}')


@pytest.mark.parametrize("size", [1_024 * 1_024, 1_024 * 1_024 + 1])
@pytest.mark.parametrize("form", ["json", "data"])
def test_payload_at_the_limit_and_one_past_it(size: int, form: str) -> None:
    body = '"' + "x" * (size - 2) + '"'
    payload = (
        task_pb2.Payload(json=body) if form == "json" else task_pb2.Payload(data=body.encode())
    )
    message = request(payload=payload)
    if size == 1_024 * 1_024:
        assert len(read(message).payload.body) == size
    else:
        assert refused(message) == ("PAYLOAD_TOO_LARGE", f"payload.{form}")


def test_metadata_counts_as_payload() -> None:
    limit = Limits().payload_bytes
    full = request(payload=task_pb2.Payload(data=b"x" * (limit - 3), metadata={"k": "vv"}))
    assert len(read(full).payload.body) == limit - 3
    full.payload.metadata["k"] = "vvv"
    assert refused(full) == ("PAYLOAD_TOO_LARGE", "payload.data")


def test_bytes_count_not_characters() -> None:
    text = json.dumps("é" * (Limits().payload_bytes // 2), ensure_ascii=False)
    assert refused(request(payload=task_pb2.Payload(json=text))) == (
        "PAYLOAD_TOO_LARGE",
        "payload.json",
    )


JSON_TEXTS = (
    *("null", "0", '""', " [1, 2.5e3] ", '"\\u0000"', '"\\ud800"', '{"a":1,"a":2}', "1e999"),
    *("1" * 5_000, "[" * 150 + "]" * 150, '"\U0001f600"'),
)
OTHER_TEXTS = (
    *("", " ", "{", "nan", "NaN", "Infinity", "-Infinity", "[1,]", "'a'", "01", '{"a"}', "tru"),
    *("1 2", "\0", "{}\0", '"a\0b"', '"\n"', "\ufeff{}", "[" * 100_000),
)


@pytest.mark.parametrize("text", JSON_TEXTS, ids=range(len(JSON_TEXTS)))
def test_json(text: str) -> None:
    assert read(request(payload=task_pb2.Payload(json=text))).payload.body == text.encode()


@pytest.mark.parametrize("text", OTHER_TEXTS, ids=range(len(OTHER_TEXTS)))
def test_text_that_is_no_json(text: str) -> None:
    message = request(payload=task_pb2.Payload(json=text))
    assert refused(message) == ("FIELD_INVALID", "payload.json")


# --- Maps and texts ---------------------------------------------------------------------------


def _labels(entries: dict[str, str]) -> Request:
    return request(labels=entries)


def _metadata(entries: dict[str, str]) -> Request:
    return request(payload=task_pb2.Payload(metadata=entries))


@pytest.mark.parametrize(("make", "field"), [(_labels, "labels"), (_metadata, "payload.metadata")])
def test_maps_at_their_bounds(make: Callable[[dict[str, str]], Request], field: str) -> None:
    full = {f"{n:063}": "v" * 256 for n in range(64)}
    task = read(make(full))
    stored = task.labels if field == "labels" else task.payload.metadata
    assert stored is not None
    assert json.loads(stored) == full
    assert refused(make({str(n): "" for n in range(65)})) == ("FIELD_INVALID", field)
    assert refused(make({str(n): "" for n in range(10_000)})) == ("FIELD_INVALID", field)
    assert refused(make({"k" * 64: ""}))[0] == "FIELD_INVALID"
    assert refused(make({"": "v"})) == ("FIELD_INVALID", field)
    assert refused(make({"k": "v" * 257})) == ("FIELD_INVALID", f"{field}.k")


def test_labels_are_stored_in_one_order() -> None:
    assert read(_labels({"b": "2", "a": "ä"})).labels == '{"a":"ä","b":"2"}'


@pytest.mark.parametrize(
    ("message", "field"),
    [
        (Request(task_type="a\0"), "task_type"),
        (request(queue="a\0"), "queue"),
        (request(labels={"k": "\0"}), "labels.k"),
        (request(labels={"\0": "v"}), "labels"),
        (request(payload=task_pb2.Payload(metadata={"k": "\0"})), "payload.metadata.k"),
        (request(payload=task_pb2.Payload(metadata={"\0": "v"})), "payload.metadata"),
        (request(payload=task_pb2.Payload(json='"\0"')), "payload.json"),
        (request(idempotency_key="\0"), "idempotency_key"),
        (request(trace_context="\0"), "trace_context"),
    ],
)
def test_nul_in_every_text_field(message: Request, field: str) -> None:
    reason, named = refused(message)
    assert reason == "FIELD_INVALID"
    assert named == field


@pytest.mark.parametrize("field", ["idempotency_key", "trace_context"])
def test_texts_at_their_bounds(field: str) -> None:
    read(request(**{field: "é" * 256}))
    assert refused(request(**{field: "é" * 257})) == ("FIELD_INVALID", field)


# --- Policies ---------------------------------------------------------------------------------


@pytest.mark.parametrize("priority", [0, 9])
def test_priorities(priority: int) -> None:
    assert read(request(priority=priority)).priority == priority


@pytest.mark.parametrize("priority", [-1, 10, 2**31 - 1])
def test_priorities_out_of_range(priority: int) -> None:
    assert refused(request(priority=priority)) == ("FIELD_INVALID", "priority")


def _retry(**fields: object) -> Request:
    return request(retry=task_pb2.RetryPolicy(**fields))  # type: ignore[arg-type]


def test_retry_policies() -> None:
    most = _retry(
        max_attempts=1_000,
        initial_delay=Duration(seconds=86_400),
        multiplier=100.0,
        max_delay=Duration(seconds=30 * 86_400),
    )
    assert read(most).retry == RetryPolicy(1_000, DAY_MS, 100.0, 30 * DAY_MS)
    least = _retry(max_attempts=1, initial_delay=Duration(), multiplier=1.0, max_delay=Duration())
    assert read(least).retry == RetryPolicy(1, 0, 1.0, 0)
    assert read(_retry()).retry == RetryPolicy()
    assert read(_retry(initial_delay=Duration(seconds=3_600))).retry.max_delay_ms == 3_600_000


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"max_attempts": 0}, "max_attempts"),
        ({"max_attempts": 1_001}, "max_attempts"),
        ({"max_attempts": -1}, "max_attempts"),
        ({"multiplier": 0.99}, "multiplier"),
        ({"multiplier": 100.1}, "multiplier"),
        ({"multiplier": float("nan")}, "multiplier"),
        ({"multiplier": float("inf")}, "multiplier"),
        ({"initial_delay": Duration(seconds=-1)}, "initial_delay"),
        ({"initial_delay": Duration(seconds=86_400, nanos=1)}, "initial_delay"),
        ({"max_delay": Duration(seconds=30 * 86_400, nanos=1)}, "max_delay"),
        ({"max_delay": Duration(nanos=1)}, "max_delay"),
    ],
)
def test_retry_policies_out_of_range(fields: dict[str, object], field: str) -> None:
    assert refused(_retry(**fields)) == ("FIELD_INVALID", f"retry.{field}")


def test_timeouts() -> None:
    message = request(
        timeouts=task_pb2.Timeouts(
            queue_timeout=Duration(nanos=1),
            run_timeout=Duration(seconds=TEN_YEARS_MS // 1_000),
            total_timeout=Duration(seconds=60),
        )
    )
    message.schedule.delay.FromSeconds(10)
    task = read(message)
    assert task.timeouts == Timeouts(1, TEN_YEARS_MS, 60_000)
    assert task.deadline_at == NOW + 70_000


@pytest.mark.parametrize("name", ["queue_timeout", "run_timeout", "total_timeout"])
@pytest.mark.parametrize(
    "span",
    [Duration(), Duration(seconds=-1), Duration(seconds=TEN_YEARS_MS // 1_000, nanos=1)],
    ids=["zero", "negative", "too long"],
)
def test_timeouts_out_of_range(name: str, span: Duration) -> None:
    message = request(timeouts=task_pb2.Timeouts(**{name: span}))
    assert refused(message) == ("FIELD_INVALID", f"timeouts.{name}")


# --- Idempotency ------------------------------------------------------------------------------


def test_the_key_is_of_namespace_and_type_and_compares_the_request_as_sent() -> None:
    one = request(idempotency_key="k", labels={"b": "2", "a": "1"})
    two = Request.FromString(one.SerializeToString())
    first, second = read(one).idempotency, read(two).idempotency
    assert first == second
    assert first is not None
    assert first.digest == hashlib.sha256(b"default\0resize\0k").digest()[:16]
    assert first.expires_at == NOW + DAY_MS
    two.priority = 5
    changed = read(two).idempotency
    assert changed is not None
    assert changed.digest == first.digest
    assert changed.request_hash != first.request_hash
    two.task_type = "other"
    other = read(two).idempotency
    assert other is not None
    assert other.digest != first.digest


# --- Anything ---------------------------------------------------------------------------------

VALID = request(
    payload=task_pb2.Payload(json='{"a":[1,2]}', metadata={"k": "v"}),
    idempotency_key="key",
    priority=3,
    queue="images",
    retry=task_pb2.RetryPolicy(max_attempts=3),
    timeouts=task_pb2.Timeouts(run_timeout=Duration(seconds=5)),
    labels={"team": "core"},
).SerializeToString()


@given(
    st.binary(max_size=200)
    | st.tuples(st.integers(0, len(VALID) - 1), st.binary(min_size=1, max_size=8)).map(
        lambda change: VALID[: change[0]] + change[1] + VALID[change[0] + len(change[1]) :]
    )
)
def test_any_bytes_are_a_task_or_a_defined_error(raw: bytes) -> None:
    try:
        message = Request.FromString(raw)
    except DecodeError:
        return
    try:
        task = read(message)
    except MainspringError:
        return
    assert task.status in (Status.READY, Status.PENDING)
    assert NOW <= task.due_at <= NOW + TEN_YEARS_MS
