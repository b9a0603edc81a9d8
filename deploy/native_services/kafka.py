"""Apache Kafka: one node that is broker and KRaft controller, small, open to this machine alone."""

import base64
import shutil
import socket
import struct
import uuid
from pathlib import Path

from . import kafka_jars
from .process import LOOPBACK, Launch, current_user, free_ports

# C1 alone: measured at 200 records of 12 kB a second, it costs half the CPU of
# the full compiler over the first half minute, and less while idle. The serial
# collector has no threads of its own, which two cores have no use for.
_JVM = (
    "-XX:TieredStopAtLevel=1",
    "-XX:+UseSerialGC",
    "-XX:-UsePerfData",
    "-XX:+ExitOnOutOfMemoryError",
    "-Djava.awt.headless=true",
)


class Kafka:
    """Knows how to lay out and reach a Kafka broker."""

    name = "kafka"
    polite_signal = "SIGTERM"
    discard_signal = "SIGTERM"

    def __init__(self, heap: str) -> None:
        """Take the heap limit in Java's notation, `512m`."""
        self._heap = heap

    def prepare(self, folder: Path) -> Launch:
        """Lay out a formatted, empty broker under `folder`."""
        jars = kafka_jars.find()
        return self.launch(folder, jars, jars.archive_flags())

    def launch(self, folder: Path, jars: kafka_jars.Jars, flags: list[str]) -> Launch:
        """Lay out a broker that runs on `jars` with these further flags of the JVM."""
        home = folder / self.name
        log_dirs = home / "data"
        shutil.copytree(jars.template, log_dirs)
        _renew_cluster_id(log_dirs / "meta.properties")
        port, controller_port = free_ports(2)
        settings = home / "server.properties"
        settings.write_text(kafka_jars.server_properties(log_dirs, port, controller_port))
        command = [
            jars.java,
            f"-Xmx{self._heap}",
            "-Xms256m",
            *_JVM,
            *flags,
            f"-Dlog4j2.configurationFile={kafka_jars.LOGGING}",
            "-cp",
            jars.class_path(),
            "kafka.Kafka",
            str(settings),
        ]
        return Launch(
            name=self.name,
            url=f"kafka://{LOOPBACK}:{port}",
            port=port,
            data=str(home),
            log=str(folder / f"{self.name}.log"),
            command=command,
            cwd=str(home),
            user=current_user(),
        )

    def answers(self, launch: Launch) -> bool:
        """Say whether the broker lists itself, as it does once topics can be placed on it."""
        try:
            return _broker_count(launch.port) > 0
        except (OSError, struct.error):
            return False

    def complete(self, launch: Launch) -> None:
        """Do nothing: topics are made by those who use them."""


def _renew_cluster_id(properties: Path) -> None:
    """Give the copy a cluster id of its own, so that clients tell two brokers apart."""
    fresh = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
    lines = [
        f"cluster.id={fresh}" if line.startswith("cluster.id=") else line
        for line in properties.read_text().splitlines()
    ]
    properties.write_text("\n".join(lines) + "\n")


def _broker_count(port: int) -> int:
    """Ask for the cluster's metadata without topics (Metadata, version 1)."""
    api_key, version, correlation_id, no_client_id, topics = 3, 1, 1, -1, 0
    request = struct.pack(">hhihi", api_key, version, correlation_id, no_client_id, topics)
    with socket.create_connection((LOOPBACK, port), timeout=2) as connection:
        connection.sendall(struct.pack(">i", len(request)) + request)
        with connection.makefile("rb") as stream:
            (size,) = struct.unpack(">i", stream.read(4))
            _, brokers = struct.unpack_from(">ii", stream.read(size))
    return int(brokers)
