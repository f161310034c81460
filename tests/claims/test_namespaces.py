"""A job's namespaces are its own."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from isolating import BACKENDS

if TYPE_CHECKING:
    from _pytest.mark import ParameterSet
    from claims.jobs import Jobs

NAMES = {
    "user-namespace": "user",
    "pid-namespace": "pid",
    "mount-namespace": "mnt",
    "network-namespace": "net",
    "ipc-namespace": "ipc",
    "uts-namespace": "uts",
    "cgroup-namespace": "cgroup",
}
NEED_ROOT = {"user-namespace", "pid-namespace"}
TOLD = {  # what runsc is told besides
    "network-namespace": ("no-network",),
    "user-namespace": ("no-network",),
    "pid-namespace": ("no-pid",),
}
LOOK = """
import json, os
names = os.listdir("/proc/self/ns")
print(json.dumps({name: os.readlink("/proc/self/ns/" + name) for name in names}), flush=True)
"""
LOOK_AND_STAY = f"{LOOK}\nimport time; time.sleep(60)\n"


def namespaces_of_two_sandboxes(jobs: Jobs) -> tuple[dict[str, str], dict[str, str]]:
    """Return the same of two sandboxes with a kernel of their own, as the host sees them."""
    before = set(jobs.runtime())
    found: list[dict[str, str]] = []
    with jobs.gateway.client() as client:
        staying = [jobs.submit("print(flush=True)\nimport time; time.sleep(60)") for _ in range(2)]
        for job_id in staying:
            next(event for event in client.events(job_id, follow=True) if event.kind == "stdout")
        for pid in set(jobs.runtime()) - before:
            place = Path(f"/proc/{pid}")
            if place.joinpath("cmdline").read_bytes().startswith(b"runsc-sandbox"):
                links = place.joinpath("ns").iterdir()
                found.append({each.name: str(each.readlink()) for each in links})
        for job_id in staying:
            client.cancel(job_id)
            client.wait(job_id, 60)
    first, second = found
    return first, second


def namespaces_of_two(jobs: Jobs) -> tuple[dict[str, str], dict[str, str]]:
    """Return the namespaces of two jobs, of which the first lives for as long as the second."""
    if jobs.own_kernel:
        return namespaces_of_two_sandboxes(jobs)
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


def names_of(jobs: Jobs) -> list[str]:
    """Return those that its class has: an application kernel has no use for one of cgroups."""
    return [name for name in NAMES if not jobs.own_kernel or name != "cgroup-namespace"]


def switched_off(*controls: str) -> list[ParameterSet]:
    """Return each of these with each backend in which it can be switched off.

    Of those of a sandbox with its own kernel runsc makes most whatever it is told. Without root
    no sandbox can be made without a namespace for users or PIDs.
    """
    return [
        pytest.param(
            each.name,
            control,
            marks=[*each.marks, *([pytest.mark.root] if control in NEED_ROOT else [])],
        )
        for each in BACKENDS
        for control in controls
        if not each.own_kernel or control in TOLD
    ]


def lacking(weakened: Jobs, control: str) -> Jobs:
    return weakened.without(control, *(TOLD[control] if weakened.own_kernel else ()))


def test_own_namespaces(confined: Jobs) -> None:
    check_own(confined, names_of(confined))


# A mount namespace that is not made is the launcher's: no job is ever in the host's.
@pytest.mark.parametrize(
    ("backend", "control"),
    switched_off(*(name for name in NAMES if name != "mount-namespace")),
    indirect=["backend"],
)
def test_own_namespaces_sabotaged(weakened: Jobs, control: str) -> None:
    with pytest.raises(AssertionError, match=f"the host's {control} is shared"):
        check_own(lacking(weakened, control), [control])


def test_no_shared_namespaces(confined: Jobs) -> None:
    check_not_shared(confined, names_of(confined))


@pytest.mark.parametrize(
    ("backend", "control"),
    switched_off(*(name for name in NAMES if name != "user-namespace")),
    indirect=["backend"],
)
def test_no_shared_namespaces_sabotaged(weakened: Jobs, control: str) -> None:
    with pytest.raises(AssertionError, match=f"two jobs share a {control}"):
        check_not_shared(lacking(weakened, control), [control])
