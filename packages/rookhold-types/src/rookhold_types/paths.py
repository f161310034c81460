"""Which paths a job may name for its input files and its requested outputs."""

from typing import Final

from rookhold_types.limits import PATH_BYTES_MAX

INPUT_ROOT: Final = "input"
OUTPUT_ROOT: Final = "output"


def check_input_path(path: str) -> bool:
    """Whether `path` may hold an input file: `input/...` without anything that could lead out."""
    return _is_path_below(path, INPUT_ROOT)


def check_output_path(path: str) -> bool:
    """Whether `path` may be asked for as an output: `output/...`, by the same rules."""
    return _is_path_below(path, OUTPUT_ROOT)


def _is_path_below(path: str, root: str) -> bool:
    try:
        raw = path.encode("utf-8")
    except UnicodeEncodeError:  # a lone surrogate: no text, so no path
        return False
    if not 1 <= len(raw) <= PATH_BYTES_MAX:
        return False
    if "\\" in path or any(byte < 0x20 or byte == 0x7F for byte in raw):
        return False
    first, *rest = path.split("/")
    return first == root and bool(rest) and not any(part in {"", ".", ".."} for part in rest)
