"""Turns what a caller writes into the JSON body of a submission; the gateway judges it."""

import base64
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from .errors import ConfigurationError

_KEY = re.compile(r"[!-~]{1,128}")


def job_body(
    language: str,
    code: str,
    *,
    stdin: str | None = None,
    limits: Mapping[str, int | bool] | None = None,
    files: Mapping[str, bytes] | None = None,
    outputs: Sequence[str] = (),
    requirements: Mapping[str, str] | None = None,
    runtime: str | None = None,
) -> bytes:
    """Return the request body; members that were not given are left to the gateway's defaults."""
    spec: dict[str, Any] = {"language": language, "code": code}
    if stdin is not None:
        spec["stdin"] = stdin
    if limits:
        spec["limits"] = dict(limits)
    if files:
        spec["files"] = [
            {"path": path, "content_base64": base64.b64encode(content).decode("ascii")}
            for path, content in files.items()
        ]
    if isinstance(outputs, str):  # a string is a sequence of strings, but never meant as one
        raise ConfigurationError("outputs must be a list of paths")
    if outputs:
        spec["outputs"] = list(outputs)
    if requirements:
        spec["requirements"] = dict(requirements)
    if runtime is not None:
        spec["runtime"] = runtime
    try:
        return json.dumps(spec, ensure_ascii=False, allow_nan=False).encode()
    except UnicodeEncodeError as exc:
        raise ConfigurationError("the job's text holds a lone surrogate") from exc
    except (TypeError, ValueError) as exc:
        raise ConfigurationError("the job's members cannot be written as JSON") from exc


def checked_key(key: str) -> str:
    """Return `key` if it can be an `Idempotency-Key` header at all."""
    if not _KEY.fullmatch(key):
        raise ConfigurationError("an idempotency key is 1 to 128 visible ASCII characters")
    return key
