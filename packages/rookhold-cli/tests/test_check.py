from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from conftest import Rookhold


def test_this_computer_is_judged_by_a_real_sandbox(rookhold: Rookhold) -> None:
    ended = rookhold("check", "--json")
    host = json.loads(ended.stdout)["host"]
    assert "python" in host["languages"]
    if host["backend"] == "off":
        assert (ended.returncode, host["ok"]) == (1, False)
    else:
        assert (ended.returncode, host["ok"]) == (0, True)
        assert "network-namespace" in host["controls"]
    assert {"control", "available", "why"} == set(host["facts"][0])


def test_no_sandbox_is_a_failure_and_said_so(rookhold: Rookhold) -> None:
    ended = rookhold("check", ROOKHOLD_SANDBOX="off")
    assert ended.returncode == 1
    assert b"FAIL" in ended.stdout


def test_no_interpreter_is_a_failure_and_said_so(rookhold: Rookhold) -> None:
    missing = {f"ROOKHOLD_{language}": "no-such-thing" for language in ("PYTHON", "NODE", "BASH")}
    ended = rookhold("check", **missing)
    assert ended.returncode == 1
    assert b"FAIL" in ended.stdout


def test_a_backend_that_does_not_exist_is_a_failure(rookhold: Rookhold) -> None:
    ended = rookhold("check", ROOKHOLD_SANDBOX="steel-box")
    assert ended.returncode == 1
    assert b"unknown_backend" in ended.stdout


@pytest.mark.linux_ns
def test_it_says_in_plain_words_what_a_job_may_not_do(rookhold: Rookhold) -> None:
    assert sys.platform == "linux"
    ended = rookhold("check", ROOKHOLD_SANDBOX="namespaces-dev")
    assert ended.returncode == 0
    assert b"no network at all" in ended.stdout
    said = ended.stdout.replace(b"\n   ", b" ")
    assert (b"measured by the supervisor" in said) != (b"processor time as a whole is" in said)
    assert b"claims no isolation class" in ended.stdout.replace(b"\n   ", b" ")
