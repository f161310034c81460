"""Judges a job as a gateway would: nobody should wait for one to start only to be refused by it."""

from __future__ import annotations

import base64
from typing import Any, Final

from .errors import RefusedError, UsageError
from .extras import load

_WHAT: Final = "judging a job"


def judge(spec: dict[str, Any]) -> None:
    """Refuse what the gateway of this installation is certain to refuse.

    What depends on its sandbox, isolation classes and runtime packs, is left to it.
    """
    types = load("rookhold_types", what=_WHAT, extra="server")
    key = spec["idempotency_key"]
    if key is not None and not types.valid_idempotency_key(key):
        raise UsageError("an idempotency key is 1 to 128 visible ASCII characters")
    job = types.JobSpec(
        language=spec["language"],
        code=spec["code"],
        stdin=spec["stdin"],
        limits=types.Limits(**spec["limits"]),  # each within 32 bits, as options are read
        files=tuple(
            types.JobFile(path=path, content_base64=base64.b64encode(content).decode("ascii"))
            for path, content in spec["files"].items()
        ),
        outputs=tuple(spec["outputs"]),
    )
    try:
        types.encode(job)
        types.check_spec(
            job, available_languages=types.LANGUAGES, backend_class=types.IsolationClass.NONE
        )
    except UnicodeEncodeError as exc:
        raise UsageError("the job's text holds bytes that are no UTF-8") from exc
    except types.SpecError as exc:
        raise RefusedError(f"refused ({exc.code}): {exc}") from exc
