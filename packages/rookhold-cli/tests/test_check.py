from __future__ import annotations

import json
import platform
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


def test_every_backend_is_shown_with_what_is_missing_for_it(rookhold: Rookhold) -> None:
    ended = rookhold("check", "--json")
    host = json.loads(ended.stdout)["host"]
    shown = {each["backend"]: each for each in host["backends"]}
    assert list(shown) == [
        "gvisor-oci",
        "namespaces+cgroups-v2+private-rootfs",
        "namespaces-dev",
        "off",
    ]
    gvisor, namespaces, *_ = shown.values()
    assert (gvisor["available"], namespaces["available"]) == (False, False)
    if sys.platform == "linux" and platform.machine() == "x86_64":
        assert "ROOKHOLD_GVISOR_RUNSC" in gvisor["why"]
        assert "ROOKHOLD_ROOTFS" in namespaces["why"]
        assert "rookhold rootfs build" in namespaces["why"]
    assert (shown["off"]["available"], shown["off"]["isolation_class"]) == (True, "none")
    said = rookhold("check").stdout
    for words in (b"gVisor", b"the hardened sandbox", b"missing: ", b"rookhold rootfs build"):
        assert words in said


def test_a_backend_that_cannot_be_had_is_refused_and_why(rookhold: Rookhold) -> None:
    ended = rookhold("check", "--json", ROOKHOLD_SANDBOX="gvisor", ROOKHOLD_ROOTFS="/no/such/root")
    assert ended.returncode == 1
    host = json.loads(ended.stdout)["host"]
    assert host["backend"] is None
    assert host["failure"]


def test_a_setting_that_does_not_parse_is_named(rookhold: Rookhold) -> None:
    ended = rookhold("check", ROOKHOLD_ROOTFS="somewhere")
    assert ended.returncode == 1
    assert b"ROOKHOLD_ROOTFS" in ended.stdout
    assert b"somewhere" not in ended.stdout


def test_in_production_auto_takes_no_sandbox_of_class_none(rookhold: Rookhold) -> None:
    ended = rookhold("check", "--json", ROOKHOLD_ENV="production")
    assert ended.returncode == 1
    host = json.loads(ended.stdout)["host"]
    assert host["backend"] is None
    assert "executor_unavailable" in host["failure"]


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
