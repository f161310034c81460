"""Every test that runs in the VM is a test here, with the result it had there."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from vm.collect import found
from vm.inside import Fleet
from vm.suites import NODE, SUITES, suite_of

if TYPE_CHECKING:
    from collections.abc import Iterator

TIMEOUT_SECONDS = 1800.0  # beside all other tests, with what they leave of the processors
MACHINES = 2
NODE_TESTS_MAX = 5


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "test" in metafunc.fixturenames:
        tests = found().tests
        metafunc.parametrize("test", tests, ids=tests)  # by itself pytest numbers long ones


@pytest.fixture(scope="session")
def inside(request: pytest.FixtureRequest) -> Iterator[Fleet]:
    """Two VMs for all the tests that were chosen."""
    wanted = [
        item.callspec.params["test"]
        for item in request.session.items
        if isinstance(item, pytest.Function) and item.function is test_it_holds_in_the_vm
    ]
    with Fleet(wanted, machines=MACHINES, timeout=TIMEOUT_SECONDS) as vms:
        yield vms


def test_every_suite_is_collected() -> None:
    assert found().trouble == ""
    assert {suite_of(test) for test in found().tests} == {name for name, _, _ in SUITES}


def test_few_tests_start_node() -> None:
    assert len(NODE) <= NODE_TESTS_MAX
    assert set(found().tests) >= NODE


@pytest.mark.vm
def test_it_holds_in_the_vm(test: str, inside: Fleet) -> None:
    went = inside.result(test)
    text = "\n".join(went.text)
    if went.how == "skipped":
        pytest.fail(f"it was skipped, although the VM is for it: {text}", pytrace=False)
    if went.how != "passed":
        pytest.fail(f"in the VM:\n{text}", pytrace=False)
