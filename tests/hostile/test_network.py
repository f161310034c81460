"""Out over the network: every family of addresses, names, and the sockets of the host itself."""

from __future__ import annotations

import secrets
import select
import socket
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hostile.target import LIMITS, SLOW, told_by

from rookhold_exec.executor import KillReason, OutputRecord

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hostile.target import Target

# No route leads to any of these from a job; the documentation's own addresses, and link-local ones.
FAR = ["192.0.2.1", "198.51.100.7", "203.0.113.9", "169.254.169.254", "10.255.255.1", "2001:db8::1"]


@contextmanager
def listeners() -> Iterator[dict[str, socket.socket]]:
    """Listen on the host as its own services do; whoever comes is noted as heard."""
    with ExitStack() as stack:
        opened = {
            "tcp": stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_STREAM)),
            "udp": stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM)),
            "every address": stack.enter_context(socket.socket(socket.AF_INET)),
            "abstract": stack.enter_context(socket.socket(socket.AF_UNIX)),
        }
        opened["tcp"].bind(("127.0.0.1", 0))
        opened["udp"].bind(("127.0.0.1", 0))
        opened["every address"].bind(("0.0.0.0", 0))
        opened["abstract"].bind(f"\0hostile-{secrets.token_hex(8)}")
        if socket.has_ipv6:
            six = stack.enter_context(socket.socket(socket.AF_INET6))
            try:
                six.bind(("::1", 0))
                opened["tcp6"] = six
            except OSError:
                pass  # a host without that address
        for each in opened.values():
            if each.type == socket.SOCK_STREAM:
                each.listen()
        yield opened


def heard(opened: dict[str, socket.socket]) -> list[str]:
    """Return which of them somebody has tried."""
    ready = select.select(list(opened.values()), [], [], 0.2)[0]
    return [name for name, each in opened.items() if each in ready]


def own_address() -> str:
    """Return an address of the host that is not its loopback, where it has one."""
    try:
        return socket.gethostbyname(socket.gethostname())
    except OSError:
        return "127.0.1.1"


def test_no_family_of_addresses_makes_a_socket_but_the_ordinary_three(target: Target) -> None:
    told = target.ask("""
import socket
made = set()
for family in range(46):
    for kind in (1, 2, 3, 4, 5, 6, 10):
        for protocol in (0, 1, 6, 17, 132, 255):
            try:
                socket.socket(family, kind, protocol).close()
            except OSError:
                continue
            made.add((family, kind))
told["made"] = sorted(made)
""")
    ordinary = {(1, 1), (1, 2), (1, 5), (2, 1), (2, 2), (10, 1), (10, 2)}
    inside = {(16, 2), (16, 3), (1, 3)}  # netlink and more, of gVisor's own kernel
    made = {tuple(each) for each in told["made"]}
    assert made <= target.on(ordinary, gvisor=ordinary | inside)


KINDS = {
    "raw": (2, 3, 1),
    "raw of everything": (2, 3, 255),
    "raw of version 6": (10, 3, 58),
    "packet": (17, 3, 0x0300),
    "packet datagram": (17, 2, 0x0300),
    "virtual machine": (40, 1, 0),
    "kernel's ciphers": (38, 5, 0),
    "bluetooth": (31, 3, 1),
    "key management": (15, 3, 2),
    "express data path": (44, 3, 0),
    "sctp": (2, 1, 132),
    "udp lite": (2, 2, 136),
    "ping": (2, 2, 1),
}


@pytest.fixture(scope="module")
def sockets(target: Target) -> dict[str, str]:
    """What came of making one of each kind, in one job."""
    told: dict[str, str] = target.ask(f"""
import socket
for name, arguments in {KINDS!r}.items():
    told[name] = attempted(socket.socket, *arguments)
""")
    return told


@pytest.mark.parametrize("name", KINDS, ids=lambda name: name.replace(" ", "_"))
def test_a_socket_of_another_kind_is_refused(
    target: Target, sockets: dict[str, str], name: str
) -> None:
    inside = {"EPERM", "EAFNOSUPPORT", "EPROTONOSUPPORT", "ESOCKTNOSUPPORT", "EACCES", "EINVAL"}
    if name == "ping":
        inside.add("done")  # of its own network, which leads nowhere
    assert sockets[name] in target.on({"EPERM"}, gvisor=inside)


