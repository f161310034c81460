"""check_spec: every refusal with its code, and the order that decides between several."""

import base64
import itertools

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rookhold_types import (
    ERRORS,
    PACKS,
    InputFile,
    IsolationClass,
    JobFile,
    JobSpec,
    Limits,
    Requirements,
    SpecError,
    check_spec,
    decode_files,
)

MIB = 1024 * 1024
NONE, LINUX = IsolationClass.NONE, IsolationClass.LINUX_SHARED_KERNEL
GOOD = JobSpec(language="python", code="print(1)")


def check(
    spec: JobSpec,
    *,
    available: tuple[str, ...] = ("python", "bash"),
    backend_class: IsolationClass = NONE,
    packs: tuple[str, ...] = (),
) -> tuple[InputFile, ...]:
    return check_spec(spec, available_languages=available, backend_class=backend_class, packs=packs)


def code_of(spec: JobSpec, **host: object) -> str:
    with pytest.raises(SpecError) as caught:
        check(spec, **host)  # type: ignore[arg-type]
    return caught.value.code


def with_(**changes: object) -> JobSpec:
    return msgspec.structs.replace(GOOD, **changes)


def files(*pairs: tuple[str, str]) -> tuple[JobFile, ...]:
    return tuple(JobFile(path=path, content_base64=text) for path, text in pairs)


def b64(content: bytes) -> str:
    return base64.b64encode(content).decode()


