"""The wheel as a whole: what it exports, and that small jobs cost next to nothing."""

import importlib
import pkgutil
import time
import tomllib
from pathlib import Path

import pytest

import rookhold_types
from rookhold_types import (
    IsolationClass,
    JobSpec,
    View,
    Wire,
    check_spec,
    clock,
    decode_strict,
    fingerprint,
)

ROOT = Path(__file__).parents[1]


def modules() -> list[str]:
    return [module.name for module in pkgutil.iter_modules(rookhold_types.__path__)]


def test_every_exported_name_exists_once() -> None:
    assert len(set(rookhold_types.__all__)) == len(rookhold_types.__all__)
    for name in rookhold_types.__all__:
        assert hasattr(rookhold_types, name)


@pytest.mark.parametrize("module", modules())
def test_every_type_and_function_of_a_module_is_exported(module: str) -> None:
    loaded = importlib.import_module(f"rookhold_types.{module}")
    own = {
        name
        for name, value in vars(loaded).items()
        if not name.startswith("_") and getattr(value, "__module__", None) == loaded.__name__
    }
    assert own <= set(rookhold_types.__all__)


def test_every_struct_of_the_wire_is_frozen_and_requests_are_closed() -> None:
    pending: list[type] = [Wire, View]
    while pending:
        struct = pending.pop()
        pending.extend(struct.__subclasses__())
        if struct.__module__.startswith("rookhold_types"):
            config = struct.__struct_config__  # type: ignore[attr-defined]
            assert config.frozen, struct
            assert config.forbid_unknown_fields == issubclass(struct, Wire), struct


def test_msgspec_is_the_only_dependency() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    assert [name.split(">")[0] for name in project["dependencies"]] == ["msgspec"]


def test_the_wheel_says_that_it_is_typed() -> None:
    assert (Path(rookhold_types.__file__).parent / "py.typed").is_file()


def test_the_clock_gives_milliseconds() -> None:
    assert abs(clock.now_ms() / 1000 - time.time()) < 5


def test_a_small_job_is_decoded_judged_and_fingerprinted_in_microseconds() -> None:
    body = b'{"language":"python","code":"print(1)"}'
    best = 1.0
    for _ in range(200):
        before = time.perf_counter()
        spec = decode_strict(body, JobSpec)
        check_spec(spec, available_languages=("python",), backend_class=IsolationClass.NONE)
        fingerprint(spec)
        best = min(best, time.perf_counter() - before)
    assert best < 0.000_1  # about 7 us


def test_the_example_in_the_readme_works() -> None:
    readme = (ROOT / "README.md").read_text("utf-8")
    example = readme.partition("```python\n")[2].partition("```")[0]
    assert "check_spec" in example
    exec(compile(example, "README.md", "exec"), {})
