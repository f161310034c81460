"""How an error is named in logs and diagnoses: by its code or its type, never by its text."""

from __future__ import annotations


def named(error: BaseException) -> str:
    """The error's code, or its type; texts of foreign errors may hold paths or payload."""
    code = getattr(error, "code", None)
    return code if isinstance(code, str) else type(error).__name__
