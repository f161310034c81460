"""Runtime packs over HTTP: listed, asked for, refused, and named in the evidence."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from gateway import Gateway
from isolating import GVISOR, NAMED, NAMESPACES, private_place

from rookhold import ApiError
from rookhold_exec.rootfs import verify
from rookhold_types.runtimes import PACKS

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from rookhold import Rookhold

REVIEWED = [pytest.param(each.name, marks=each.marks) for each in (NAMESPACES, GVISOR)]


@pytest.fixture(scope="module", params=REVIEWED)
def client(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Rookhold]:
    backend = NAMED[request.param]
    home = tmp_path_factory.mktemp("packs")
    with private_place() as jobs:
        gateway = Gateway(home, sandbox=backend.name, **backend.settings())
        gateway.jobs_root = jobs / "jobs"
        with gateway, gateway.client() as client:
            yield client


def test_they_are_listed_asked_for_and_in_the_receipt(client: Rookhold, rootfs_path: Path) -> None:
    assert set(client.capabilities().runtime_packs) == set(PACKS.values())
    digest = verify(str(rootfs_path)).digest
    for language, asked in (("bash", PACKS["bash"]), ("python", None)):
        code = {"bash": "echo hello", "python": "print('hello')"}[language]
        result = client.run(language, code, runtime=asked)
        assert result.stdout == "hello\n"
        receipt = client.job(result.job_id).receipt
        assert receipt is not None
        assert receipt["runtime_pack"] == PACKS[language]
        assert receipt["rootfs_sha256"] == digest


@pytest.mark.parametrize("asked", [PACKS["node"], "bash:latest"])
def test_another_languages_or_an_unknown_one_is_refused(client: Rookhold, asked: str) -> None:
    with pytest.raises(ApiError) as caught:
        client.submit("bash", "echo hello", runtime=asked)
    assert (caught.value.status, caught.value.code) == (422, "runtime_pack_unavailable")


@pytest.mark.linux_ns
def test_a_gateway_without_a_class_lists_none_and_refuses_any(tmp_path: Path) -> None:
    with Gateway(tmp_path / "dev", sandbox="namespaces-dev") as gateway, gateway.client() as client:
        assert client.capabilities().runtime_packs == ()
        with pytest.raises(ApiError) as caught:
            client.submit("bash", "echo hello", runtime=PACKS["bash"])
        assert (caught.value.status, caught.value.code) == (422, "runtime_pack_requires_isolation")
        result = client.run("bash", "echo hello")
        receipt = client.job(result.job_id).receipt
        assert receipt is not None
        assert receipt["runtime_pack"] is None
