"""One gateway of each backend for each report, and the rule that nothing hostile runs on `off`."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING

import pytest
from gateway import Gateway
from reports.site import SETTINGS, Site

if TYPE_CHECKING:
    from collections.abc import Iterator

CONFINING = pytest.param("namespaces-dev", marks=pytest.mark.linux_ns)


def serve(factory: pytest.TempPathFactory, sandbox: str) -> Iterator[Site]:
    home = factory.mktemp("gateway") / "home"
    gateway = Gateway(home, sandbox=sandbox, **SETTINGS)
    other = f"tenant-{secrets.token_hex(8)}"  # a name that is nowhere by chance
    keys = f"local:{gateway.api_key},{other}:{gateway.api_key}-other"
    gateway.settings["ROOKHOLD_API_KEYS"] = keys
    with gateway, gateway.client() as client:
        yield Site(gateway, client, other)
        assert gateway.process is not None
        assert gateway.process.poll() is None, "the server did not survive"


@pytest.fixture(scope="module", params=[CONFINING, "off"])
def site(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Site]:
    """A gateway of either backend: for programs that do no harm."""
    yield from serve(tmp_path_factory, request.param)


@pytest.fixture(scope="module", params=[CONFINING])
def sandbox(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Site]:
    """A gateway whose backend confines: the only place for a hostile program."""
    for site in serve(tmp_path_factory, request.param):
        site.refuse_without_a_sandbox()
        yield site
