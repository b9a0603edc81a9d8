import asyncio
import os
import signal
from pathlib import Path

from mainspring_server.cli.process_group import ProcessGroup


def is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


async def test_a_group_restarts_what_died_and_stops_together(tmp_path: Path) -> None:
    pids_of = tmp_path / "pids"
    os.mkfifo(pids_of)
    # Opened for writing too, so that reading it never meets an end.
    reader = os.fdopen(os.open(pids_of, os.O_RDWR), "r")

    async def next_pid() -> int:
        return int(await asyncio.to_thread(reader.readline))

    command = ["sh", "-c", f"echo $$ > {pids_of}; exec sleep 1000"]
    running = asyncio.create_task(ProcessGroup(command, 2, restart_delay_s=0).run())
    first, second = await next_pid(), await next_pid()
    os.kill(first, signal.SIGKILL)
    third = await next_pid()
    assert len({first, second, third}) == 3
    assert is_running(second)
    os.kill(os.getpid(), signal.SIGTERM)
    await running
    assert not any(map(is_running, (first, second, third)))
    reader.close()
