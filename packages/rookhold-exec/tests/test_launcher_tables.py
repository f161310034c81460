"""What the launcher repeats, because it imports nothing of ours, is what everybody else has."""

from __future__ import annotations

from rookhold_exec.launcher import collect, group, meter, readback, spawn
from rookhold_types.isolation import Control
from rookhold_types.limits import (
    OUTPUT_FILE_BYTES_MAX,
    OUTPUT_FILES_BYTES_MAX,
    USAGE_SAMPLES_MAX,
)


def test_the_launcher_has_the_limits_of_the_contract() -> None:
    assert (collect.FILE_MAX, collect.TOTAL_MAX) == (OUTPUT_FILE_BYTES_MAX, OUTPUT_FILES_BYTES_MAX)
    assert meter.SAMPLES_MAX == USAGE_SAMPLES_MAX


def test_controls_have_the_names_that_receipts_have() -> None:
    named = {*readback.NAMESPACES.values(), *group.V1_CONTROL.values()}
    assert named <= set(Control)
    made = {*spawn.SUPERVISOR_FLAGS, *spawn.PAYLOAD_FLAGS}
    assert made < set(readback.NAMESPACES.values())
