"""Each wheel alone, with what it declares and nothing else, does its work."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from installing import WHEELS

if TYPE_CHECKING:
    from collections.abc import Callable

    from gateway import Gateway
    from installing import Environment

USES = Path(__file__).parent / "uses"
OURS = {  # beside itself; what DESIGN lets each one import
    "rookhold-types": set(),
    "rookhold-store": {"rookhold-types"},
    "rookhold-exec": {"rookhold-types"},
    "rookhold-attestation": set(),
    "rookhold-server": {
        "rookhold-types",
        "rookhold-store",
        "rookhold-exec",
        "rookhold-attestation",
    },
    "rookhold-sdk": set(),
    "rookhold-cli": {"rookhold-sdk"},
}
PRINTS = {
    "rookhold-types": "invalid_json",
    "rookhold-store": "succeeded",
    "rookhold-exec": "42",
    "rookhold-attestation": "tenant-a",
    "rookhold-server": "succeeded 42",
}


def use(wheel: str) -> Path:
    return USES / f"use_{wheel.removeprefix('rookhold-')}.py"


@pytest.mark.parametrize("wheel", WHEELS)
def test_a_wheel_brings_no_wheel_of_ours_that_its_layer_may_not_know(
    wheel: str, alone: Callable[[str], Environment]
) -> None:
    installed = {name for name in alone(wheel).installed() if name.startswith("rookhold")}
    assert installed == OURS[wheel] | {wheel}


@pytest.mark.parametrize("wheel", sorted(PRINTS))
def test_a_wheel_does_its_work_alone(wheel: str, alone: Callable[[str], Environment]) -> None:
    done = alone(wheel).python(use(wheel))
    assert done.stdout.split("\n")[-2] == PRINTS[wheel]


def test_the_verifier_takes_true_evidence_and_refuses_a_changed_result(
    alone: Callable[[str], Environment],
) -> None:
    env = alone("rookhold-attestation")
    made = env.home / "evidence"
    made.mkdir(mode=0o700)
    env.python(use("rookhold-attestation"), cwd=made)
    files = ["--envelope", made / "envelope.json", "--public-key", made / "signer.pub.pem"]
    good = env.run("rookhold-verify", "verify", *files, "--subject", made / "result.json")
    assert (good.returncode, json.loads(good.stdout)["verified"]) == (0, True)
    (made / "changed.json").write_bytes((made / "result.json").read_bytes() + b"\n")
    bad = env.run("rookhold-verify", "verify", *files, "--subject", made / "changed.json")
    assert (bad.returncode, bad.stdout) == (1, "")


def test_the_sdk_runs_a_job(alone: Callable[[str], Environment], served: Gateway) -> None:
    done = alone("rookhold-sdk").python(use("rookhold-sdk"), **served.for_clients())
    assert done.stdout == "succeeded 42\n"


def test_the_cli_runs_a_job_on_a_gateway_elsewhere(
    alone: Callable[[str], Environment], served: Gateway
) -> None:
    env = alone("rookhold-cli")
    code = ["-c", "print(6*7); raise SystemExit(3)"]
    done = env.run("rookhold", "run", "python", *code, "--no-evidence", **served.for_clients())
    assert (done.returncode, done.stdout) == (3, "42\n"), done.stderr
