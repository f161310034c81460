"""Strict decoding: what two readers could understand differently is refused, and never quoted."""

import json
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rookhold_types import (
    DEPTH_MAX,
    InvalidJsonError,
    JobSpec,
    JobView,
    Limits,
    View,
    WireEvent,
    decode_strict,
    encode,
    plain,
)

SMALL = b'{"language":"python","code":"print(1)"}'
EVENT = b'{"seq":1,"ts_ms":1,"kind":"stdout","data":{},%s}'


def refusal(data: bytes, type_: Any = JobSpec) -> InvalidJsonError:
    with pytest.raises(InvalidJsonError) as caught:
        decode_strict(data, type_)
    assert caught.value.code == "invalid_json"
    assert caught.value.retryable is False
    return caught.value


class Other(View, frozen=True, kw_only=True):
    known: int = 0


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b" ",
        b"{",
        b"nope",
        b"\xef\xbb\xbf" + SMALL,
        SMALL + b"x",
        SMALL + SMALL,
        SMALL.decode().encode("utf-16"),
        SMALL.decode().encode("utf-32-le"),
        b'{"language":"python","code":"\xff"}',
        b'{"language":"python","code":"\xc0\xaf"}',
        b'{"language":"python","code":"\xed\xa0\x80"}',
        b'{"language":"python","code":"\xf4\x90\x80\x80"}',
        b'{"language":"python","code":"a\nb"}',
        b'{"language":"python","code":"a\x00b"}',
        b'{"language":"python","code":"\\ud800"}',
        b'{"language":"python","code":"\\udc00x"}',
        b'{"language":"python","code":"\\ud83d\\ud83d"}',
        b'{"language":"python","code":"x","stdin":"\\udfff"}',
        b'{"language":"python","code":"x","outputs":["output/\\ud800"]}',
        b'{"language":"python","code":"x",}',
        b"{'language':'python'}",
        b'{"language":"python","code":NaN}',
    ],
)
def test_what_is_not_one_utf8_json_document_is_malformed(data: bytes) -> None:
    assert refusal(data).detail["reason"] == "malformed"


@pytest.mark.parametrize(
    "data",
    [
        b"null",
        b"[]",
        b'"text"',
        b"{}",
        b'{"language":"python"}',
        b'{"code":"x"}',
        b'{"language":null,"code":"x"}',
        b'{"language":1,"code":"x"}',
        b'{"language":"python","code":["x"]}',
        b'{"language":"python","code":"x","stdin":1}',
        b'{"language":"python","code":"x","limits":null}',
        b'{"language":"python","code":"x","limits":[]}',
        b'{"language":"python","code":"x","files":null}',
        b'{"language":"python","code":"x","files":{}}',
        b'{"language":"python","code":"x","files":[{"path":"input/a"}]}',
        b'{"language":"python","code":"x","files":[{"content_base64":""}]}',
        b'{"language":"python","code":"x","outputs":"output/a"}',
        b'{"language":"python","code":"x","outputs":[1]}',
        b'{"language":"python","code":"x","requirements":null}',
        b'{"language":"python","code":"x","requirements":{"minimum_isolation":"strong"}}',
        b'{"language":"python","code":"x","requirements":{"minimum_isolation":"None"}}',
        b'{"language":"python","code":"x","requirements":{"minimum_isolation":null}}',
        b'{"language":"python","code":"x","runtime":{}}',
    ],
)
def test_a_missing_or_mistyped_member_is_a_mismatch(data: bytes) -> None:
    assert refusal(data).detail["reason"] == "mismatch"


@pytest.mark.parametrize(
    "member",
    [
        b'"extra":1',
        b'"Language":"python"',
        b'"limits":{"extra":1}',
        b'"limits":{"wall_ms":1}',
        b'"requirements":{"extra":"none"}',
        b'"files":[{"path":"input/a","content_base64":"","mode":1}]',
        b'"":1',
    ],
)
def test_an_unknown_member_is_refused_at_every_level(member: bytes) -> None:
    assert refusal(SMALL[:-1] + b"," + member + b"}").detail == {"reason": "mismatch"}


