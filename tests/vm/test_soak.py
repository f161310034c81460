"""The big counts on the namespace backend, and every case of each attack, in the VM: make soak."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from vm.inside import run_in_vm

if TYPE_CHECKING:
    from collections.abc import Callable

HOURS = 4 * 3600.0


@pytest.mark.vm
@pytest.mark.soak
@pytest.mark.parametrize(
    ("file", "name"),
    [
        ("test_jobs_in_a_row.py", "test_two_thousand_jobs"),
        ("test_random_kills.py", "test_two_hundred_kills"),
    ],
)
def test_it_endures_in_the_vm(file: str, name: str, say: Callable[[str], None]) -> None:
    chosen = f"{name} and namespaces and not namespaces-dev"
    went = run_in_vm(["-m", "soak", f"tests/endurance/{file}", "-k", chosen], timeout=HOURS)
    for each in went.values():
        for text in each.text:
            say(text)
    failed = {test: each.text for test, each in went.items() if each.how != "passed"}
    assert failed == {}


@pytest.mark.vm
@pytest.mark.soak
def test_every_case_of_each_attack_in_the_vm() -> None:
    chosen = ["-m", "soak", "tests/hostile", "-k", "namespaces and not namespaces-dev"]
    went = run_in_vm(chosen, timeout=HOURS)
    failed = {test: each.text for test, each in went.items() if each.how != "passed"}
    assert failed == {}
    assert went


@pytest.mark.vm
@pytest.mark.soak
def test_a_full_disk_in_the_vm() -> None:
    went = run_in_vm(["tests/faults/test_full_disk.py"], timeout=HOURS)
    failed = {test: each.text for test, each in went.items() if each.how != "passed"}
    assert failed == {}
