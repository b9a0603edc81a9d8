"""deploy/compose.yaml is a cluster: every role once, configured as this version reads it."""

import re
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import yaml

from mainspring_server.config import Role, load_settings

DEPLOY = Path(__file__).parents[2] / "deploy"
SERVICES = {"postgresql", "redis", "kafka"}
ROLES = {role.value for role in Role}


@pytest.fixture(scope="module")
def services() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((DEPLOY / "compose.yaml").read_text())["services"]
    return found


def test_it_has_every_role_and_every_service(services: dict[str, Any]) -> None:
    assert services.keys() == ROLES | SERVICES | {"migrate"}


@pytest.mark.parametrize("role", sorted(ROLES))
def test_each_role_is_started_as_itself(
    services: dict[str, Any], role: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    service = services[role]
    command = service["command"]
    assert command[:4] == ["serve", "--role", role, "--listen"]
    for key, value in service["environment"].items():
        monkeypatch.setenv(key, value)
    settings = load_settings(roles=role, listen=command[4])
    assert settings.roles == {Role(role)}
    urls = (settings.store, settings.wheel, settings.queue)
    assert [urlsplit(url or "").hostname for url in urls] == ["postgresql", "redis", "kafka"]
    port = command[4].rpartition(":")[2]
    for published in service.get("ports", ()):
        assert published == f"127.0.0.1:{port}:{port}"


def test_everything_waits_for_what_it_needs(services: dict[str, Any]) -> None:
    for service in services.values():
        for name, how in service.get("depends_on", {}).items():
            healthy = how["condition"] == "service_healthy"
            assert healthy == ("healthcheck" in services[name])


def test_images_are_of_one_release(services: dict[str, Any]) -> None:
    for name in SERVICES:
        assert re.fullmatch(r"[a-z/]+:\d+\.\d+(\.\d+)?(-\w+)?", services[name]["image"])
    dockerfile = (DEPLOY / "Dockerfile").read_text()
    assert services["api"]["build"]["dockerfile"] == "deploy/Dockerfile"
    for source in re.findall(r"^COPY (?!--from)(\S+) ", dockerfile, re.MULTILINE):
        assert (DEPLOY.parent / source).exists()
