"""The twenty failure reports, replayed over HTTP: one file each, on every backend that confines.

One gateway of each backend serves them all, and is looked over when the last report is through.
Nothing hostile runs on `off`: only `anywhere` offers it, for programs that do no harm.

Not here, because what they are about is not built yet: FR-18 (MCP over stdio) and FR-20 (deny rules
of a policy). FR-14, FR-15 and FR-16 are about
acceptance, queue and store: one backend shows them.
"""

from __future__ import annotations

import os
import secrets
from typing import TYPE_CHECKING

import pytest
from faults.leftovers import Leftovers
from gateway import Gateway
from isolating import ISOLATING, NAMED, private_place
from reports.site import SETTINGS, WORKERS, Site

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

GONE_SECONDS = 30


class Gateways:
    """The gateways of this run, each started when the first report asks for it."""

    def __init__(self, home: Path, jobs: Path) -> None:
        self._home = home
        self._jobs = jobs
        self._sites: dict[str, Site] = {}

    def site(self, sandbox: str) -> Site:
        if sandbox not in self._sites:
            self._sites[sandbox] = self._start(sandbox)
        return self._sites[sandbox]

    def _start(self, sandbox: str) -> Site:
        backend = NAMED.get(sandbox)
        uid_base = 500_000 + (os.getpid() % 10_000) * 16 + len(self._sites) * WORKERS
        settings = {**SETTINGS, "ROOKHOLD_SANDBOX_UID_BASE": str(uid_base)}
        if backend is not None:
            settings |= backend.settings()
        gateway = Gateway(self._home / sandbox, sandbox=sandbox, **settings)
        gateway.jobs_root = self._jobs / sandbox
        other = f"tenant-{secrets.token_hex(8)}"  # a name that is nowhere by chance
        keys = f"local:{gateway.api_key},{other}:{gateway.api_key}-other"
        gateway.settings["ROOKHOLD_API_KEYS"] = keys
        left = Leftovers(gateway, uid_base=uid_base, workers=WORKERS)
        gateway.start()
        site = Site(gateway, gateway.client(), other, backend, left)
        launcher = left.launcher()
        assert launcher is not None
        left.note_launcher(launcher)
        assert site.left_over() == []  # and so what the launcher has now is remembered
        return site

    def stop(self) -> list[str]:
        """Return what is wrong with a gateway, or left of its jobs, after all that."""
        found = []
        for name, site in self._sites.items():
            process = site.gateway.process
            assert process is not None
            if process.poll() is not None:
                found.append(f"{name}: the server did not survive")
                continue
            found += [f"{name}: {text}" for text in site.left_over(GONE_SECONDS)]
            site.client.close()
            if site.gateway.stop() != 0:
                found.append(f"{name}: the server did not stop in order")
            found += [f"{name}: {text}" for text in site.left_over(GONE_SECONDS)]
        return found


@pytest.fixture(scope="session")
def gateways(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateways]:
    with private_place() as jobs:
        gateways = Gateways(tmp_path_factory.mktemp("reports"), jobs)
        yield gateways
        assert gateways.stop() == []


@pytest.fixture(params=[*ISOLATING, "off"])
def anywhere(request: pytest.FixtureRequest, gateways: Gateways) -> Site:
    """A gateway of any backend: for programs that do no harm."""
    return gateways.site(request.param)


@pytest.fixture(params=ISOLATING)
def sandbox(request: pytest.FixtureRequest, gateways: Gateways) -> Site:
    """A gateway whose backend confines: the only place for a hostile program."""
    site = gateways.site(request.param)
    site.refuse_without_a_sandbox()
    return site


@pytest.hookimpl(tryfirst=True)  # before marks choose
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Where a start is slow, one case of each report is enough; the others are for `make soak`."""
    met = set()
    for item in items:
        if not (isinstance(item, pytest.Function) and hasattr(item, "callspec")):
            continue
        backends = {item.callspec.params.get(name) for name in ("sandbox", "anywhere")}
        for backend in backends & {"gvisor", "namespaces"}:
            report = (item.path, item.originalname, backend)
            if report in met:
                item.add_marker(pytest.mark.soak)
            met.add(report)
