"""The job specification: defaults, stored form and fingerprint."""

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rookhold_types import (
    CanonicalError,
    EffectiveJobSpec,
    EffectiveLimits,
    IsolationClass,
    JobFile,
    JobSpec,
    Limits,
    Requirements,
    canonical,
    canonical_sha256,
    decode_strict,
    encode,
    fingerprint,
    stored_text,
)

SMALL = b'{"language":"python","code":"print(1)"}'
SMALL_FINGERPRINT = "273b77c3d573f12bf1bc0c302c94e10b7f9b25dd44aed0d92fa8ae1210b84da2"
FULL: dict[str, Any] = {
    "language": "node",
    "code": "console.log('é\u2028\U0001f600')",
    "stdin": "in\n",
    "limits": {
        "wall_seconds": 1,
        "cpu_seconds": 2,
        "mem_mb": 3,
        "max_pids": 4,
        "max_file_mb": 5,
        "allow_network": True,
    },
    "requirements": {"minimum_isolation": "hardware-vm"},
    "files": [{"path": "input/a", "content_base64": "YQ=="}],
    "outputs": ["output/b", "output/a"],
    "runtime": "node:x",
}

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
U32 = st.integers(0, 2**32 - 1)
SPECS = st.builds(
    JobSpec,
    language=TEXTS,
    code=TEXTS,
    stdin=st.none() | TEXTS,
    limits=st.builds(Limits, wall_seconds=U32, mem_mb=U32, allow_network=st.booleans()),
    requirements=st.builds(Requirements, minimum_isolation=st.sampled_from(IsolationClass)),
    files=st.lists(st.builds(JobFile, path=TEXTS, content_base64=TEXTS), max_size=3).map(tuple),
    outputs=st.lists(TEXTS, max_size=3).map(tuple),
    runtime=st.none() | TEXTS,
)


def decode(value: object) -> JobSpec:
    return decode_strict(json.dumps(value).encode(), JobSpec)


def test_the_fingerprint_of_the_smallest_job_is_the_published_one() -> None:
    spec = decode_strict(SMALL, JobSpec)
    assert fingerprint(spec) == SMALL_FINGERPRINT
    assert len(stored_text(spec)) == 248
    assert list(json.loads(stored_text(spec))) == [
        "code",
        "files",
        "language",
        "limits",
        "outputs",
        "requirements",
        "runtime",
        "stdin",
    ]


@pytest.mark.parametrize(
    "body",
    [
        b'{"code":"print(1)","language":"python"}',
        b' { "language" : "python" ,\n"code" : "print(1)" } ',
        b'{"language":"python","code":"\\u0070rint(1)"}',
        b'{"language":"python","code":"print(1)","stdin":null,"runtime":null}',
        b'{"language":"python","code":"print(1)","files":[],"outputs":[]}',
        b'{"language":"python","code":"print(1)","limits":{}}',
        b'{"language":"python","code":"print(1)","limits":{"mem_mb":256}}',
        b'{"language":"python","code":"print(1)","limits":{"allow_network":false}}',
        b'{"language":"python","code":"print(1)","requirements":{}}',
        b'{"language":"python","code":"print(1)","requirements":{"minimum_isolation":"none"}}',
    ],
)
def test_order_whitespace_escapes_and_explicit_defaults_make_no_difference(body: bytes) -> None:
    assert fingerprint(decode_strict(body, JobSpec)) == SMALL_FINGERPRINT


@pytest.mark.parametrize(
    "change",
    [
        {"language": "Python"},
        {"code": "print(1) "},
        {"code": "print(1)\n"},
        {"stdin": ""},
        {"limits": {"wall_seconds": 300}},
        {"limits": {"wall_seconds": 99999}},
        {"limits": {"wall_seconds": 0}},
        {"limits": {"allow_network": True}},
        {"requirements": {"minimum_isolation": "linux-shared-kernel"}},
        {"files": [{"path": "input/a", "content_base64": ""}]},
        {"outputs": ["output/a"]},
        {"outputs": ["output/a", "output/b"]},
        {"outputs": ["output/b", "output/a"]},
        {"runtime": ""},
    ],
)
def test_every_real_difference_changes_the_fingerprint(change: dict[str, object]) -> None:
    assert fingerprint(decode(json.loads(SMALL) | change)) != SMALL_FINGERPRINT


