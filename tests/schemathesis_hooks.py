"""Cases that schemathesis is not to make, because what it expects of them is not ours to give."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

import schemathesis

from rookhold_types.limits import PATH_BYTES_MAX

if TYPE_CHECKING:
    from collections.abc import Iterator

UNKNOWN = "x-schemathesis-unknown-property"


@schemathesis.hook
def filter_case(context: Any, case: schemathesis.Case) -> bool:
    """Leave out what HTTP allows to every client, and what no schema can tell of a submission.

    A server does not refuse headers that it does not know. To JSON Schema 1.0 is an integer; what
    is signed and hashed here knows integers by their one spelling. Schemas count characters where
    the limit of a path counts bytes, and cannot ask for paths of which none is or holds another.
    """
    del context
    if UNKNOWN in {name.lower() for name in case.headers or ()}:
        return False
    if any(isinstance(each, float) for each in _leaves(case.body)):
        return False
    paths = [] if not isinstance(case.body, dict) else list(_paths(case.body))
    return not _holds_another(paths) and all(
        len(path.encode("utf-8", "surrogatepass")) <= PATH_BYTES_MAX for path in paths
    )


def _holds_another(paths: list[str]) -> bool:
    ordered = sorted(f"{path}/" for path in paths)
    return any(after.startswith(before) for before, after in pairwise(ordered))


def _paths(body: dict[str, Any]) -> Iterator[str]:
    for name in ("files", "outputs"):
        for each in body.get(name) or ():
            path = each.get("path") if isinstance(each, dict) else each
            if isinstance(path, str):
                yield path


def _leaves(value: Any) -> Iterator[Any]:
    if isinstance(value, dict):
        for each in value.values():
            yield from _leaves(each)
    elif isinstance(value, list):
        for each in value:
            yield from _leaves(each)
    else:
        yield value
