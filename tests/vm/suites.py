"""What runs in the VM: by file, name and mark, one table."""

from __future__ import annotations

import re
from typing import Final

# A start of gVisor takes seconds in there: whether it starts, ends, and holds its limits.
GVISOR: Final = re.compile(
    r"::TestPtrace::(test_an_exit_code_is_kept|test_a_signal_is_named|test_the_wall_limit_ends_a_job"
    r"|test_good_outputs_come_back_and_the_others_are_named)$"
)
# What is promised of a job, with the twins of the controls of the namespace backend.
PROMISED: Final = re.compile(
    r"::test_(no_network|own_processes_only|reviewed_system_only|read_only_root|no_capabilities"
    r"|no_new_privileges|no_sibling_files|workspace_quota|file_size_limit|process_limit"
    r"|memory_limit|cpu_limit|shared_kernel_class)(_sabotaged)?\[namespaces\]$"
    r"|::test_system_calls_refused(_sabotaged)?\[mounts-namespaces\]$"
    r"|::test_own_namespaces(\[namespaces\]|_sabotaged\[namespaces-(user|ipc|uts|cgroup)-)"
    r"|::test_(no_host_directories|no_server_files|no_server_secrets|three_descriptors"
    r"|clean_environment|untold_host|no_shared_namespaces|ordinary_sockets_only"
    r"|reviewed_digests|wall_limit|cancel|nothing_outlives_a_job|outputs_through_no_link)\[namespaces\]$"
)
# (name, file or folder, what is taken of its tests)
SUITES: Final = (
    (
        "groups of version 2",
        "packages/rookhold-exec/tests/test_cgroup.py",
        re.compile(""),
    ),
    ("groups of jobs", "packages/rookhold-exec/tests/test_groups.py", re.compile("")),
    ("where groups are made", "packages/rookhold-exec/tests/test_subtree.py", re.compile("")),
    (
        "jobs in groups of version 2",
        "packages/rookhold-exec/tests/test_namespaces_v2.py",
        re.compile(""),
    ),
    (
        "the namespace backend without root",
        "packages/rookhold-exec/tests/test_namespaces_unprivileged.py",
        re.compile("delegated"),
    ),
    (
        "the namespace backend and each of its controls",
        "packages/rookhold-exec/tests/test_namespaces.py",
        re.compile("groups-of-version-2"),
    ),
    (
        "the executor contract on the namespace backend",
        "packages/rookhold-exec/tests/test_contract_namespaces.py",
        re.compile("::TestNamespaces::"),
    ),
    (
        "a production gateway that root starts, on the namespace backend",
        "tests/test_production.py",
        re.compile(r"\[namespaces\]"),
    ),
    (
        "the attack corpus on the namespace backend",
        "tests/hostile",
        re.compile(r"\[namespaces(?!-dev)\b"),
    ),
    (
        "the failure reports on the namespace backend",
        "tests/reports",
        re.compile(r"\[namespaces(?!-dev)\b"),
    ),
    ("the promises of the namespace backend", "tests/claims", PROMISED),
    ("disks that fail or are slow", "tests/faults/test_mapped_disk.py", re.compile("")),
    ("gVisor", "packages/rookhold-exec/tests/test_contract_gvisor.py", GVISOR),
)
# Node takes three seconds to start in there: these tests of it and no others.
NODE: Final[frozenset[str]] = frozenset()
# Marks that ask for what the VM does not offer: a network, another VM, groups of version 1, time.
NOT_THERE: Final = frozenset({"online", "vm", "soak"})
NO_GROUPS: Final = "v1:"


def suite_of(test: str) -> str | None:
    """Return the suite that takes the test."""
    for name, place, taken in SUITES:
        if test.startswith((f"{place}::", f"{place}/")) and taken.search(test):
            return name
    return None


def belongs(test: str, marks: list[tuple[str, list[str]]]) -> bool:
    """Tell whether the test is to run in the VM."""
    for mark, args in marks:
        if mark in NOT_THERE or any(arg.startswith(NO_GROUPS) for arg in args):
            return False
        if mark == "node" and test not in NODE:
            return False
    return suite_of(test) is not None
