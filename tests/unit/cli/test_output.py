import json

import pytest

from mainspring.v1.admin_service_pb2 import ListQueuesResponse, Queue
from mainspring.v1.task_pb2 import Task
from mainspring_server.cli import output

COLUMNS = ("Task", "Last error")


def test_plain_table_cuts_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    output.print_table(COLUMNS, [("a", ""), ("b", "x" * 300)], empty="none")
    lines = capsys.readouterr().out.splitlines()
    assert lines == ["TASK  LAST_ERROR", "a     -", f"b     {'x' * 300}"]


def test_plain_table_keeps_a_row_on_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    output.print_table(COLUMNS, [("a", "first\nsecond")], empty="none")
    assert capsys.readouterr().out.splitlines()[1] == "a     first second"


def test_empty_table_leaves_standard_output_empty(capsys: pytest.CaptureFixture[str]) -> None:
    output.print_table(COLUMNS, [], empty="No task matches.")
    found = capsys.readouterr()
    assert (found.out, found.err) == ("", "No task matches.\n")


def test_control_characters_do_not_reach_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    output.print_fields({"error": "\x1b[2Jgone\r\x00"})
    assert capsys.readouterr().out == "error  \\x1b[2Jgone\\r\\x00\n"


def test_fields_leave_out_what_is_empty(capsys: pytest.CaptureFixture[str]) -> None:
    output.print_fields({"task": "1", "reason": "", "outcome": "a\nb"})
    assert capsys.readouterr().out == "task     1\noutcome  a\n         b\n"


def test_documents_have_the_contract_s_names_and_numbers() -> None:
    task = Task(task_id="1", version=7, attempts=2, outcome=b"{}")
    document = output.message_document(task)
    assert document["version"] == 7
    assert document["attempts"] == 2
    assert document["outcome"] == "e30="
    # Also what is empty is there: a script need not ask first.
    assert document["last_error"] == ""
    assert document["status"] == "TASK_STATUS_UNSPECIFIED"


def test_documents_have_numbers_at_every_depth() -> None:
    reply = ListQueuesResponse(queues=[Queue(queue="a", ready=101)])
    document = output.message_document(reply)
    assert document["queues"][0]["ready"] == 101
    json.dumps(document)


def test_json_in_a_pipe_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    output.print_json({"a": [1, 2]})
    assert capsys.readouterr().out == '{"a": [1, 2]}\n'
