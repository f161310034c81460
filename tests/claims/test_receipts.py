"""A receipt states what was observed, by name, and nothing else."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from rookhold_types.isolation import Control

if TYPE_CHECKING:
    from collections.abc import Mapping

    from claims.jobs import Jobs

GROUPS = ["cgroup-cpu", "cgroup-memory", "cgroup-pids"]  # where the host lets us make one
ALWAYS = sorted(
    control.value
    for control in Control
    if control.value not in {*GROUPS, "private-rootfs", "application-kernel"}
)
# Without root, a sandbox without a PID namespace of its own cannot even be made.
NEEDS_ROOT = "pid-namespace"
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


@pytest.fixture(scope="module")
def whole(confined: Jobs) -> set[str]:
    """What the receipt of an ordinary job lists."""
    listed = controls(confined)
    assert set(ALWAYS) <= listed <= {*ALWAYS, *GROUPS}
    return listed


@pytest.mark.linux_ns
@pytest.mark.parametrize("control", each([*ALWAYS, *GROUPS]))
def test_receipt_names_controls(weakened: Jobs, whole: set[str], control: str) -> None:
    check_missing(weakened.without(control), whole)


@pytest.mark.linux_ns
@pytest.mark.parametrize("control", each(ALWAYS))
def test_receipt_names_controls_sabotaged(weakened: Jobs, control: str) -> None:
    with pytest.raises(AssertionError, match="the receipt names the wrong"):
        check_missing(weakened.without(control, "looking"), {control})


@pytest.mark.linux_ns
@pytest.mark.parametrize("limit", LIMITS)
def test_unenforced_limit_is_null(weakened: Jobs, limit: str) -> None:
    missing = LIMITS[limit][1]
    check_limit(weakened.without(*missing).receipt(), limit)


@pytest.mark.linux_ns
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


@pytest.mark.linux_ns
def test_no_isolation_class(confined: Jobs, watched: Jobs) -> None:
    for jobs in (confined, watched):
        check_class(jobs.receipt())


@pytest.mark.linux_ns
def test_no_isolation_class_sabotaged(weakened: Jobs, unwatched: Jobs) -> None:
    for jobs in (weakened, unwatched):
        with pytest.raises(AssertionError, match="an isolation is claimed"):
            check_class(jobs.without("modesty").receipt())
