"""Redis: in memory alone, never evicting, open to this machine alone."""

import shutil
import socket
from pathlib import Path

from .process import LOOPBACK, Launch, ServiceError, current_user, free_ports

PROGRAM = "redis-server"


class Redis:
    """Knows how to lay out and reach a Redis server."""

    name = "redis"
    polite_signal = "SIGTERM"
    discard_signal = "SIGTERM"

    def prepare(self, folder: Path) -> Launch:
        """Make an empty working folder under `folder` and choose a port."""
        program = shutil.which(PROGRAM)
        if program is None:
            raise ServiceError("Redis is not installed: run 'make services'")
        data = folder / self.name
        data.mkdir()
        (port,) = free_ports(1)
        options = {
            "bind": LOOPBACK,
            "port": str(port),
            "dir": str(data),
            "save": "",
            "appendonly": "no",
            "maxmemory-policy": "noeviction",
            "daemonize": "no",
            "loglevel": "notice",
        }
        command = [program]
        for key, value in options.items():
            command += [f"--{key}", value]
        return Launch(
            name=self.name,
            url=f"redis://{LOOPBACK}:{port}/0",
            port=port,
            data=str(data),
            log=str(folder / f"{self.name}.log"),
            command=command,
            cwd=str(data),
            user=current_user(),
        )

    def answers(self, launch: Launch) -> bool:
        """Say whether the server answers PING; while it loads a dump it does not."""
        try:
            with socket.create_connection((LOOPBACK, launch.port), timeout=2) as connection:
                connection.sendall(b"PING\r\n")
                return connection.recv(64).startswith(b"+PONG")
        except OSError:
            return False

    def complete(self, launch: Launch) -> None:
        """Do nothing: an empty Redis is complete."""