@pytest.mark.parametrize(
    "member",
    [
        b'"language":"python"',
        b'"code":"print(1)"',
        b'"c\\u006fde":"print(2)"',
        b'"stdin":null,"stdin":null',
        b'"limits":{"mem_mb":1,"mem_mb":1}',
        b'"limits":{"mem_mb":1,"\\u006dem_mb":2}',
        b'"requirements":{"minimum_isolation":"none","minimum_isolation":"none"}',
        b'"files":[{"path":"input/a","path":"input/b","content_base64":""}]',
        b'"files":[],"files":[]',
    ],
)
def test_a_repeated_member_is_refused_at_every_level(member: bytes) -> None:
    assert refusal(SMALL[:-1] + b"," + member + b"}").detail == {"reason": "duplicate_member"}


@pytest.mark.parametrize(
    "number",
    ["-1", "4294967296", "1.5", "1.0", "1e1", "true", '"1"', "null", "18446744073709551616"],
)
@pytest.mark.parametrize(
    "member", ["wall_seconds", "cpu_seconds", "mem_mb", "max_pids", "max_file_mb"]
)
def test_a_limit_that_is_no_unsigned_32_bit_integer_is_refused(member: str, number: str) -> None:
    error = refusal(f'{{"{member}":{number}}}'.encode(), Limits)
    assert error.detail == {"reason": "mismatch", "path": f"$.{member}"}


@pytest.mark.parametrize("body", [b'{"wall_seconds":-0}', b'{"mem_mb":1,"pids":[{"x":-0}]}'])
def test_zero_has_no_sign(body: bytes) -> None:
    assert refusal(body, Limits).detail == {"reason": "mismatch"}


@pytest.mark.parametrize("number", [0, 1, 2**32 - 1])
def test_any_unsigned_32_bit_integer_decodes_as_a_limit(number: int) -> None:
    assert decode_strict(b'{"mem_mb":%d}' % number, Limits).mem_mb == number


@pytest.mark.parametrize("value", ["0", "1", "null", '"false"'])
def test_allow_network_is_a_boolean_and_nothing_else(value: str) -> None:
    refusal(f'{{"allow_network":{value}}}'.encode(), Limits)


@pytest.mark.parametrize(
    "nested",
    [b'{"a":1,"a":2}', b'[{"b":{"c":1,"c":1}}]', b'"\\ud800"', b'"\xff"', b"NaN", b'{"\xff":1}'],
)
def test_members_that_a_view_skips_are_checked_all_the_same(nested: bytes) -> None:
    refusal(b'{"known":1,"unknown":%s}' % nested, Other)
    refusal(EVENT % (b'"unknown":%s' % nested), WireEvent)


def test_a_view_reads_what_a_newer_server_adds() -> None:
    assert decode_strict(b'{"known":3,"unknown":{"a":[1.5,null]}}', Other) == Other(known=3)


def test_a_view_still_insists_on_what_it_knows() -> None:
    assert refusal(b'{"known":"3"}', Other).detail["path"] == "$.known"
    row = b'{"job_id":"a","tenant":"t","language":"x","status":"%s","created_at_ms":1}'
    assert decode_strict(row % b"running", JobView).status == "running"
    refusal(row % b"done", JobView)


@pytest.mark.parametrize("bracket", ["[]", "{}"])
@pytest.mark.parametrize("depth", [DEPTH_MAX + 1, 300, 2_000, 500_000])
def test_deep_nesting_is_refused_cleanly(depth: int, bracket: str) -> None:
    opening = "[" if bracket == "[]" else '{"a":'
    body = opening * depth + "1" + bracket[1] * depth
    assert refusal(body.encode(), Any).detail == {"reason": "too_deep"}
    assert refusal(b'{"unknown":%s}' % body.encode(), Other).detail == {"reason": "too_deep"}


@pytest.mark.parametrize("depth", [2_000, 500_000])
def test_nesting_that_never_closes_is_refused_cleanly(depth: int) -> None:
    for opening in (b"[", b'{"a":'):
        assert refusal(opening * depth, Any).code == "invalid_json"
        assert refusal(SMALL[:-1] + b',"files":' + opening * depth).code == "invalid_json"


def test_nesting_at_the_bound_is_read() -> None:
    body = b"[" * DEPTH_MAX + b"]" * DEPTH_MAX
    value, depth = decode_strict(body, Any), 0
    while value:
        value, depth = value[0], depth + 1
    assert depth == DEPTH_MAX - 1


