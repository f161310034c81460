"""Violation rules: each has its detail members, and none leaks more than it names."""

from rookhold_types import RULE_DETAIL, ExecutorFault, OutputReason, Rule


def test_every_rule_has_its_detail() -> None:
    assert set(RULE_DETAIL) == set(Rule)


def test_details_name_no_host_matter() -> None:
    members = {member for detail in RULE_DETAIL.values() for member in detail}
    assert members == {
        "wall_seconds",
        "cpu_seconds",
        "mem_mb",
        "max_pids",
        "signal",
        "stage",
        "code",
        "outputs",
        "minimum_isolation",
        "observed_isolation",
        "bootstrap_ready",
    }


def test_reasons_for_an_output_that_was_not_collected() -> None:
    assert [str(reason) for reason in OutputReason] == [
        "missing",
        "not_regular",
        "link",
        "unreadable",
        "too_large",
        "total_too_large",
        "changed",
    ]


def test_executor_faults_are_coarse() -> None:
    assert set(ExecutorFault) == {"executor_unavailable", "executor_failure"}
