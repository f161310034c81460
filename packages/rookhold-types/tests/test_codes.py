"""The table of error codes against itself and against what its statuses mean."""

import re

import pytest

from rookhold_types import ERRORS

TENANT_FULL = {
    "tenant_submit_body_capacity",
    "tenant_queue_saturated",
    "tenant_storage_quota",
    "tenant_response_capacity",
    "tenant_result_wait_capacity",
    "tenant_stream_capacity",
}
SERVER_FULL = {
    "submit_body_capacity",
    "queue_saturated",
    "storage_capacity",
    "response_capacity",
    "result_wait_capacity",
    "stream_capacity",
}
BY_STATUS = {
    400: {
        "invalid_json",
        "invalid_idempotency_key",
        "empty_code",
        "invalid_input_path",
        "duplicate_input_path",
        "invalid_input_base64",
        "invalid_output_path",
        "duplicate_output_path",
        "network_opt_in_unsupported",
        "unsupported_language",
        "unknown_query_parameter",
        "invalid_limit",
        "invalid_cursor",
        "invalid_status",
        "invalid_event_cursor",
        "invalid_wait_seconds",
    },
    401: {
        "missing_api_key",
        "invalid_api_key",
        "invalid_authorization",
        "invalid_stream_ticket",
        "missing_auth_context",
        "missing_tenant",
        "invalid_metrics_token",
    },
    403: {"insufficient_scope"},
    404: {
        "not_found",
        "job_not_found",
        "attestation_pending",
        "attestation_unavailable",
        "result_artifact_unavailable",
        "attestations_disabled",
        "oauth_not_configured",
        "metrics_disabled",
    },
    405: {"method_not_allowed"},
    408: {"request_body_timeout"},
    413: {
        "request_body_too_large",
        "code_too_large",
        "stdin_too_large",
        "too_many_input_files",
        "input_file_too_large",
        "input_files_too_large",
        "too_many_output_files",
    },
    415: {"unsupported_media_type"},
    422: {
        "idempotency_key_reused",
        "minimum_isolation_unsatisfied",
        "runtime_unavailable",
        "runtime_pack_unavailable",
        "runtime_pack_requires_isolation",
        "capability_unavailable",
    },
    426: {"upgrade_required"},
    429: TENANT_FULL | {"rate_limit_exceeded"},
    500: {"internal_error"},
    503: SERVER_FULL
    | {"scheduler_unavailable", "startup_recovery", "shutting_down", "storage_unavailable"},
    507: {"storage_reserve"},
}


def test_every_code_has_the_status_of_its_group() -> None:
    assert {code: fact.status for code, fact in ERRORS.items()} == {
        code: status for status, codes in BY_STATUS.items() for code in codes
    }


@pytest.mark.parametrize("code", ERRORS)
def test_a_code_is_lower_snake_case_with_a_sentence(code: str) -> None:
    assert re.fullmatch(r"[a-z]+(_[a-z0-9]+)*", code)
    assert re.fullmatch(r"[A-Za-z_].*\.", ERRORS[code].message)


@pytest.mark.parametrize("code", ERRORS)
def test_exhaustion_and_delay_may_be_retried_and_mistakes_may_not(code: str) -> None:
    fact = ERRORS[code]
    assert fact.retryable == (
        fact.status in {408, 429, 500, 503, 507} or code == "attestation_pending"
    )


def test_retry_after_is_one_second_but_where_it_is_computed_or_unknown() -> None:
    without = {code for code, fact in ERRORS.items() if fact.retryable and fact.retry_after is None}
    assert without == {"rate_limit_exceeded", "internal_error"}
    assert {fact.retry_after for fact in ERRORS.values()} == {None, 1}


@pytest.mark.parametrize("code", [c for c, fact in ERRORS.items() if not fact.retryable])
def test_what_may_not_be_retried_has_no_retry_after(code: str) -> None:
    assert ERRORS[code].retry_after is None


def test_each_tenant_capacity_has_its_global_twin() -> None:
    twins = {code.removeprefix("tenant_") for code in TENANT_FULL - {"tenant_storage_quota"}}
    assert twins == SERVER_FULL - {"storage_capacity"}


def test_the_table_cannot_be_changed() -> None:
    with pytest.raises(TypeError):
        ERRORS["not_found"] = ERRORS["job_not_found"]  # type: ignore[index]
    with pytest.raises(AttributeError):
        ERRORS["not_found"].status = 200  # type: ignore[misc]
