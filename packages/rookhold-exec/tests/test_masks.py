"""What of /proc is covered, as a list and as mounts."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from rookhold_exec.launcher import masks

AT_LEAST = {
    *("acpi", "asound", "bus", "fs", "irq", "driver", "scsi", "kcore", "keys", "key-users", "kmsg"),
    *("interrupts", "latency_stats", "sched_debug", "timer_list", "timer_stats", "sysrq-trigger"),
    *("kallsyms", "modules", "config.gz", "cmdline", "partitions", "diskstats", "kpagecount"),
    *("kpageflags", "kpagecgroup", "slabinfo", "vmallocinfo", "locks"),
}


def test_every_entry_is_named_once_in_order_with_a_reason() -> None:
    names = [name for name, _ in masks.HIDDEN]
    assert names == sorted(set(names))
    assert set(names) >= AT_LEAST
    assert all(reason for _, reason in masks.HIDDEN)


def test_nothing_that_programs_need_is_covered() -> None:
    needed = {"cpuinfo", "meminfo", "self", "stat", "sys", "uptime", "version", "mounts", "net"}
    assert not needed & {name for name, _ in masks.HIDDEN}


def test_a_file_is_covered_by_the_null_device_and_a_directory_by_an_empty_one(
    tmp_path: Path,
) -> None:
    (tmp_path / "acpi").mkdir()
    (tmp_path / "keys").write_text("")
    assert masks.present(str(tmp_path)) == (
        (b"/dev/.empty", b"/proc/acpi"),
        (b"/dev/null", b"/proc/keys"),
    )


def test_a_development_sandbox_covers_a_few_of_them(tmp_path: Path) -> None:
    for name in ("cmdline", "kallsyms", "partitions"):
        (tmp_path / name).write_text("")
    assert {name for name, _ in masks.HIDDEN} >= masks.FEW
    assert masks.present(str(tmp_path), few=True) == (
        (b"/dev/null", b"/proc/cmdline"),
        (b"/dev/null", b"/proc/partitions"),
    )


@pytest.mark.linux_ns
def test_what_this_kernel_does_not_have_is_left_out() -> None:
    covered = {Path(os.fsdecode(target)).name for _, target in masks.present()}
    assert covered == {name for name, _ in masks.HIDDEN if os.path.lexists(f"/proc/{name}")}
