"""The corpus of attacks: small programs, each run on every isolating backend and never on `off`.

A test's name says what must come of the attack. The backends are parameters; where they may
differ, the test says so as data (`Target.on`). A program is bounded in time and size even if the
control it attacks fails, its network targets are listeners that the test itself opened, and
nothing it would reach on success does harm. `ROOKHOLD_HOSTILE_WITHOUT` names one control that is
switched off, to see which attacks notice; `ROOKHOLD_HOSTILE_BACKENDS` names the backends to
attack, where not all can be had.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest
from hostile.leftovers import Before
from hostile.target import Target
from isolating import BACKENDS, NAMED

from rookhold_exec.select import choose_backend
from rookhold_exec.settings import ExecSettings
from rookhold_exec.testing import Harness

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from _pytest.mark import ParameterSet

WITHOUT = frozenset(filter(None, [os.environ.get("ROOKHOLD_HOSTILE_WITHOUT", "")]))
WORKERS = 4
UID_BASE = 230_000 + os.getpid() % 4096 * WORKERS  # nobody else's, so that what is left is ours


def _backends() -> list[ParameterSet]:
    wanted = os.environ.get("ROOKHOLD_HOSTILE_BACKENDS", "")
    return [
        pytest.param(each.name, marks=each.marks)
        for each in BACKENDS
        if not wanted or each.name in wanted.split(",")
    ]


def settings_of(backend: str, jobs_root: Path) -> ExecSettings:
    return ExecSettings(
        workers=WORKERS,
        uid_base=UID_BASE,
        jobs_root=str(jobs_root),
        faults=WITHOUT,
        **NAMED[backend].executor(),
    )


@pytest.fixture(scope="session", params=_backends())
def target(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Target]:
    """An open executor that confines what it runs; nothing of it may be left when it closes."""
    root = tmp_path_factory.mktemp("jobs")
    before = Before(root, uids=range(UID_BASE, UID_BASE + WORKERS))
    settings = settings_of(request.param, root)
    harness = Harness(choose_backend(request.param, settings))
    try:
        harness.do(harness.executor.open())
        yield Target(harness, NAMED[request.param], before, WITHOUT)
    finally:
        harness.close()
    assert before.left_after_close() == []


SLOW_TO_START = {"gvisor", "namespaces"}  # the latter is in an emulated machine


@pytest.hookimpl(tryfirst=True)  # before marks choose
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Take out what `not_on_gvisor` names, for that backend alone.

    Where a start is slow, one case of each attack is enough for every day; the others, which differ
    in a number or a name, are for `make soak`.
    """
    out, met = [], set()
    for item in items:
        if not (isinstance(item, pytest.Function) and hasattr(item, "callspec")):
            continue
        backend = item.callspec.params.get("target")
        if backend == "gvisor" and hasattr(item.obj, "not_on_gvisor"):
            out.append(item)
        elif backend in SLOW_TO_START:
            attack = (item.path, item.originalname, backend)
            if attack in met:
                item.add_marker(pytest.mark.soak)
            met.add(attack)
    if out:
        items[:] = [item for item in items if item not in out]
        config.hook.pytest_deselected(items=out)
