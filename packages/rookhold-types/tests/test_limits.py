"""Limits: defaults, clamping to the compiled bounds, and honest claims about enforcement."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rookhold_types import (
    LIMIT_BOUNDS,
    EffectiveLimits,
    LimitEnforcement,
    Limits,
    RequestedLimits,
    clamp,
    limits,
    memory_charge_mb,
    plain,
    workspace_bytes,
)

U32 = st.integers(0, 2**32 - 1)
ANY_LIMITS = st.builds(
    Limits, wall_seconds=U32, cpu_seconds=U32, mem_mb=U32, max_pids=U32, max_file_mb=U32
)
NUMBERS = tuple(LIMIT_BOUNDS)
TABLE = {
    "wall_seconds": (15, 1, 300),
    "cpu_seconds": (10, 1, 240),
    "mem_mb": (256, 16, 4096),
    "max_pids": (128, 8, 1024),
    "max_file_mb": (16, 1, 512),
}


def test_bounds_are_those_of_the_table() -> None:
    assert {n: (b.default, b.floor, b.ceiling) for n, b in LIMIT_BOUNDS.items()} == TABLE


def test_the_defaults_are_within_their_bounds_and_clamp_to_themselves() -> None:
    assert clamp(Limits()) == Limits()
    assert plain(Limits()) == {n: b.default for n, b in LIMIT_BOUNDS.items()} | {
        "allow_network": False
    }


@pytest.mark.parametrize("struct", [Limits, RequestedLimits, EffectiveLimits])
def test_every_shape_of_limits_has_the_same_members(struct: type[Limits]) -> None:
    assert struct.__struct_fields__ == (*NUMBERS, "allow_network")


@pytest.mark.parametrize("name", NUMBERS)
def test_zero_is_the_floor_and_never_unlimited(name: str) -> None:
    assert getattr(clamp(Limits(**{name: 0})), name) == LIMIT_BOUNDS[name].floor


@pytest.mark.parametrize("name", NUMBERS)
def test_a_huge_value_is_the_ceiling(name: str) -> None:
    clamped = clamp(Limits(**{name: 2**32 - 1}), mem_ceiling_mb=2**31)
    assert getattr(clamped, name) == LIMIT_BOUNDS[name].ceiling


@given(ANY_LIMITS, st.integers(16, 10_000))
def test_clamped_limits_are_always_within_bounds(asked: Limits, ceiling: int) -> None:
    clamped = clamp(asked, ceiling)
    for name, bounds in LIMIT_BOUNDS.items():
        assert bounds.floor <= getattr(clamped, name) <= bounds.ceiling
    assert clamped.mem_mb <= ceiling


@given(ANY_LIMITS, st.integers(16, 10_000))
def test_clamping_twice_changes_nothing_more(asked: Limits, ceiling: int) -> None:
    assert clamp(clamp(asked, ceiling), ceiling) == clamp(asked, ceiling)


@given(ANY_LIMITS)
def test_a_value_within_its_bounds_is_kept(asked: Limits) -> None:
    clamped = clamp(asked, 4096)
    for name, bounds in LIMIT_BOUNDS.items():
        if bounds.floor <= getattr(asked, name) <= bounds.ceiling:
            assert getattr(clamped, name) == getattr(asked, name)


@given(ANY_LIMITS, st.integers(1, 10_000), st.integers(1, 10_000))
def test_a_lower_ceiling_tightens_and_a_higher_one_never_loosens(
    asked: Limits, admitted: int, later: int
) -> None:
    at_admission = memory_charge_mb(asked.mem_mb, admitted)
    assert memory_charge_mb(at_admission, later) <= at_admission


@pytest.mark.parametrize(
    ("mem_mb", "ceiling", "charge"),
    [
        (0, 1024, 16),
        (15, 1024, 16),
        (16, 1024, 16),
        (256, 1024, 256),
        (1025, 1024, 1024),
        (5000, 9999, 4096),
        (2**32 - 1, 2**40, 4096),
        (256, 8, 16),
        (0, 0, 16),
    ],
)
def test_the_memory_charge_is_clamped_and_never_zero(
    mem_mb: int, ceiling: int, charge: int
) -> None:
    assert memory_charge_mb(mem_mb, ceiling) == charge
    assert clamp(Limits(mem_mb=mem_mb), ceiling).mem_mb == charge


def test_the_ceiling_is_one_gibibyte_unless_configured() -> None:
    assert clamp(Limits(mem_mb=4096)).mem_mb == 1024


@pytest.mark.parametrize(
    ("flag", "member"),
    [
        ("wall", "wall_seconds"),
        ("cpu", "cpu_seconds"),
        ("mem", "mem_mb"),
        ("pids", "max_pids"),
        ("file", "max_file_mb"),
    ],
)
def test_a_limit_is_claimed_exactly_where_it_was_enforced(flag: str, member: str) -> None:
    everything = LimitEnforcement(wall=True, cpu=True, mem=True, pids=True, file=True)
    only = EffectiveLimits.observed(Limits(), LimitEnforcement(**{flag: True}), network=False)
    all_but = EffectiveLimits.observed(
        Limits(), LimitEnforcement(**(plain(everything) | {flag: False})), network=None
    )
    assert plain(only) == plain(EffectiveLimits.none()) | {
        member: LIMIT_BOUNDS[member].default,
        "allow_network": False,
    }
    assert [name for name in NUMBERS if getattr(all_but, name) is None] == [member]


def test_nothing_observed_is_all_null() -> None:
    assert set(plain(EffectiveLimits.none()).values()) == {None}
    assert set(plain(LimitEnforcement.none()).values()) == {False}


def test_the_body_limit_fits_the_largest_escaped_spec() -> None:
    base64_files = limits.INPUT_BYTES_MAX * 4 // 3
    texts = 6 * (limits.CODE_BYTES_MAX + limits.STDIN_BYTES_MAX)
    assert texts + base64_files < limits.BODY_BYTES_MAX


def test_compiled_sizes_are_those_of_the_contract() -> None:
    assert limits.CODE_BYTES_MAX == limits.STDIN_BYTES_MAX == limits.OUTPUT_BYTES_MAX == 1_048_576
    assert limits.INPUT_FILE_BYTES_MAX == limits.OUTPUT_FILE_BYTES_MAX == 2_097_152
    assert limits.INPUT_BYTES_MAX == limits.OUTPUT_FILES_BYTES_MAX == 4_194_304
    assert limits.INPUT_FILES_MAX == limits.OUTPUT_FILES_MAX == 32
    assert (limits.OUTPUT_LINES_MAX, limits.OUTPUT_RECORD_BYTES_MAX) == (10_000, 16_384)
    assert limits.BODY_BYTES_MAX == 25_165_824


@pytest.mark.parametrize(
    ("mem_mb", "file_mb", "charged", "uncharged"),
    [
        (256, 16, 64, 64),
        (256, 100, 128, 200),
        (100, 512, 50, 100),
        (16, 1, 8, 16),
        (4096, 512, 1024, 1024),
    ],
)
def test_scratch_space_is_for_two_large_files_within_the_memory(
    mem_mb: int, file_mb: int, charged: int, uncharged: int
) -> None:
    wanted = clamp(Limits(mem_mb=mem_mb, max_file_mb=file_mb), mem_ceiling_mb=4096)
    assert workspace_bytes(wanted, charged=True) == charged * limits.MIB
    assert workspace_bytes(wanted, charged=False) == uncharged * limits.MIB


@given(ANY_LIMITS, st.booleans())
def test_scratch_space_never_outgrows_the_memory(asked: Limits, charged: bool) -> None:
    wanted = clamp(asked)
    space = workspace_bytes(wanted, charged=charged)
    assert 0 < space <= wanted.mem_mb * limits.MIB // (2 if charged else 1)
