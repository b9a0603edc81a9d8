"""The code on the pages runs: what is marked python, and the commands of README and tutorial."""

import json
import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import grpc
import pytest
from google.protobuf import json_format, message_factory, symbol_database
from typer.main import get_command

import mainspring_server.api.server  # noqa: F401 - registers every service by its name
from mainspring.v1 import admin_service_pb2, admin_service_pb2_grpc
from mainspring_server.cli.app import app
from mainspring_server.testing import LocalServer

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
BIN = Path(sys.executable).parent
GUIDES = sorted(DOCS.glob("how-to/*.md"))
FENCE = re.compile(
    r"^```(?P<kind>\w+)(?: title=\"(?P<title>[^\"]+)\")?\n(?P<code>.*?)^```",
    re.MULTILINE | re.DOTALL,
)

pytestmark = pytest.mark.timeout(120)


class Block(NamedTuple):
    """Code on a page."""

    kind: str
    title: str | None
    code: str

    @property
    def commands(self) -> list[str]:
        return [line[2:].strip() for line in self.code.splitlines() if line.startswith("$ ")]


def blocks(page: Path) -> list[Block]:
    return [Block(*match.groups()) for match in FENCE.finditer(page.read_text("utf-8"))]


def name_of(page: Path) -> str:
    return page.name


# --- How-to: each page is one program -----------------------------------------------------------


@pytest.mark.parametrize("page", GUIDES, ids=name_of)
def test_the_code_of_a_guide_runs(page: Path) -> None:
    scope: dict[str, Any] = {"__name__": page.stem.replace("-", "_")}
    module = type(sys)(scope["__name__"])
    module.__dict__.update(scope)
    sys.modules[module.__name__] = module  # where type hints are looked up
    try:
        for block in blocks(page):
            if block.kind == "python":
                exec(compile(block.code, str(page), "exec"), module.__dict__)
        for name, value in list(module.__dict__.items()):
            if name.startswith("test_"):
                value()
    finally:
        del sys.modules[module.__name__]


# --- README and tutorial: on a real server ------------------------------------------------------