def test_the_interfaces_of_the_host_are_not_asked_for_by_netlink(target: Target) -> None:
    told = target.ask("""
import socket, struct
told["open"] = "done"
told["names"] = []
try:
    link = socket.socket(16, 3, 0)
except OSError as error:
    told["open"] = errno.errorcode[error.errno]
else:
    link.settimeout(2)
    link.send(struct.pack("=IHHIIBxxx12x", 32, 18, 0x301, 1, 0, 0))
    try:
        told["names"] = link.recv(65536).hex()
    except OSError:
        pass
told["indexes"] = [name for _, name in socket.if_nameindex()] if told["open"] == "done" else []
for protocol in range(23):
    told[str(protocol)] = attempted(socket.socket, 16, 3, protocol)
""")
    names = [name for _, name in socket.if_nameindex() if name != "lo"]
    answer = told.pop("names")
    assert not [name for name in names if name.encode().hex() in answer]
    assert set(told.pop("indexes")) <= {"lo"}
    if not target.gvisor:
        assert told == dict.fromkeys(told, "EPERM")


def test_no_service_of_the_host_is_reached(target: Target) -> None:
    with listeners() as opened:
        names = {name: each.getsockname() for name, each in opened.items()}
        abstract = names.pop("abstract").decode()
        own = own_address()
        told = target.ask(f"""
import socket
for name, address in {names!r}.items():
    kind = socket.SOCK_DGRAM if name == "udp" else socket.SOCK_STREAM
    family = socket.AF_INET6 if len(address) == 4 else socket.AF_INET
    hosts = [address[0], "127.0.0.1", "127.1.2.3", "{own}"] if len(address) == 2 else ["::1"]
    for host in hosts:
        with socket.socket(family, kind) as made:
            made.settimeout(3)
            told[f"{{name}} {{host}}"] = attempted(made.connect, (host, address[1]))
            attempted(made.sendto, b"hello", (host, address[1]))
            attempted(made.sendto, b"hello", 0x20000000, (host, address[1]))
with socket.socket(socket.AF_UNIX) as made:
    told["abstract"] = attempted(made.connect, {abstract!r})
with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as made:
    told["abstract datagram"] = attempted(made.sendto, b"x", {abstract!r})
""")
        assert heard(opened) == []
    spoken = {name: how for name, how in told.items() if not name.startswith("udp")}
    assert "done" not in spoken.values(), told  # a datagram may be sent to nobody


def test_no_socket_file_of_the_host_is_reached(target: Target) -> None:
    places = [Path(each) for each in ("/tmp", "/run", "/var/run", "/dev/shm", "/var/tmp")]
    with ExitStack() as stack:
        opened = {}
        for place in places:
            if place.is_dir():
                path = place.resolve() / f"rookhold-{secrets.token_hex(6)}.sock"
                made = stack.enter_context(socket.socket(socket.AF_UNIX))
                made.bind(str(path))
                made.listen()
                path.chmod(0o777)
                stack.callback(path.unlink)
                opened[str(path)] = made
        told = target.ask(f"""
import socket
for path in {list(opened)!r}:
    with socket.socket(socket.AF_UNIX) as made:
        told[path] = attempted(made.connect, path)
told["in sight"] = [path for path in everything() if os.path.exists(path)
                    and os.lstat(path).st_mode & 0o170000 == 0o140000]
""")
        assert heard(opened) == []
    assert told.pop("in sight") == []
    assert told == dict.fromkeys(told, "ENOENT")
    assert len(told) >= 3


def test_no_address_of_the_outside_has_a_route(target: Target) -> None:
    told = target.ask(f"""
import socket
for host in {FAR!r}:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
        with socket.socket(family, kind) as made:
            made.settimeout(2)
            told[f"{{host}} {{int(kind)}}"] = attempted(made.connect, (host, 80))
for host in ("255.255.255.255", "224.0.0.251"):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as made:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
        told[host] = attempted(made.sendto, b"x", (host, 9))
""")
    unreachable = {"ENETUNREACH", "EHOSTUNREACH", "EADDRNOTAVAIL"}
    assert set(told.values()) <= unreachable, told


