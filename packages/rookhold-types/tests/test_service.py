"""The bodies about the service: compiled limits, honest defaults."""

from rookhold_types import (
    AttestationCapabilities,
    CapabilityLimits,
    Features,
    SchedulerStatus,
    Status,
    WhoAmI,
    limits,
    plain,
)


def test_capability_limits_are_the_compiled_ones() -> None:
    shown = plain(CapabilityLimits.compiled(mem_mb_max=1024, concurrent_mem_mb_max=4096))
    assert shown == {
        "wall_seconds_max": 300,
        "cpu_seconds_max": 240,
        "mem_mb_max": 1024,
        "concurrent_mem_mb_max": 4096,
        "pids_max": 1024,
        "file_mb_max": 512,
        "output_lines_max": 10000,
        "output_bytes_per_stream_max": 1048576,
        "output_record_bytes_max": 16384,
        "code_bytes_max": 1048576,
        "stdin_bytes_max": 1048576,
        "input_files_max": 32,
        "input_file_bytes_max": 2097152,
        "input_bytes_max": 4194304,
        "output_files_max": 32,
        "output_file_bytes_max": 2097152,
        "output_bytes_max": 4194304,
    }


def test_a_stream_and_a_collection_have_limits_of_their_own() -> None:
    shown = CapabilityLimits.compiled(mem_mb_max=1, concurrent_mem_mb_max=1)
    assert shown.output_bytes_per_stream_max == limits.OUTPUT_BYTES_MAX
    assert shown.output_bytes_max == limits.OUTPUT_FILES_BYTES_MAX


def test_a_feature_is_off_until_it_is_said_to_be_on() -> None:
    assert set(plain(Features()).values()) == {False}
    assert list(plain(Features())) == [
        "result_wait",
        "cancellation",
        "event_cursors",
        "stream_tickets",
        "receipts",
        "signed_attestations",
        "attestation_wait",
    ]


def test_signing_off_shows_nothing_but_that() -> None:
    shown = plain(AttestationCapabilities())
    assert shown.pop("enabled") is False
    assert set(shown.values()) == {None}


def test_members_of_status_and_whoami() -> None:
    assert Status.__struct_fields__ == (
        "version",
        "sandbox",
        "uptime_seconds",
        "environment",
        "execution",
        "scheduler",
        "storage_ready",
    )
    assert "shutting_down" in SchedulerStatus.__struct_fields__
    assert WhoAmI.__struct_fields__ == (
        "tenant",
        "principal_id",
        "credential_id",
        "auth_method",
        "scopes",
        "expires_at_ms",
    )
