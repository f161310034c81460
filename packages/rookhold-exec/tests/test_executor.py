"""The interface's own promises: codes that are unique and explained, evidence that starts empty."""

from __future__ import annotations

import base64
import re
from pathlib import Path

import rookhold_exec
import rookhold_exec.rootfs.errors  # its refusals are among the codes
from rookhold_exec.errors import ExecError
from rookhold_exec.executor import OutputRecord, Provenance
from rookhold_types.codes import ERRORS
from rookhold_types.limits import EffectiveLimits, LimitEnforcement

PAGE = Path(__file__).parents[3] / "docs/errors.md"


def below(root: type[ExecError]) -> set[type[ExecError]]:
    return {root} | {error for child in root.__subclasses__() for error in below(child)}


def test_every_code_is_unique_and_explained() -> None:
    codes = [error.code for error in below(ExecError)]
    assert len(codes) == len(set(codes))
    section = PAGE.read_text("utf-8").partition("\n## rookhold-exec\n")[2].partition("\n## ")[0]
    explained = re.findall(r"^### `(\w+)`$", section, re.MULTILINE)
    assert sorted(explained) == sorted(set(codes) - ERRORS.keys())


def test_every_public_name_is_there() -> None:
    for name in rookhold_exec.__all__:
        assert getattr(rookhold_exec, name).__name__ == name


def test_what_never_became_ready_claims_nothing() -> None:
    provenance = Provenance.never_ready("namespaces-dev")
    assert provenance.backend == "namespaces-dev"
    assert provenance.isolation_class == "none"
    assert provenance.controls == ()
    assert provenance.limit_enforcement == LimitEnforcement.none()
    assert provenance.effective_limits == EffectiveLimits.none()
    assert provenance.network_allowed is provenance.networking is None
    flags = ("bootstrap_ready", "isolated", "seccomp", "private_rootfs", "dedicated_bootstrap")
    assert not any(getattr(provenance, flag) for flag in flags)


def test_an_output_record_carries_raw_bytes_only_where_the_text_is_not_exact() -> None:
    assert OutputRecord("stdout", "a", eol=True).data() == {"line": "a", "eol": True}
    data = OutputRecord("stdout", "\ufffd", eol=False, raw=b"\xff").data()
    assert base64.b64decode(data.pop("raw_base64")) == b"\xff"
    assert data == {"line": "\ufffd", "eol": False}