# One faulty change for each check, in the order in which the checks are made.
FAULTS: list[tuple[str, dict[str, object]]] = [
    (
        "minimum_isolation_unsatisfied",
        {"requirements": Requirements(minimum_isolation=IsolationClass.WASM_CAPABILITY)},
    ),
    ("unsupported_language", {"language": "ruby"}),
    ("runtime_unavailable", {"language": "node"}),
    ("empty_code", {"code": " \n\t"}),
    ("code_too_large", {"code": "x" * (MIB + 1)}),
    ("stdin_too_large", {"stdin": "x" * (MIB + 1)}),
    ("too_many_input_files", {"files": files(*((f"input/{n}", "") for n in range(33)))}),
    ("invalid_input_path", {"files": files(("input/../a", ""))}),
    ("duplicate_input_path", {"files": files(("input/a", ""), ("input/a", ""))}),
    ("invalid_input_base64", {"files": files(("input/a", "YQ"))}),
    ("input_file_too_large", {"files": files(("input/a", b64(bytes(2 * MIB + 1))))}),
    (
        "input_files_too_large",
        {"files": files(*((f"input/{n}", b64(bytes(MIB * 3 // 2))) for n in range(3)))},
    ),
    ("too_many_output_files", {"outputs": tuple(f"output/{n}" for n in range(33))}),
    ("invalid_output_path", {"outputs": ("output",)}),
    ("duplicate_output_path", {"outputs": ("output/a", "output/a")}),
    ("runtime_pack_unavailable", {"runtime": PACKS["bash"]}),
    ("runtime_pack_requires_isolation", {"runtime": PACKS["python"]}),
    ("network_opt_in_unsupported", {"limits": Limits(allow_network=True)}),
]
ORDER = {code: place for place, (code, _) in enumerate(FAULTS)}


@pytest.mark.parametrize(("code", "change"), FAULTS, ids=[code for code, _ in FAULTS])
def test_each_fault_alone_has_its_code(code: str, change: dict[str, object]) -> None:
    assert code_of(with_(**change)) == code
    assert code in ERRORS


@pytest.mark.parametrize(
    ("first", "second"),
    [
        pytest.param(a, b, id=f"{a[0]}-before-{b[0]}")
        for a, b in itertools.combinations(FAULTS, 2)
        if not a[1].keys() & b[1].keys()
    ],
)
def test_of_two_faults_the_earlier_check_answers(
    first: tuple[str, dict[str, object]], second: tuple[str, dict[str, object]]
) -> None:
    assert code_of(with_(**second[1], **first[1])) == first[0]


def test_a_faultless_spec_passes_with_its_files_decoded() -> None:
    spec = with_(
        stdin="",
        files=files(("input/a", ""), ("input/b/ü", b64(b"\x00\xff")), ("input/A", "YQ==")),
        outputs=("output/a", "output/b"),
        limits=Limits(wall_seconds=0, mem_mb=2**32 - 1),
    )
    assert check(spec) == (
        InputFile("input/a", b""),
        InputFile("input/b/ü", b"\x00\xff"),
        InputFile("input/A", b"a"),
    )


@pytest.mark.parametrize(
    "paths",
    [
        ("a", "a/b"),
        ("a/b", "a"),
        ("a/b/c/d", "a/b"),
        ("a/b", "a/c", "a"),
        ("x", "a/b/c", "a/b/c/d"),
    ],
    ids=" ".join,
)
def test_no_path_is_a_file_and_a_folder(paths: tuple[str, ...]) -> None:
    inputs = files(*((f"input/{path}", "") for path in paths))
    outputs = tuple(f"output/{path}" for path in paths)
    for member, value in (("files", inputs), ("outputs", outputs)):
        with pytest.raises(SpecError) as caught:
            check(with_(**{member: value}))
        assert caught.value.code == {"files": "invalid_input_path"}.get(
            member, "invalid_output_path"
        )
        assert caught.value.detail["index"] == len(paths) - 1, "the later one is named"


def test_names_that_only_begin_alike_are_two_files() -> None:
    paths = ("a/b", "a/bc", "ab", "a/b.d/c", "A")
    check(with_(files=files(*((f"input/{path}", "") for path in paths))))
    check(with_(outputs=tuple(f"output/{path}" for path in paths)))


def test_everything_at_its_limit_passes() -> None:
    spec = with_(
        code="x" * MIB,
        stdin="é" * (MIB // 2),
        files=files(
            ("input/a", b64(bytes(2 * MIB))),
            ("input/b", b64(bytes(2 * MIB))),
            *((f"input/{n}", "") for n in range(30)),
        ),
        outputs=tuple(f"output/{n}" for n in range(32)),
    )
    assert len(check(spec)) == 32


@pytest.mark.parametrize("code", ["", " ", "\n\r\t\v\f", "\u2028\u3000\xa0\u1680"])
def test_blank_code_is_empty(code: str) -> None:
    assert code_of(with_(code=code)) == "empty_code"


def test_blank_code_over_the_limit_is_empty_first() -> None:
    assert code_of(with_(code=" " * (MIB + 1))) == "empty_code"


@pytest.mark.parametrize(("character", "size"), [("x", 1), ("é", 2), ("名", 3), ("😀", 4)])
def test_texts_are_measured_in_utf8_bytes(character: str, size: int) -> None:
    fits = character * (MIB // size)
    check(with_(code=fits, stdin=fits))
    assert code_of(with_(code=fits + character)) == "code_too_large"
    assert code_of(with_(stdin=fits + character)) == "stdin_too_large"


@pytest.mark.parametrize(
    "language", ["", "Python", "PYTHON", "python ", " python", "python3", "nodejs", "sh", "py\x00"]
)
def test_a_language_is_matched_exactly(language: str) -> None:
    assert code_of(with_(language=language)) == "unsupported_language"


def test_an_unknown_language_is_unknown_wherever_it_runs() -> None:
    assert code_of(with_(language="ruby"), available=("ruby",)) == "unsupported_language"


@pytest.mark.parametrize(
    "text",
    [
        "Y",
        "YQ",
        "YQ=",
        "YQ===",
        "YQ==YQ==",
        "YR==",
        "YWJ=",
        "=",
        "====",
        "YQ==\n",
        "\nYQ==",
        "Y Q==",
        "YQ= =",
        "YW-_",
        "-_-_",
        "YQ%3D%3D",
        "YQ==é",
        "ＹＱ＝＝",  # noqa: RUF001  full-width letters are the point
        "YWJj\x00",
        "YWJj!",
        "data:;base64,YQ==",
        chr(0xD800),
    ],
)
def test_base64_has_one_spelling(text: str) -> None:
    assert code_of(with_(files=files(("input/a", text)))) == "invalid_input_base64"


@given(st.binary(max_size=100))
def test_what_base64_encodes_is_decoded(content: bytes) -> None:
    assert decode_files(with_(files=files(("input/a", b64(content))))) == (
        InputFile("input/a", content),
    )


@given(st.text("YQ=ab+/-_ \n", max_size=12))
def test_accepted_base64_is_exactly_what_encoding_gives_back(text: str) -> None:
    spec = with_(files=files(("input/a", text)))
    try:
        canonical_text = b64(base64.b64decode(text, validate=True)) == text
    except ValueError:
        canonical_text = False
    if canonical_text:
        assert b64(decode_files(spec)[0].content) == text
    else:
        assert code_of(spec) == "invalid_input_base64"


@pytest.mark.parametrize(
    ("pairs", "code"),
    [
        ([("input/a", "!"), ("input/../b", "")], "invalid_input_base64"),
        ([("input/..", "!"), ("input/b", "")], "invalid_input_path"),
        ([("input/a", ""), ("input/a", "!")], "duplicate_input_path"),
        ([("input/a", ""), ("input/b", "!"), ("input/a", "")], "invalid_input_base64"),
        ([("input/a", b64(bytes(2 * MIB + 1))), ("input/a", "")], "input_file_too_large"),
        (
            [
                ("input/a", b64(bytes(2 * MIB))),
                ("input/b", b64(bytes(2 * MIB))),
                ("input/c", b64(bytes(2 * MIB + 1))),
            ],
            "input_file_too_large",
        ),
        (
            [
                ("input/a", b64(bytes(2 * MIB))),
                ("input/b", b64(bytes(2 * MIB))),
                ("input/c", "YQ=="),
                ("input/c", "!"),
            ],
            "input_files_too_large",
        ),
    ],
)
def test_files_are_judged_one_by_one(pairs: list[tuple[str, str]], code: str) -> None:
    assert code_of(with_(files=files(*pairs))) == code


@pytest.mark.parametrize(
    ("outputs", "code"),
    [
        (("output/a", "output/a", "output"), "duplicate_output_path"),
        (("output/a", "output", "output/a"), "invalid_output_path"),
        (("input/a",), "invalid_output_path"),
        (("output/a", "output/./a"), "invalid_output_path"),
    ],
)
def test_outputs_are_judged_one_by_one(outputs: tuple[str, ...], code: str) -> None:
    assert code_of(with_(outputs=outputs)) == code


def test_paths_that_differ_in_case_or_normal_form_are_different() -> None:
    check(with_(outputs=("output/a", "output/A", "output/é", "output/e\u0301")))


def test_an_input_and_an_output_may_share_a_name() -> None:
    check(with_(files=files(("input/a", "")), outputs=("output/a",)))


@pytest.mark.parametrize("offered", IsolationClass)
@pytest.mark.parametrize("minimum", IsolationClass)
def test_the_minimum_is_held_against_the_backend(
    minimum: IsolationClass, offered: IsolationClass
) -> None:
    spec = with_(requirements=Requirements(minimum_isolation=minimum))
    if minimum is NONE or offered is minimum:
        check(spec, backend_class=offered)
    elif offered is NONE or IsolationClass.WASM_CAPABILITY in {minimum, offered}:
        assert code_of(spec, backend_class=offered) == "minimum_isolation_unsatisfied"


@pytest.mark.parametrize(
    "runtime", ["", "python", "python:latest", PACKS["node"], PACKS["python"].upper()]
)
@pytest.mark.parametrize("backend_class", [NONE, LINUX])
def test_a_pack_of_another_name_is_unavailable(runtime: str, backend_class: IsolationClass) -> None:
    host = {"backend_class": backend_class, "packs": tuple(PACKS.values())}
    assert code_of(with_(runtime=runtime), **host) == "runtime_pack_unavailable"


def test_the_right_pack_needs_a_class_and_a_rootfs_that_offers_it() -> None:
    spec = with_(runtime=PACKS["python"])
    assert code_of(spec, packs=tuple(PACKS.values())) == "runtime_pack_requires_isolation"
    assert code_of(spec, backend_class=LINUX) == "runtime_pack_unavailable"
    check(spec, backend_class=LINUX, packs=(PACKS["python"],))


def test_a_pack_that_this_rootfs_lacks_is_refused_before_the_network() -> None:
    spec = with_(runtime=PACKS["python"], limits=Limits(allow_network=True))
    assert code_of(spec, backend_class=LINUX) == "runtime_pack_unavailable"


def test_a_refusal_says_which_file_or_output_it_means() -> None:
    for spec, place in (
        (with_(files=files(("input/a", ""), ("input/b", "!"))), "files[1]"),
        (with_(outputs=("output/a", "output/b", "output/a")), "outputs[2]"),
    ):
        with pytest.raises(SpecError) as caught:
            check(spec)
        assert place in str(caught.value)
        assert place.endswith(f"[{caught.value.detail['index']}]")


def test_a_refusal_holds_nothing_that_the_caller_wrote() -> None:
    for _, change in FAULTS:
        with pytest.raises(SpecError) as caught:
            check(with_(**change))
        assert set(caught.value.detail) <= {"index", "bytes_max", "files_max", "language"}
        assert caught.value.detail.get("language", "node") in {"python", "node", "bash"}


def test_the_codes_are_all_those_of_a_decoded_submission() -> None:
    assert len(ORDER) == len(FAULTS) == 18
