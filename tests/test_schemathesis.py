"""The API as it describes itself, held against that by schemathesis: all checks, links included.

Whatever is submitted may be run, so the gateway confines its jobs. The pytest plugin of
schemathesis stays off, as it would slow every run; its command is used. Beyond the defaults are
only `schemathesis.toml` and `schemathesis_hooks.py`, with their reasons.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from gateway import Gateway

if TYPE_CHECKING:
    from collections.abc import Iterator

HERE = Path(__file__).parent
GROWTH_KIB = 24 * 1024
DETERMINISTIC = "--generation-deterministic"
ALL_PHASES = "examples,coverage,fuzzing,stateful"


@pytest.fixture
def gateway(tmp_path: Path) -> Iterator[Gateway]:
    settings = {
        "ROOKHOLD_RATE_PER_MIN": "1000000",
        "ROOKHOLD_TENANT_QUEUE_CAPACITY": "1024",
        # Each job reserves what it may store: there are many.
        "ROOKHOLD_STORAGE_TENANT_MB": "1048576",
        "ROOKHOLD_STORAGE_GLOBAL_MB": "1048576",
        "ROOKHOLD_METRICS_TOKEN": "a-token-of-the-operator",
    }
    with Gateway(tmp_path / "home", sandbox="namespaces-dev", **settings) as running:
        yield running


def hold_against(gateway: Gateway, place: Path, *options: str) -> None:
    """Run schemathesis; the assertion has what it finds wrong, with the request to try again."""
    done = subprocess.run(
        [
            *(sys.executable, "-m", "schemathesis.cli"),
            *("--config-file", str(HERE / "schemathesis.toml")),
            *("run", f"http://{gateway.address}/openapi.json"),
            *("--header", f"Authorization: Bearer {gateway.api_key}"),
            # DELETE cancels a job, which stays, with the evidence of what it did.
            *("--checks", "all", "--exclude-checks", "use_after_free"),
            *("--request-timeout", "60", "--no-color", *options),
        ],
        cwd=place,  # it may keep examples there
        env={
            "PATH": os.environ["PATH"],
            "HOME": str(place),
            "PYTHONPATH": str(HERE),
            "SCHEMATHESIS_HOOKS": "schemathesis_hooks",
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert " passed" in done.stdout
    log = gateway.log.read_text("utf-8")
    assert "Traceback" not in log
    assert "code=internal_error" not in log
    assert gateway.process is not None
    assert gateway.process.poll() is None


def memory_kib(gateway: Gateway) -> int:
    assert gateway.process is not None
    text = Path(f"/proc/{gateway.process.pid}/smaps_rollup").read_text()
    return sum(int(line.split()[1]) for line in text.splitlines() if "Private_" in line)


@pytest.mark.linux_ns
def test_the_api_keeps_what_its_description_says(gateway: Gateway, tmp_path: Path) -> None:
    phases = "examples,fuzzing,stateful"
    hold_against(gateway, tmp_path, "--phases", phases, "--max-examples", "1", DETERMINISTIC)


@pytest.mark.soak
@pytest.mark.linux_ns
def test_the_api_keeps_it_through_thousands_of_requests_and_does_not_grow(
    gateway: Gateway, tmp_path: Path
) -> None:
    hold_against(gateway, tmp_path, "--phases", ALL_PHASES, "--max-examples", "100")
    before = memory_kib(gateway)
    for _ in range(3):
        hold_against(gateway, tmp_path, "--phases", ALL_PHASES, "--max-examples", "300")
    assert memory_kib(gateway) - before < GROWTH_KIB
