"""Isolation: what satisfies what, and that the backend table is consistent with itself."""

import pytest

from rookhold_types import (
    BACKEND_FACTS,
    Backend,
    Control,
    IsolationClass,
    Networking,
    control_list,
    satisfies,
)

NONE, LINUX, GVISOR, WASM, VM, CONFIDENTIAL = IsolationClass

SATISFIED_BY = {
    NONE: {NONE, LINUX, GVISOR, WASM, VM, CONFIDENTIAL},
    LINUX: {LINUX, GVISOR, VM, CONFIDENTIAL},
    GVISOR: {GVISOR, VM, CONFIDENTIAL},
    WASM: {WASM},
    VM: {VM, CONFIDENTIAL},
    CONFIDENTIAL: {CONFIDENTIAL},
}


@pytest.mark.parametrize("minimum", IsolationClass)
@pytest.mark.parametrize("observed", IsolationClass)
def test_a_class_satisfies_exactly_what_it_is_at_least(
    observed: IsolationClass, minimum: IsolationClass
) -> None:
    assert satisfies(observed, minimum) == (observed in SATISFIED_BY[minimum])


def test_more_pairs_fail_than_a_stronger_order_would_allow() -> None:
    pairs = [(o, m) for o in IsolationClass for m in IsolationClass if not satisfies(o, m)]
    assert len(pairs) == 36 - sum(map(len, SATISFIED_BY.values())) == 19


def test_class_names_are_those_on_the_wire() -> None:
    assert [str(name) for name in IsolationClass] == [
        "none",
        "linux-shared-kernel",
        "gvisor-application-kernel",
        "wasm-capability",
        "hardware-vm",
        "confidential-vm",
    ]


@pytest.mark.parametrize(
    ("backend", "facts"),
    [
        ("off", ("none", "host", False, False, False)),
        ("namespaces-dev", ("none", "disabled", False, False, True)),
        (
            "namespaces+cgroups-v2+private-rootfs",
            ("linux-shared-kernel", "disabled", True, True, True),
        ),
        ("gvisor-oci", ("gvisor-application-kernel", "disabled", True, True, True)),
    ],
)
def test_backend_facts(backend: str, facts: tuple[str, str, bool, bool, bool]) -> None:
    found = BACKEND_FACTS[Backend(backend)]
    assert facts == (
        found.isolation_class,
        found.networking,
        found.isolated,
        found.private_rootfs,
        found.dedicated_bootstrap,
    )


def test_every_backend_has_facts() -> None:
    assert set(BACKEND_FACTS) == set(Backend)


@pytest.mark.parametrize("backend", Backend)
def test_a_backend_with_a_class_has_all_that_a_class_needs(backend: Backend) -> None:
    facts = BACKEND_FACTS[backend]
    if facts.isolated:
        assert facts.networking is Networking.DISABLED
        assert facts.private_rootfs
        assert facts.dedicated_bootstrap


def test_no_backend_of_class_none_satisfies_a_minimum() -> None:
    for backend in (Backend.OFF, Backend.NAMESPACES_DEV):
        offered = BACKEND_FACTS[backend].isolation_class
        assert [m for m in IsolationClass if satisfies(offered, m)] == [NONE]


def test_the_controls_are_named_in_the_order_in_which_they_are_listed() -> None:
    assert list(Control) == sorted(Control)
    assert len(Control) == 18


def test_a_control_list_is_sorted_plain_and_without_duplicates() -> None:
    listed = control_list([Control.SECCOMP, "rlimits", "seccomp", "a-later-control"])
    assert listed == ("a-later-control", "rlimits", "seccomp")
    assert {type(name) for name in listed} == {str}
    assert control_list([]) == ()