class Shell:
    """A terminal: what lasts runs in the background, the rest until it is done."""

    def __init__(self, folder: Path, address: str) -> None:
        self.folder = folder
        self.lasting: list[subprocess.Popen[str]] = []
        path = f"{BIN}{os.pathsep}{os.environ['PATH']}"
        self.environment = os.environ | {"PATH": path, "MAINSPRING_SERVER": address}

    def write(self, block: Block) -> None:
        assert block.title is not None
        (self.folder / block.title).write_text(block.code, "utf-8")

    def start(self, command: str) -> None:
        process = subprocess.Popen(
            [*shlex.split(command), "--stop-with", str(os.getpid())],
            cwd=self.folder,
            env=self.environment,
            text=True,
        )
        self.lasting.append(process)

    def run(self, command: str) -> tuple[int, str]:
        done = subprocess.run(
            shlex.split(command),
            cwd=self.folder,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        return done.returncode, done.stdout + done.stderr

    def close(self) -> None:
        for process in self.lasting:
            process.send_signal(signal.SIGTERM)
        for process in self.lasting:
            process.wait(30)


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    data = tmp_path_factory.mktemp("data")
    command = f"{BIN / 'mainspring'} dev --listen 127.0.0.1:0 --data {data} --json"
    process = subprocess.Popen(
        [*shlex.split(command), "--stop-with", str(os.getpid())], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    yield json.loads(process.stdout.readline())["address"]
    process.send_signal(signal.SIGTERM)
    process.communicate()


@pytest.fixture
def shell(tmp_path: Path, address: str) -> Iterator[Shell]:
    terminal = Shell(tmp_path, address)
    yield terminal
    terminal.close()


def test_readme_example(shell: Shell) -> None:
    (program,) = [block for block in blocks(ROOT / "README.md") if block.kind == "python"]
    assert len(program.code.splitlines()) <= 25
    shell.write(program)
    code, output = shell.run(f"python {program.title}")
    assert code == 0, output
    assert output.splitlines() == ["SUCCEEDED 1 Hello, Ada!", "SUCCEEDED 2 Hello, Grace!"]


TUTORIAL = {
    'mainspring submit greet \'{"name": "Ada"}\' --wait': (0, "Good day, Ada."),
    'mainspring submit greet \'{"name": "Grace", "polite": false}\' --delay 1s --wait': (
        0,
        "Hi Grace!",
    ),
    "mainspring list --filter 'task_type=greet'": (0, "SUCCEEDED"),
    'mainspring submit greet \'{"name": ""}\' --retry-max 2 --retry-delay 200ms --wait': (
        1,
        "nobody to greet",
    ),
    "python ask.py": (0, "SUCCEEDED Good day, Grace."),
}
"""Each command that ends, with its exit code and a part of what it says."""


def test_tutorial(shell: Shell) -> None:
    seen = []
    for block in blocks(DOCS / "tutorial/first-task.md"):
        if block.title is not None:
            shell.write(block)
        for command in block.commands:
            if command.startswith(("make ", "export ")) or command == "mainspring dev":
                continue  # tried elsewhere, or what the fixtures do
            if command.startswith("mainspring worker"):
                shell.start(command)
                continue
            expected, part = TUTORIAL[command]
            code, output = shell.run(command)
            assert (code, part in output) == (expected, True), f"{command}\n{output}"
            seen.append(command)
    assert seen == list(TUTORIAL)


def test_the_commands_of_the_pages_exist() -> None:
    commands = get_command(app).commands  # type: ignore[attr-defined]
    for page in (ROOT / "README.md", *sorted(DOCS.rglob("*.md"))):
        called = {c for block in blocks(page) for c in block.commands}
        called |= set(re.findall(r"`(mainspring [a-z][^`]*)`", page.read_text("utf-8")))
        for line in called:
            words = line.split()
            if words[0] != "mainspring" or words[1].startswith("COMMAND"):
                continue
            assert words[1] in commands, f"{page.name}: {line}"
            command = commands[words[1]]
            if len(words) > 2:  # one of a group
                command = getattr(command, "commands", {}).get(words[2], command)
            known = {option for p in command.params for option in p.opts}
            options = {word.partition("=")[0] for word in words if word.startswith("--")}
            assert options - known - {"--server", "--help"} == set(), f"{page.name}: {line}"


# --- grpcurl: what it would send, sent --------------------------------------------------------


CALL = re.compile(
    r"grpcurl -plaintext (?:-d '(?P<body>[^']*)' )?\S+ (?P<service>[\w.]+)/(?P<method>\w+)$"
)


def call(channel: grpc.Channel, match: re.Match[str], values: dict[str, str]) -> Any:
    pool = symbol_database.Default().pool
    method = pool.FindServiceByName(match["service"]).methods_by_name[match["method"]]
    body = match["body"] or "{}"
    for name, value in values.items():
        body = body.replace(name, value)
    request = message_factory.GetMessageClass(method.input_type)()
    json_format.Parse(body, request)
    invoke = channel.unary_unary(
        f"/{match['service']}/{match['method']}",
        request_serializer=type(request).SerializeToString,
        response_deserializer=message_factory.GetMessageClass(method.output_type).FromString,
    )
    return invoke(request, timeout=10)


@pytest.mark.parametrize("page", [ROOT / "README.md", DOCS / "how-to/use-grpcurl.md"], ids=name_of)
def test_grpcurl_calls(page: Path) -> None:
    lines = [c for b in blocks(page) for c in b.commands if c.startswith("grpcurl ")]
    calls = [match for line in lines if (match := CALL.match(line))]
    rest = [line for line in lines if not CALL.match(line)]
    assert all(re.search(r" (list|describe \S+)$", line) for line in rest), rest
    values: dict[str, str] = {}
    with LocalServer() as server, grpc.insecure_channel(server.address) as channel:
        for match in calls:
            answer = call(channel, match, values)
            if match["method"] == "Submit":
                values["TASK_ID"] = answer.task_id
            elif match["method"] == "Poll":
                values["TASK_ID"] = answer.leases[0].task_id
                values["LEASE_TOKEN"] = str(answer.leases[0].lease_token)
            elif match["method"] == "Complete":
                assert answer.results[0].state == 1
            elif match["method"] == "Cancel":
                assert answer.cancelled_instances == 1


# --- What the README says of this version -------------------------------------------------------


def test_what_comes_later_is_refused_by_name() -> None:
    """When this fails, something has arrived: move it to the other column of the README."""
    later = (ROOT / "README.md").read_text("utf-8").partition("## Status")[2]
    assert "a forecast" in later
    with LocalServer() as server, grpc.insecure_channel(server.address) as channel:
        admin = admin_service_pb2_grpc.AdminServiceStub(channel)
        with pytest.raises(grpc.RpcError) as error:
            admin.Forecast(admin_service_pb2.ForecastRequest())
        assert error.value.code() is grpc.StatusCode.UNIMPLEMENTED  # type: ignore[attr-defined]
        assert "Forecast" in error.value.details()  # type: ignore[attr-defined]
