"""The order in which a decoded job specification is judged; the first failure decides."""

import binascii
from collections.abc import Collection

from msgspec import Struct

from rookhold_types.codes import ERRORS
from rookhold_types.errors import SpecError
from rookhold_types.isolation import IsolationClass, satisfies
from rookhold_types.jobs import JobFile, JobSpec
from rookhold_types.limits import (
    CODE_BYTES_MAX,
    INPUT_BYTES_MAX,
    INPUT_FILE_BYTES_MAX,
    INPUT_FILES_MAX,
    OUTPUT_FILES_MAX,
    STDIN_BYTES_MAX,
)
from rookhold_types.paths import check_input_path, check_output_path
from rookhold_types.runtimes import LANGUAGES, PACKS


class InputFile(Struct, frozen=True):
    """An input file whose path and size have been checked, decoded."""

    path: str
    content: bytes


def check_spec(
    spec: JobSpec,
    *,
    available_languages: Collection[str],
    backend_class: IsolationClass,
    packs: Collection[str] = (),
    known_languages: Collection[str] = LANGUAGES,
) -> tuple[InputFile, ...]:
    """Return the decoded input files of an acceptable `spec`, or raise SpecError with its code.

    `packs` are the runtime packs that the backend's rootfs offers; where its class is `none` there
    are none. The order is part of the API: a spec with several faults always gets the same answer.
    """
    if not satisfies(backend_class, spec.requirements.minimum_isolation):
        raise SpecError(code="minimum_isolation_unsatisfied")
    _check_language(spec.language, known_languages, available_languages)
    _check_texts(spec)
    files = decode_files(spec)
    _check_outputs(spec.outputs)
    _check_runtime(spec, backend_class, packs)
    if spec.limits.allow_network:
        raise SpecError(code="network_opt_in_unsupported")
    return files


def decode_files(spec: JobSpec) -> tuple[InputFile, ...]:
    """Return the input files of `spec` decoded, or raise SpecError; repeated before staging."""
    if len(spec.files) > INPUT_FILES_MAX:
        raise SpecError(code="too_many_input_files", files_max=INPUT_FILES_MAX)
    files: list[InputFile] = []
    places = _Places()
    total = 0
    for index, file in enumerate(spec.files):
        if not check_input_path(file.path):
            raise _refusal("invalid_input_path", "files", index)
        if file.path in places:
            raise _refusal("duplicate_input_path", "files", index)
        if not places.take(file.path):
            raise _refusal("invalid_input_path", "files", index)
        content = _decode(file, index)
        total += len(content)
        if total > INPUT_BYTES_MAX:
            raise SpecError(code="input_files_too_large", bytes_max=INPUT_BYTES_MAX)
        files.append(InputFile(file.path, content))
    return tuple(files)


class _Places:
    """The paths of one list so far. A name is a file or a folder, never both (decision 0010)."""

    def __init__(self) -> None:
        self._files: set[str] = set()
        self._folders: set[str] = set()

    def __contains__(self, path: str) -> bool:
        return path in self._files

    def take(self, path: str) -> bool:
        """Add `path`; false, and nothing is added, if an earlier one lies below or above it."""
        above = {path[:cut] for cut, char in enumerate(path) if char == "/"}
        if path in self._folders or not above.isdisjoint(self._files):
            return False
        self._files.add(path)
        self._folders |= above
        return True


def _refusal(code: str, member: str, index: int) -> SpecError:
    """Say which of several was refused, by its place: its name is the caller's own text."""
    return SpecError(f"{ERRORS[code].message} It is {member}[{index}].", code=code, index=index)


def _decode(file: JobFile, index: int) -> bytes:
    text = file.content_base64
    try:
        content = binascii.a2b_base64(text, strict_mode=True)
    except ValueError:  # also binascii.Error, and a text that is not ASCII
        content = None
    # Only the text that encoding gives back is accepted: one file, one spelling.
    if content is None or binascii.b2a_base64(content, newline=False) != text.encode("ascii"):
        raise _refusal("invalid_input_base64", "files", index)
    if len(content) > INPUT_FILE_BYTES_MAX:
        raise _refusal("input_file_too_large", "files", index)
    return content


def _check_language(language: str, known: Collection[str], available: Collection[str]) -> None:
    if language not in known:
        raise SpecError(code="unsupported_language")
    if language not in available:
        raise SpecError(code="runtime_unavailable", language=language)


def _check_texts(spec: JobSpec) -> None:
    if not spec.code or spec.code.isspace():
        raise SpecError(code="empty_code")
    if _over(spec.code, CODE_BYTES_MAX):
        raise SpecError(code="code_too_large", bytes_max=CODE_BYTES_MAX)
    if spec.stdin is not None and _over(spec.stdin, STDIN_BYTES_MAX):
        raise SpecError(code="stdin_too_large", bytes_max=STDIN_BYTES_MAX)


def _over(text: str, bytes_max: int) -> bool:
    """Whether `text` has more UTF-8 bytes; a short text is not encoded to find out."""
    return len(text) * 4 > bytes_max and len(text.encode("utf-8")) > bytes_max


def _check_outputs(outputs: tuple[str, ...]) -> None:
    if len(outputs) > OUTPUT_FILES_MAX:
        raise SpecError(code="too_many_output_files", files_max=OUTPUT_FILES_MAX)
    places = _Places()
    for index, path in enumerate(outputs):
        if not check_output_path(path):
            raise _refusal("invalid_output_path", "outputs", index)
        if path in places:
            raise _refusal("duplicate_output_path", "outputs", index)
        if not places.take(path):
            raise _refusal("invalid_output_path", "outputs", index)


def _check_runtime(spec: JobSpec, backend_class: IsolationClass, packs: Collection[str]) -> None:
    if spec.runtime is None:
        return
    if spec.runtime != PACKS.get(spec.language):
        raise SpecError(code="runtime_pack_unavailable")
    if backend_class is IsolationClass.NONE:
        raise SpecError(code="runtime_pack_requires_isolation")
    if spec.runtime not in packs:  # the right name, but this rootfs was built without it
        raise SpecError(code="runtime_pack_unavailable")
