"""When the provider is asked for its keys, by a clock that a test sets."""

import json
import logging
from collections.abc import Callable

import anyio
import pytest
from issuer import SigningKey

from rookhold_server.identity.oidc.jwks import JwksError
from rookhold_server.identity.oidc.keys import WAITING_MAX, ProviderKeys

TTL = 300
KEYS = {kid: SigningKey(kid, "EdDSA") for kid in ("a", "b")}

pytestmark = pytest.mark.anyio


class Source:
    """What the provider publishes, and how often it was asked."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.asked = 0
        self.published = ["a"]
        self.fails = False
        self.gate: anyio.Event | None = None

    async def read(self) -> bytes:
        self.asked += 1
        if self.gate is not None:
            await self.gate.wait()
        await anyio.lowlevel.checkpoint()
        if self.fails:
            raise JwksError("it is away")
        return json.dumps({"keys": [KEYS[kid].jwk() for kid in self.published]}).encode()

    async def keys(self) -> ProviderKeys:
        keys = ProviderKeys(self.read, ttl_seconds=TTL, clock=lambda: self.now)
        await keys.open()
        return keys


@pytest.fixture
def source() -> Source:
    return Source()


async def until(condition: Callable[[], bool]) -> None:
    with anyio.fail_after(30):
        while not condition():
            await anyio.sleep(0.001)


async def test_a_known_key_is_served_from_the_cache(source: Source) -> None:
    keys = await source.keys()
    source.now += TTL - 1
    for _ in range(10):
        assert await keys.find("a") is not None
    assert source.asked == 1


async def test_the_first_time_must_succeed(source: Source) -> None:
    source.fails = True
    with pytest.raises(JwksError):
        await source.keys()
    source.fails = False
    source.published = []
    with pytest.raises(JwksError):
        await source.keys()


async def test_a_set_that_verifies_nothing_does_not_do_at_the_start() -> None:
    async def read() -> bytes:
        return json.dumps({"keys": [KEYS["a"].jwk(use="enc")]}).encode()

    with pytest.raises(JwksError):
        await ProviderKeys(read, ttl_seconds=TTL, clock=lambda: 0.0).open()


async def test_an_old_set_is_fetched_again_and_a_withdrawn_key_is_gone(source: Source) -> None:
    keys = await source.keys()
    source.published = ["b"]
    source.now += TTL
    assert await keys.find("a") is None
    assert await keys.find("b") is not None
    assert source.asked == 2


async def test_many_with_an_unknown_key_cause_one_refresh_and_then_none_for_10_seconds(
    source: Source,
) -> None:
    keys = await source.keys()
    found = []

    async def ask() -> None:
        found.append(await keys.find("b"))

    source.gate = anyio.Event()
    async with anyio.create_task_group() as tasks:
        for _ in range(50):
            tasks.start_soon(ask)
        await until(lambda: source.asked == 2)
        assert await keys.find("a") is not None  # the known one does not wait
        source.gate.set()
    assert found == [None] * 50
    source.published = ["a", "b"]
    source.now += 9.9
    assert await keys.find("b") is None
    assert source.asked == 2
    source.now += 0.2
    assert await keys.find("b") is not None
    assert source.asked == 3


async def test_a_rotated_key_is_known_to_the_first_who_asks(source: Source) -> None:
    keys = await source.keys()
    source.published = ["b"]
    assert await keys.find("b") is not None
    assert await keys.find("a") is None


async def test_a_failed_refresh_leaves_the_known_keys_for_their_time(
    source: Source, caplog: pytest.LogCaptureFixture
) -> None:
    keys = await source.keys()
    source.fails = True
    with caplog.at_level(logging.WARNING):
        assert await keys.find("b") is None
    assert [record.__dict__["code"] for record in caplog.records] == ["oidc_keys_unavailable"]
    assert await keys.find("a") is not None
    source.now += TTL
    assert await keys.find("a") is None


async def test_with_an_old_set_and_a_refresh_that_failed_nothing_is_taken(source: Source) -> None:
    keys = await source.keys()
    source.now += TTL
    source.fails = True
    assert await keys.find("a") is None
    assert source.asked == 2
    source.fails = False
    source.now += 9.9
    assert await keys.find("a") is None
    assert source.asked == 2
    source.now += 0.2
    assert await keys.find("a") is not None
    assert source.asked == 3


async def test_an_old_set_makes_everybody_wait_for_one_answer(source: Source) -> None:
    keys = await source.keys()
    source.now += TTL
    source.gate = anyio.Event()
    found = []

    async def ask() -> None:
        found.append(await keys.find("a"))

    async with anyio.create_task_group() as tasks:
        for _ in range(WAITING_MAX + 50):
            tasks.start_soon(ask)
        await until(lambda: source.asked == 2)
        await anyio.sleep(0.01)
        assert found == []
        source.gate.set()
    assert len(found) == WAITING_MAX + 50
    assert None not in found
    assert source.asked == 2


async def test_strangers_that_wait_are_bounded(source: Source) -> None:
    keys = await source.keys()
    source.gate = anyio.Event()
    found = []

    async def ask() -> None:
        found.append(await keys.find("b"))

    async with anyio.create_task_group() as tasks:
        for _ in range(1 + WAITING_MAX + 5):
            tasks.start_soon(ask)
        await until(lambda: len(found) == 5)
        source.gate.set()
    assert found == [None] * (1 + WAITING_MAX + 5)


async def test_who_began_the_refresh_may_be_given_up(source: Source) -> None:
    keys = await source.keys()
    source.published = ["b"]
    source.gate = anyio.Event()
    found = []

    async def ask() -> None:
        found.append(await keys.find("b"))

    async with anyio.create_task_group() as tasks:
        with anyio.CancelScope() as first:

            async def give_up() -> None:
                await until(lambda: source.asked == 2)
                tasks.start_soon(ask)
                await anyio.sleep(0.01)
                first.cancel()
                assert source.gate is not None
                source.gate.set()

            tasks.start_soon(give_up)
            await keys.find("b")
    assert found != [None]
    assert source.asked == 2


async def test_a_fault_of_ours_does_not_block_the_next_refresh(source: Source) -> None:
    keys = await source.keys()
    really = source.read

    async def broken() -> bytes:
        raise RuntimeError

    keys._read = broken
    with pytest.raises(RuntimeError):
        await keys.find("b")
    keys._read = really
    source.now += 11
    source.published = ["b"]
    assert await keys.find("b") is not None