def test_no_name_is_resolved(target: Target) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as resolver:
        resolver.bind(("127.0.0.1", 0))
        port = resolver.getsockname()[1]
        told = target.ask(f"""
import socket, time
began = time.monotonic()
for name in ("example.invalid", "metadata.google.internal", "host.docker.internal", "gateway"):
    try:
        told[name] = socket.getaddrinfo(name, 80)[0][4][0]
    except socket.gaierror as error:
        told[name] = "none"
told["localhost"] = socket.gethostbyname("localhost")
query = bytes.fromhex("123401000001000000000000076578616d706c6507696e76616c69640000010001")
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as made:
    for host in ("127.0.0.1", "127.0.0.53", "192.0.2.53"):
        told[host] = attempted(made.sendto, query, (host, {port}))
told["seconds"] = time.monotonic() - began
""")
        assert heard({"resolver": resolver}) == []
    assert told.pop("localhost") == "127.0.0.1"
    assert told.pop("seconds") < 20 * SLOW
    assert [told.pop(name) for name in list(told) if name[0].isalpha()] == ["none"] * 4
    assert told.pop("192.0.2.53") in {"ENETUNREACH", "EHOSTUNREACH"}


def test_a_job_that_listens_is_not_reached_from_outside(target: Target) -> None:
    reached = []

    async def scenario() -> None:
        code = f"""
import socket, time
made = socket.socket()
made.bind(("0.0.0.0", 0))
made.listen()
unix = socket.socket(socket.AF_UNIX)
unix.bind("\\0{name}")
unix.listen()
print(made.getsockname()[1], flush=True)
time.sleep(30)
"""
        harness = target.harness
        running = await harness.executor.start(harness.plan("python", code, limits=LIMITS))
        async for event in running.events():
            if isinstance(event, OutputRecord):
                ways = [(socket.AF_INET, ("127.0.0.1", int(event.line)))]
                ways.append((socket.AF_UNIX, f"\0{name}"))  # type: ignore[arg-type]
                for family, address in ways:
                    with socket.socket(family) as made:
                        made.settimeout(2)
                        reached.append(made.connect_ex(address))
                running.kill(KillReason.CANCELLED)
        await running.wait()

    name = f"hostile-{secrets.token_hex(8)}"
    target.harness.do(scenario())
    assert len(reached) == 2
    assert 0 not in reached


def test_the_loopback_is_its_own_and_nothing_can_be_configured(target: Target) -> None:
    told = target.ask("""
import fcntl, socket, struct
made = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
def asked(number, name, rest=bytes(24)):
    return attempted(fcntl.ioctl, made, number, struct.pack("16s24s", name, rest))
told["up"] = asked(0x8914, b"lo", struct.pack("H22x", 0x49))
told["address"] = asked(0x8916, b"lo", struct.pack("HH4s16x", 2, 0, bytes((10, 1, 2, 3))))
told["bridge"] = asked(0x89A0, b"br0")
told["tunnel"] = asked(0x89F1, b"tun0")
told["route"] = attempted(fcntl.ioctl, made, 0x890B, bytes(120))
told["arp"] = attempted(fcntl.ioctl, made, 0x8955, bytes(68))
told["transparent"] = attempted(made.setsockopt, 0, 19, 1)
told["mark"] = attempted(made.setsockopt, 1, 36, 1)
told["forced buffer"] = attempted(made.setsockopt, 1, 33, 1 << 30)
told["tables"] = attempted(made.getsockopt, 0, 64, 84)
""")
    if target.gvisor:
        del told["transparent"], told["mark"]  # of a network that leads nowhere
    assert "done" not in told.values(), told
    if not target.gvisor:
        by_filter = {
            told.pop(name) for name in ("up", "address", "bridge", "tunnel", "route", "arp")
        }
        assert by_filter == {"EPERM"}


def test_a_flood_at_its_own_loopback_stays_there(target: Target) -> None:
    with listeners() as opened:
        port = opened["udp"].getsockname()[1]
        result = target.run(
            "python",
            f"""
import socket, time
made = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
until = time.monotonic() + 0.5
while time.monotonic() < until:
    for port in ({port}, 53, 123, 1900):
        for host in ("127.0.0.1", "255.255.255.255", "224.0.0.1"):
            attempted(made.sendto, bytes(512), (host, port))
""",
        )
        assert heard(opened) == []
    assert told_by(result) == {}