def test_many_brackets_side_by_side_are_not_depth() -> None:
    body = b"[%s]" % b",".join([b'{"a":[]}'] * 1000)
    assert len(decode_strict(body, Any)) == 1000


def test_brackets_inside_texts_are_not_depth() -> None:
    code = "[{" * 5000
    spec = decode_strict(json.dumps({"language": "python", "code": code}).encode(), JobSpec)
    assert spec.code == code


@pytest.mark.parametrize(
    "data",
    [
        b'{"language":"hunter2","code":"hunter2","hunter2":1}',
        b'{"language":"python","code":1,"stdin":"hunter2"}',
        b'{"language":"python","code":"x","hunter2":1,"hunter2":1}',
        b'{"language":"python","code":"x","stdin":"hunter2","stdin":"hunter2"}',
        b'{"language":"python","code":"x","requirements":{"minimum_isolation":"hunter2"}}',
        b'{"language":"python","code":"hunter2\xff"}',
        b'{"language":"python","code":"hunter2',
        b'{"language":"python","code":"x","x` - at `$.hunter2":1}',
        b'{"language":"x","code":"x","requirements":{"minimum_isolation":"` - at `$.hunter2"}}',
    ],
)
def test_a_refusal_quotes_nothing_of_the_content(data: bytes) -> None:
    error = refusal(data)
    assert "hunter2" not in f"{error} {error.detail}"


def test_a_refusal_says_where_by_our_own_names() -> None:
    body = SMALL[:-1] + b',"files":[{"path":"input/a","content_base64":1}]}'
    assert refusal(body).detail["path"] == "$.files[0].content_base64"


def test_the_path_into_free_data_hides_its_keys() -> None:
    error = refusal(b'{"hunter2":{"x":"y"}}', dict[str, dict[str, int]])
    assert error.detail.get("path") == "$[...][...]"


@pytest.mark.parametrize("data", [b'{"language":"p"', b'{"a":1}', b'{"known":1,"known":1}'])
def test_a_refusal_keeps_no_traceback_to_the_content(data: bytes) -> None:
    error = refusal(data, Other if b"known" in data else JobSpec)
    assert error.__suppress_context__


def test_whitespace_around_the_document_is_fine() -> None:
    assert decode_strict(b" \n" + SMALL + b"\r\n\t", JobSpec).code == "print(1)"


def test_surrogate_pairs_are_one_character() -> None:
    assert decode_strict(b'{"language":"x","code":"\\ud83d\\ude00"}', JobSpec).code == "\U0001f600"


@given(st.binary(max_size=200))
def test_no_bytes_raise_anything_else(data: bytes) -> None:
    try:
        decode_strict(data, Any)
    except InvalidJsonError:
        return
    json.loads(data.decode())  # whatever we accept, the standard reader accepts


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@given(JSON)
def test_any_json_is_a_job_spec_or_invalid_json(value: Any) -> None:
    data = json.dumps(value).encode()  # its escapes include lone surrogates
    with pytest.raises(InvalidJsonError):
        decode_strict(data, JobSpec)


def test_encode_is_compact_and_in_declared_order() -> None:
    assert encode(Other(known=1)) == b'{"known":1}'


def test_plain_is_made_of_plain_values() -> None:
    spec = decode_strict(SMALL, JobSpec)
    value = plain(spec)
    assert type(value["files"]) is list
    assert type(value["requirements"]["minimum_isolation"]) is str


def test_a_large_body_decodes_within_bounds() -> None:
    text = "\\u0041" * (1024 * 1024)
    body = f'{{"language":"python","code":"{text}","stdin":"{text}"}}'.encode()
    before = time.perf_counter()
    spec = decode_strict(body, JobSpec)
    assert time.perf_counter() - before < 5  # about 0.1 s
    assert len(spec.code) == 1024 * 1024


@pytest.mark.parametrize(
    "body",
    [b"[" * 12_000_000, b'{"z":[' + b"{}," * 4_000_000, b"1" * 12_000_000],
    ids=["open-brackets", "unknown-member", "digits"],
)
def test_a_large_hostile_body_is_refused_at_once(body: bytes) -> None:
    before = time.perf_counter()
    refusal(body)
    assert time.perf_counter() - before < 2  # well under 0.1 s
