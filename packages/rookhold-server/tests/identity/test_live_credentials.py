"""The file changes under a running server."""

import json
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest

from rookhold_server.errors import SettingError
from rookhold_server.identity import live_credentials
from rookhold_server.identity.credentials import Credential, encode_credentials
from rookhold_server.identity.live_credentials import CHANGED, KEPT, LiveCredentials
from rookhold_server.identity.structured import Pepper, new_token
from rookhold_server.refusal import Refusal

PEPPER = Pepper(bytes(range(32)))
NOW = 5000
FAR = 3600.0  # looks that never come

pytestmark = pytest.mark.anyio


def credential(token: str, **changes: int) -> Credential:
    return Credential(
        key_id=token.split("_")[1],
        tenant_id="acme",
        principal_id="bot",
        digest_hmac_sha256=PEPPER.verifier(token).hex(),
        scopes=(),
        created_at_ms=1,
        **changes,
    )


class Kept:
    """The two files, and a server's view of them."""

    def __init__(self, place: Path) -> None:
        self.file = place / "credentials.json"
        self.pepper = place / "pepper"
        self.pepper.write_text(PEPPER.hex())
        self.tokens = {name: new_token(name) for name in ("a", "b")}
        self.write("a")

    def write(self, *names: str) -> None:
        """Put another file in the place, as a careful writer does."""
        new = self.file.with_suffix(".new")
        new.write_bytes(encode_credentials(tuple(credential(self.tokens[name]) for name in names)))
        new.replace(self.file)

    def live(self, look_seconds: float = FAR, nobodys: str | None = None) -> LiveCredentials:
        return LiveCredentials(
            self.file,
            self.pepper,
            strict=False,
            clock=lambda: NOW,
            look_seconds=look_seconds,
            nobodys=nobodys,
        )

    def known(self, live: LiveCredentials) -> set[str]:
        found = set()
        for name, token in self.tokens.items():
            try:
                live.lookup(token)
            except Refusal:
                continue
            found.add(name)
        return found


@pytest.fixture
def kept(tmp_path: Path) -> Kept:
    return Kept(tmp_path)


@asynccontextmanager
async def watched(live: LiveCredentials) -> AsyncIterator[None]:
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(live.watch)
        yield
        tasks.cancel_scope.cancel()


async def until(condition: Callable[[], bool]) -> None:
    with anyio.fail_after(30):
        while not condition():
            await anyio.sleep(0.005)


async def test_a_token_of_another_form_is_left_to_others(kept: Kept) -> None:
    live = kept.live()
    assert live.lookup("some-legacy-key-of-a-tenant") is None
    assert live.lookup("a.b.c") is None
    found = live.lookup(kept.tokens["a"])
    assert found is not None
    assert found.credential_id == "a"


async def test_a_token_of_our_form_is_nobody_elses(kept: Kept) -> None:
    live = kept.live()
    for token in (kept.tokens["b"], kept.tokens["a"] + "x", "rookhold_a_" + "s" * 20 + ".x.y" * 5):
        with pytest.raises(Refusal) as caught:
            live.lookup(token)
        assert caught.value.code == "invalid_api_key"


async def test_a_new_file_counts_as_soon_as_it_is_asked_for(kept: Kept) -> None:
    live = kept.live()
    async with watched(live):
        kept.write("b")
        assert kept.known(live) == {"a"}
        live.reload()
        await until(lambda: kept.known(live) == {"b"})


async def test_a_new_file_counts_soon_without_asking(kept: Kept) -> None:
    live = kept.live(look_seconds=0.01)
    async with watched(live):
        kept.write("a", "b")
        await until(lambda: kept.known(live) == {"a", "b"})
        kept.file.write_bytes(encode_credentials((credential(kept.tokens["b"]),)))  # in place
        await until(lambda: kept.known(live) == {"b"})


