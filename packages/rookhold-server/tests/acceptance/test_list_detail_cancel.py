"""L1 to L8: what is told of a job that waits, runs or has ended, and how it is cancelled."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from gateway import eventually

from rookhold_types.receipts import receipt_digest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from asking import Caller

SECONDS = 60
SLEEP = {"language": "bash", "code": "echo up; exec sleep 60", "limits": {"wall_seconds": 120}}
ROW = {
    *("job_id", "tenant", "language", "status", "exit_code"),
    *("created_at_ms", "started_at_ms", "finished_at_ms"),
}
NAMESPACES = {
    "user": "user",
    "pid": "pid",
    "mount": "mnt",
    "network": "net",
    "ipc": "ipc",
    "uts": "uts",
    "cgroup": "cgroup",
}


def detail(caller: Caller, job_id: str) -> dict[str, Any]:
    answer = caller.get(f"/v1/jobs/{job_id}")
    assert answer.status == 200
    found: dict[str, Any] = answer.json
    return found


def cancel(caller: Caller, job_id: str) -> dict[str, Any]:
    answer = caller.call("DELETE", f"/v1/jobs/{job_id}")
    assert answer.status == 200
    told: dict[str, Any] = answer.json
    return told


def scheduler(caller: Caller) -> dict[str, Any]:
    told: dict[str, Any] = caller.get("/v1/status").json["scheduler"]
    return told


class Busy:
    """Every worker of the server in the hands of one tenant, until `release`."""

    def __init__(self, caller: Caller) -> None:
        self.caller = caller
        self.jobs = [caller.accepted(**SLEEP) for _ in range(scheduler(caller)["workers"])]
        for job_id in self.jobs:
            caller.begun(job_id)

    def release(self) -> None:
        for job_id in self.jobs:
            cancel(self.caller, job_id)
        for job_id in self.jobs:
            assert self.caller.result(job_id).status == 200


@pytest.fixture
def busy() -> Iterator[Callable[[Caller], Busy]]:
    made: list[Busy] = []

    def occupy(caller: Caller) -> Busy:
        made.append(Busy(caller))
        return made[-1]

    yield occupy
    for each in made:
        each.release()


def test_l1_a_list_is_filtered_and_walked_one_by_one_without_overlap(ours: Caller) -> None:
    before = ours.job_ids()
    languages = ("bash", "python", "bash", "python", "bash")
    made = [ours.ran(language, "0" if language == "python" else ":") for language in languages]
    mine = [ran.job_id for ran in reversed(made)]  # newest first

    bash = ours.get("/v1/jobs?language=bash&limit=500").json["items"]
    assert {row["language"] for row in bash} == {"bash"}
    assert [row["job_id"] for row in bash if row["job_id"] not in before] == mine[::2]

    walked: list[str] = []
    cursor: str | None = ""
    while cursor is not None and len(walked) < len(before) + len(mine):
        query = f"&cursor={cursor}" if cursor else ""
        page = ours.get(f"/v1/jobs?limit=1{query}").json
        (row,) = page["items"]
        assert set(row) == ROW  # neither spec nor receipt
        walked.append(row["job_id"])
        cursor = page["next_cursor"]
    assert cursor is None
    assert walked[: len(mine)] == mine
    assert len(set(walked)) == len(walked)
    assert set(walked) == before | set(mine)


def test_l2_a_queued_job_has_a_place_and_no_evidence_yet(
    ours: Caller, busy: Callable[[Caller], Busy]
) -> None:
    assert ours.ran("bash", "sleep 0.05").ended[0] == "succeeded"  # to estimate from
    held = busy(ours)
    first, second = (ours.accepted("bash", "echo ran") for _ in range(2))
    queued = detail(ours, second)
    assert queued["status"] == "queued"
    assert queued["effective_spec"] is None
    assert queued["receipt"] is None
    assert set(queued["execution_policy"].values()) == {None}
    assert set(queued["queue"]) == {"position", "estimated_wait_ms"}
    assert queued["queue"]["position"] == 2
    assert detail(ours, first)["queue"]["position"] == 1
    estimated = queued["queue"]["estimated_wait_ms"]
    assert 0 < detail(ours, first)["queue"]["estimated_wait_ms"] <= estimated < 3_600_000
    held.release()
    assert ours.result(second).json["stdout"] == "ran\n"
    assert detail(ours, second)["queue"] is None


def test_l3_a_python_hello_says_what_was_enforced_and_what_was_not(ours: Caller) -> None:
    ran = ours.ran("python", "print('hello')")
    assert ran.ended == ("succeeded", 0, None)
    limits = dict(ran.detail["effective_spec"]["limits"])
    assert (limits.pop("wall_seconds"), limits.pop("allow_network")) == (15, True)
    assert set(limits) == {"cpu_seconds", "mem_mb", "max_pids", "max_file_mb"}
    assert set(limits.values()) == {None}
    policy = ran.detail["execution_policy"]
    assert (policy["network_allowed"], policy["networking"]) == (True, "host")
    assert ran.detail["receipt_sha256"] == ran.receipt["receipt_sha256"]
    assert ran.receipt["receipt_sha256"] == receipt_digest(ran.receipt)
    events = ours.events(ran.job_id)
    assert all(len(event["event_hash"]) == 64 for event in events)
    assert {"started", "finished"} <= {event["kind"] for event in events}
    for after in range(len(events) + 1):
        page = ours.get(f"/v1/jobs/{ran.job_id}/replay?after={after}").json
        assert page["events"] == events[after:]


@pytest.mark.linux_ns
def test_l4_on_namespaces_dev_it_lists_the_controls_really_in_force(confined: Caller) -> None:
    look = "cd /proc/self/ns; for n in *; do echo $n $(readlink $n); done; grep Seccomp: ../status"
    ran = confined.ran("bash", look)
    assert ran.ended[0] == "succeeded"
    policy = ran.detail["execution_policy"]
    assert (policy["sandbox"], policy["isolation_class"]) == ("namespaces-dev", "none")
    assert (policy["isolated"], policy["networking"]) == (False, "disabled")
    assert policy["network_allowed"] is False
    assert ran.detail["effective_spec"]["limits"]["allow_network"] is False
    seen = dict(line.split() for line in ran.result["stdout"].splitlines())
    controls = set(policy["controls"])
    for name, kind in NAMESPACES.items():
        apart = seen[kind] != str(Path(f"/proc/self/ns/{kind}").readlink())
        assert (f"{name}-namespace" in controls) == apart, name
    assert {"user-namespace", "pid-namespace", "mount-namespace", "network-namespace"} <= controls
    assert ("seccomp" in controls) == (seen["Seccomp:"] == "2") == policy["seccomp"]


def test_l5_a_queued_job_is_cancelled_without_execution_and_only_once(
    ours: Caller, busy: Callable[[Caller], Busy], tmp_path: Path
) -> None:
    marker = tmp_path / "marker"
    held = busy(ours)
    job_id = ours.accepted("bash", f"touch '{marker}'")
    first = cancel(ours, job_id)
    assert (first["cancellation_requested"], first["already_terminal"]) == (True, False)
    assert first["job"]["status"] == "cancelled"
    events = ours.events(job_id)
    assert [event["kind"] for event in events] == ["accepted", "finished"]
    second = cancel(ours, job_id)
    assert (second["cancellation_requested"], second["already_terminal"]) == (False, True)
    assert second["job"] == first["job"]
    assert ours.events(job_id) == events
    held.release()
    assert ours.ran("bash", "echo next").result["stdout"] == "next\n"  # its turn has passed
    assert not marker.exists()
    receipt = detail(ours, job_id)["receipt"]
    assert (receipt["killed_by"], receipt["started_at_ms"]) == ("cancelled_before_start", None)
    assert receipt["resource_usage"] is None


def test_l6_a_running_minute_is_ended_at_once(ours: Caller) -> None:
    job_id = ours.accepted(**SLEEP)
    ours.begun(job_id)
    began = time.monotonic()
    told = cancel(ours, job_id)
    assert (told["cancellation_requested"], told["already_terminal"]) == (True, False)
    assert ours.result(job_id).json["status"] == "cancelled"
    assert time.monotonic() - began < 15
    assert cancel(ours, job_id)["already_terminal"]


def test_l7_a_job_cancelled_in_the_queue_keeps_its_slot_until_its_turn(
    ours: Caller, busy: Callable[[Caller], Busy]
) -> None:
    held = busy(ours)
    job_id = ours.accepted("bash", "true")
    assert scheduler(ours)["queue_depth"] == 1
    assert cancel(ours, job_id)["job"]["status"] == "cancelled"
    assert scheduler(ours)["queue_depth"] == 1
    held.release()
    assert eventually(SECONDS, lambda: scheduler(ours)["queue_depth"] == 0)


def test_l8_another_tenants_queue_is_not_ours_to_see(
    ours: Caller, theirs: Caller, busy: Callable[[Caller], Busy]
) -> None:
    held = busy(theirs)
    job_id = theirs.accepted("bash", "true")
    assert scheduler(theirs)["queue_depth"] == 1
    told = scheduler(ours)
    assert (told["queue_depth"], told["running"]) == (0, 0)
    held.release()
    assert theirs.result(job_id).status == 200
