"""Servers that many lines share: one as the list assumes it, one that confines its jobs."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

import pytest
from asking import Caller
from gateway import Gateway

if TYPE_CHECKING:
    from collections.abc import Iterator

OPEN = {
    "ROOKHOLD_RATE_PER_MIN": "1000000",
    "ROOKHOLD_ATTESTATION_KEY_FILE": "",
    "ROOKHOLD_METRICS_TOKEN": "a-token-of-the-operator",
}


@pytest.fixture(scope="package")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    """Backend `off`, signing off, no Node; a real process on a port of its own."""
    home = tmp_path_factory.mktemp("plain") / "home"
    with Gateway(home, sandbox="off", ROOKHOLD_NODE="no-such-node", **OPEN) as gateway:
        yield gateway


@pytest.fixture(scope="package")
def confining(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    """The same on `namespaces-dev`: tests that use it have the mark `linux_ns`."""
    home = tmp_path_factory.mktemp("confining") / "home"
    with Gateway(home, sandbox="namespaces-dev", **OPEN) as gateway:
        yield gateway


@pytest.fixture
def ours(plain: Gateway) -> Iterator[Caller]:
    with closing(Caller(plain.address, plain.api_key)) as caller:
        yield caller


@pytest.fixture
def theirs(plain: Gateway) -> Iterator[Caller]:
    """Another tenant of the same server."""
    with closing(Caller(plain.address, f"{plain.api_key}-other")) as caller:
        yield caller


@pytest.fixture
def confined(confining: Gateway) -> Iterator[Caller]:
    with closing(Caller(confining.address, confining.api_key)) as caller:
        yield caller