def test_clamping_is_not_applied() -> None:
    high, ceiling = (
        decode(json.loads(SMALL) | {"limits": {"wall_seconds": n}}) for n in (99999, 300)
    )
    assert fingerprint(high) != fingerprint(ceiling)
    assert high.stored()["limits"]["wall_seconds"] == 99999


@given(SPECS, SPECS)
def test_equal_fingerprints_mean_equal_specs(a: JobSpec, b: JobSpec) -> None:
    assert (fingerprint(a) == fingerprint(b)) == (a == b)


@given(SPECS)
def test_the_stored_text_is_the_canonical_json_of_the_stored_form(spec: JobSpec) -> None:
    assert stored_text(spec) == canonical(spec.stored())
    assert fingerprint(spec) == canonical_sha256(spec.stored())


@given(SPECS)
def test_a_stored_spec_decodes_to_itself(spec: JobSpec) -> None:
    assert decode_strict(stored_text(spec), JobSpec) == spec
    assert decode_strict(encode(spec), JobSpec) == spec


def test_every_member_is_stored_as_sent() -> None:
    assert decode(FULL).stored() == FULL


def test_defaults_are_filled_in() -> None:
    assert decode_strict(SMALL, JobSpec).stored() == {
        "language": "python",
        "code": "print(1)",
        "stdin": None,
        "limits": {
            "wall_seconds": 15,
            "cpu_seconds": 10,
            "mem_mb": 256,
            "max_pids": 128,
            "max_file_mb": 16,
            "allow_network": False,
        },
        "requirements": {"minimum_isolation": "none"},
        "files": [],
        "outputs": [],
        "runtime": None,
    }


def test_limits_may_be_partial() -> None:
    spec = decode(json.loads(SMALL) | {"limits": {"max_pids": 9}})
    assert spec.limits == Limits(max_pids=9)


def test_a_spec_made_in_memory_with_a_lone_surrogate_has_no_fingerprint() -> None:
    with pytest.raises(CanonicalError):
        fingerprint(JobSpec(language="python", code=chr(0xD800)))


@pytest.mark.parametrize("member", ["language", "code", "limits", "files"])
def test_a_spec_cannot_be_changed(member: str) -> None:
    with pytest.raises(AttributeError):
        setattr(decode_strict(SMALL, JobSpec), member, None)


def test_the_effective_spec_is_the_request_with_the_observed_limits() -> None:
    limits = EffectiveLimits(wall_seconds=1, allow_network=False)
    effective = EffectiveJobSpec.of(decode(FULL), limits, "hardware-vm")
    assert msgspec.to_builtins(effective) == FULL | {
        "files": tuple(FULL["files"]),
        "outputs": tuple(FULL["outputs"]),
        "isolation_class": "hardware-vm",
        "limits": {
            "wall_seconds": 1,
            "cpu_seconds": None,
            "mem_mb": None,
            "max_pids": None,
            "max_file_mb": None,
            "allow_network": False,
        },
    }


def test_a_reader_of_effective_specs_keeps_working_with_newer_members() -> None:
    effective = EffectiveJobSpec.of(decode(FULL), EffectiveLimits.none(), None)
    newer = json.loads(encode(effective))
    for part in (newer, newer["limits"], newer["requirements"], newer["files"][0]):
        part["added_later"] = [1]
    newer["requirements"]["minimum_isolation"] = "a-later-class"
    read = decode_strict(json.dumps(newer).encode(), EffectiveJobSpec)
    assert read.requirements.minimum_isolation == "a-later-class"
    assert read.files == effective.files
