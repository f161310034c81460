"""A receipt states what was observed, by name, and nothing else.

What the receipts of the reviewed backends lack with each of their controls off is shown where no
server is needed for it: rookhold-exec's test_namespaces.py and test_gvisor.py.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from claims.backends import REVIEWED, on

from rookhold_exec.backends import gvisor, namespaces
from rookhold_types.isolation import Control

if TYPE_CHECKING:
    from collections.abc import Mapping

    from claims.conftest import Gateways
    from claims.jobs import Jobs

GROUPS = ["cgroup-cpu", "cgroup-memory", "cgroup-pids"]  # where the host lets us make one
ALWAYS = sorted(
    control.value
    for control in Control
    if control.value not in {*GROUPS, "private-rootfs", "application-kernel"}
)
# Without root, a sandbox without a PID namespace of its own cannot even be made.
NEEDS_ROOT = "pid-namespace"
WITHOUT_A_CLASS = [pytest.param("namespaces-dev", marks=pytest.mark.linux_ns), "off"]
EARNED = {
    "namespaces": ("linux-shared-kernel", namespaces.PROMISED),
    "gvisor": ("gvisor-application-kernel", gvisor.PROMISED),
}
LIMITS = {
    "cpu": ("cpu_seconds", ["cgroup-cpu"]),
    "mem": ("mem_mb", ["cgroup-memory"]),
    "pids": ("max_pids", ["cgroup-pids", "rlimits"]),
    "file": ("max_file_mb", ["rlimits"]),
}


def each(names: list[str]) -> list[Any]:
    root = pytest.mark.root
    return [pytest.param(n, marks=root) if n == NEEDS_ROOT else pytest.param(n) for n in names]


def controls(jobs: Jobs) -> set[str]:
    return set(jobs.receipt()["controls"])


def check_missing(jobs: Jobs, whole: set[str]) -> None:
    assert whole - controls(jobs) == whole & set(jobs.switched_off), "the receipt names the wrong"


def check_limit(receipt: Mapping[str, Any], limit: str) -> None:
    said = (receipt["limit_enforcement"][limit], receipt["effective_limits"][LIMITS[limit][0]])
    assert said == (False, None), "a limit is claimed that was not enforced"


def check_nothing_but_wall(receipt: Mapping[str, Any]) -> None:
    assert receipt["controls"] == [], "a control is claimed that is not there"
    for limit in LIMITS:
        check_limit(receipt, limit)
    assert receipt["limit_enforcement"]["wall"]
    assert (receipt["network_allowed"], receipt["networking"]) == (True, "host")


def check_class(receipt: Mapping[str, Any]) -> None:
    said = (receipt["isolation_class"], receipt["isolated"], receipt["private_rootfs"])
    assert said == ("none", False, False), "an isolation is claimed that nobody reviewed"


def check_earned(jobs: Jobs, kind: str) -> None:
    """A class is claimed for all of its controls together, or not at all."""
    isolation_class, promised = EARNED[kind]
    receipt = jobs.receipt()
    earned = promised <= set(receipt["controls"])
    said = (receipt["isolation_class"] == isolation_class, receipt["isolated"])
    assert said == (earned, earned), "an isolation is claimed that was not seen"
    assert earned is not bool(jobs.switched_off)


def check_reviewed(jobs: Jobs) -> None:
    """Compare with what the operator pinned, or would have written down."""
    settings = jobs.gateway.settings
    receipt = jobs.receipt()
    expected: list[str | None] = [settings["ROOKHOLD_GVISOR_ROOTFS_SHA256"], None]
    if jobs.own_kernel:
        content = Path(settings["ROOKHOLD_GVISOR_RUNSC"]).read_bytes()
        expected[1] = hashlib.sha256(content).hexdigest()
    said = [receipt["rootfs_sha256"], receipt["runtime_sha256"]]
    assert said == expected, "not the digests of what was reviewed"


@pytest.fixture(scope="module")
def whole(gateways: Gateways) -> set[str]:
    """What the receipt of an ordinary job lists."""
    listed = controls(gateways.real("namespaces-dev"))
    assert set(ALWAYS) <= listed <= {*ALWAYS, *GROUPS}
    return listed


@on("namespaces-dev")
@pytest.mark.parametrize("control", each([*ALWAYS, *GROUPS]))
def test_receipt_names_controls(weakened: Jobs, whole: set[str], control: str) -> None:
    check_missing(weakened.without(control), whole)


@on("namespaces-dev")
@pytest.mark.parametrize("control", each(ALWAYS))
def test_receipt_names_controls_sabotaged(weakened: Jobs, control: str) -> None:
    with pytest.raises(AssertionError, match="the receipt names the wrong"):
        check_missing(weakened.without(control, "looking"), {control})


@on("namespaces-dev")
@pytest.mark.parametrize("limit", LIMITS)
def test_unenforced_limit_is_null(weakened: Jobs, limit: str) -> None:
    missing = LIMITS[limit][1]
    check_limit(weakened.without(*missing).receipt(), limit)


@on("namespaces-dev")
@pytest.mark.parametrize("limit", LIMITS)
def test_unenforced_limit_is_null_sabotaged(weakened: Jobs, limit: str) -> None:
    missing = LIMITS[limit][1]
    with pytest.raises(AssertionError, match="a limit is claimed that was not enforced"):
        check_limit(weakened.without(*missing, "honest-limits").receipt(), limit)


def test_off_claims_the_wall_limit_only(watched: Jobs) -> None:
    check_nothing_but_wall(watched.receipt())


def test_off_claims_the_wall_limit_only_sabotaged(unwatched: Jobs) -> None:
    with pytest.raises(AssertionError, match="a limit is claimed that was not enforced"):
        check_nothing_but_wall(unwatched.without("honest-limits").receipt())


@pytest.mark.parametrize("name", WITHOUT_A_CLASS)
def test_no_isolation_class(gateways: Gateways, name: str) -> None:
    check_class(gateways.real(name).receipt())


@pytest.mark.parametrize("name", WITHOUT_A_CLASS)
def test_no_isolation_class_sabotaged(gateways: Gateways, name: str) -> None:
    with pytest.raises(AssertionError, match="an isolation is claimed"):
        check_class(gateways.weakened(name).without("modesty").receipt())


@on("namespaces")
def test_shared_kernel_class(confined: Jobs, weakened: Jobs) -> None:
    check_earned(confined, "namespaces")
    check_earned(weakened.without("capabilities-dropped"), "namespaces")


@on("namespaces")
def test_shared_kernel_class_sabotaged(weakened: Jobs) -> None:
    with pytest.raises(AssertionError, match="an isolation is claimed"):
        check_earned(weakened.without("capabilities-dropped", "modesty"), "namespaces")


@on("gvisor")
def test_application_kernel_class(confined: Jobs, weakened: Jobs) -> None:
    check_earned(confined, "gvisor")
    check_earned(weakened.without("capabilities-dropped"), "gvisor")


@on("gvisor")
def test_application_kernel_class_sabotaged(weakened: Jobs) -> None:
    with pytest.raises(AssertionError, match="an isolation is claimed"):
        check_earned(weakened.without("capabilities-dropped", "modesty"), "gvisor")


@on(*REVIEWED)
def test_reviewed_digests(confined: Jobs) -> None:
    check_reviewed(confined)


@on(*REVIEWED)
def test_reviewed_digests_sabotaged(weakened: Jobs) -> None:
    with pytest.raises(AssertionError, match="not the digests of what was reviewed"):
        check_reviewed(weakened.without("private-rootfs"))
