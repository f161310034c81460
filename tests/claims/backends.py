"""Which backends a test is about, where it is not about all that confine."""

from __future__ import annotations

import pytest
from isolating import BACKENDS, NAMED

NAMESPACES = ("namespaces-dev", "namespaces")  # jobs share the host's kernel
REVIEWED = ("namespaces", "gvisor")  # jobs have a reviewed root


def on(*names: str) -> pytest.MarkDecorator:
    """Run a test on these backends only, each where the host has what it needs."""
    params = [pytest.param(name, marks=NAMED[name].marks) for name in names]
    return pytest.mark.parametrize("backend", params, indirect=True)


def but(name: str) -> pytest.MarkDecorator:
    """Run a test on every backend but one."""
    return on(*(each.name for each in BACKENDS if each.name != name))