async def test_asking_for_a_file_that_is_the_same_reads_it_again(
    kept: Kept, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    live = kept.live()
    async with watched(live):
        live.reload()
        await until(lambda: any(getattr(r, "code", "") == CHANGED for r in caplog.records))


async def test_a_file_that_makes_the_operators_token_a_tenants_is_not_taken(
    kept: Kept, caplog: pytest.LogCaptureFixture
) -> None:
    live = kept.live(nobodys=kept.tokens["b"])
    async with watched(live):
        kept.write("a", "b")
        live.reload()
        await until(lambda: any(getattr(r, "code", "") == KEPT for r in caplog.records))
        assert "ROOKHOLD_METRICS_TOKEN" in caplog.text
        assert kept.tokens["b"] not in caplog.text
        assert kept.known(live) == {"a"}


@pytest.mark.parametrize("content", [b"", b"{", b'{"version": 1, "credentials": []}', None])
async def test_a_bad_file_keeps_the_old_set_and_is_told_once_without_its_content(
    kept: Kept, content: bytes | None, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    live = kept.live(look_seconds=0.005)

    def told() -> int:
        return sum(getattr(record, "code", "") == KEPT for record in caplog.records)

    async with watched(live):
        if content is None:
            kept.file.unlink()
        else:
            kept.file.write_bytes(content)
        await until(lambda: told() == 1)
        await anyio.sleep(0.1)  # many more looks
        assert told() == 1
        assert kept.known(live) == {"a"}
        live.reload()
        await until(lambda: told() == 2)
        kept.write("b")
        await until(lambda: kept.known(live) == {"b"})
    for token in kept.tokens.values():
        assert token not in caplog.text
        assert PEPPER.verifier(token).hex() not in caplog.text
    assert str(kept.file) not in caplog.text


async def test_one_bad_entry_among_good_ones_changes_nothing(kept: Kept) -> None:
    live = kept.live(look_seconds=0.005)
    async with watched(live):
        document = json.loads(encode_credentials((credential(kept.tokens["b"]),)))
        document["credentials"].append({**document["credentials"][0], "key_id": "x_y"})
        kept.file.write_text(json.dumps(document))
        await anyio.sleep(0.1)
        assert kept.known(live) == {"a"}


async def test_a_fault_of_ours_ends_nothing(
    kept: Kept, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    live = kept.live()

    def fault(*_: object, **__: object) -> None:
        raise RuntimeError

    async with watched(live):
        with monkeypatch.context() as patched:
            patched.setattr(live_credentials, "parse_credentials", fault)
            live.reload()
            await until(lambda: any(getattr(r, "code", "") == KEPT for r in caplog.records))
        assert kept.known(live) == {"a"}
        kept.write("b")
        live.reload()
        await until(lambda: kept.known(live) == {"b"})


async def test_the_pepper_is_read_once(kept: Kept) -> None:
    live = kept.live()
    async with watched(live):
        kept.pepper.unlink()
        kept.write("b")
        live.reload()
        await until(lambda: kept.known(live) == {"b"})


async def test_who_is_in_every_set_is_known_at_every_moment(kept: Kept) -> None:
    live = kept.live(look_seconds=0)
    async with watched(live):
        for turn in range(60):
            kept.write("a") if turn % 2 else kept.write("a", "b")
            live.reload()
            for _ in range(5):
                assert "a" in kept.known(live)
                await anyio.sleep(0)


@pytest.mark.parametrize("which", ["credentials.json", "pepper"])
@pytest.mark.parametrize("content", [None, b"", b"\xff", b"x" * 2_000_000])
async def test_files_that_are_bad_at_the_start_refuse_it(
    kept: Kept, which: str, content: bytes | None
) -> None:
    path = kept.file.with_name(which)
    path.unlink()
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(SettingError) as caught:
        kept.live()
    expected = "PEPPER_FILE" if which == "pepper" else "CREDENTIALS_FILE"
    assert caught.value.variable.endswith(expected)
    assert caught.value.code == "setting_invalid"
    assert str(path) not in str(caught.value)


async def test_a_link_at_the_start_is_unsafe(kept: Kept) -> None:
    real = kept.pepper.rename(kept.pepper.with_name("real"))
    kept.pepper.symlink_to(real)
    with pytest.raises(SettingError) as caught:
        kept.live()
    assert caught.value.code == "setting_unsafe"
