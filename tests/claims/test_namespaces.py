"""A job's namespaces are its own."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from claims.jobs import Jobs

pytestmark = pytest.mark.linux_ns

NAMES = {
    "user-namespace": "user",
    "pid-namespace": "pid",
    "mount-namespace": "mnt",
    "network-namespace": "net",
    "ipc-namespace": "ipc",
    "uts-namespace": "uts",
    "cgroup-namespace": "cgroup",
}
LOOK = """
import json, os
names = os.listdir("/proc/self/ns")
print(json.dumps({name: os.readlink("/proc/self/ns/" + name) for name in names}), flush=True)
"""
LOOK_AND_STAY = f"{LOOK}\nimport time; time.sleep(60)\n"


def namespaces_of_two(jobs: Jobs) -> tuple[dict[str, str], dict[str, str]]:
    """Return the namespaces of two jobs, of which the first lives for as long as the second."""
    staying = jobs.submit(LOOK_AND_STAY, limits={"wall_seconds": 60})
    with jobs.gateway.client() as client:
        said = next(e for e in client.events(staying, follow=True) if e.kind == "stdout")
        second = jobs.ask(LOOK)
        cancelled = client.cancel(staying)
    if cancelled.already_terminal:
        raise RuntimeError("the first job was over: nothing was shown")
    return json.loads(said.output), second


def check_own(jobs: Jobs, controls: list[str]) -> None:
    first, second = namespaces_of_two(jobs)
    for control in controls:
        name = NAMES[control]
        host = str(Path(f"/proc/self/ns/{name}").readlink())
        assert host not in {first[name], second[name]}, f"the host's {control} is shared"


def check_not_shared(jobs: Jobs, controls: list[str]) -> None:
    first, second = namespaces_of_two(jobs)
    for control in controls:
        assert first[NAMES[control]] != second[NAMES[control]], f"two jobs share a {control}"


def test_own_namespaces(confined: Jobs) -> None:
    check_own(confined, list(NAMES))


# A mount namespace that is not made is the launcher's: no job is ever in the host's. Without root
# the launcher has a user namespace too, and no sandbox can be made without one for PIDs.
@pytest.mark.parametrize(
    "control",
    [
        pytest.param("user-namespace", marks=pytest.mark.root),
        pytest.param("pid-namespace", marks=pytest.mark.root),
        "network-namespace",
        "ipc-namespace",
        "uts-namespace",
        "cgroup-namespace",
    ],
)
def test_own_namespaces_sabotaged(weakened: Jobs, control: str) -> None:
    with pytest.raises(AssertionError, match=f"the host's {control} is shared"):
        check_own(weakened.without(control), [control])


def test_no_shared_namespaces(confined: Jobs) -> None:
    check_not_shared(confined, list(NAMES))


@pytest.mark.parametrize(
    "control",
    [
        pytest.param(name, marks=pytest.mark.root) if name == "pid-namespace" else name
        for name in NAMES
    ],
)
def test_no_shared_namespaces_sabotaged(weakened: Jobs, control: str) -> None:
    with pytest.raises(AssertionError, match=f"two jobs share a {control}"):
        check_not_shared(weakened.without(control), [control])
