"""Valid settings that are not safe together."""

import pytest

from rookhold_server.config.address import Address
from rookhold_server.config.guards import check_backend, check_exposure, check_settings
from rookhold_server.config.settings import Settings, read_settings
from rookhold_server.errors import SettingError
from rookhold_types.isolation import IsolationClass

NONE, SHARED = IsolationClass.NONE, IsolationClass.LINUX_SHARED_KERNEL
GOOD = {
    "ENV": "production",
    "API_KEYS": "acme:a-long-enough-key-1",
    "ATTESTATION_MODE": "off",
    "SANDBOX": "namespaces",
    "ROOTFS": "/srv/rookhold/rootfs",
}
PUBLIC = {"ADDR": "0.0.0.0:7300"}
OURS = {"API_KEYS": "acme:a-long-enough-key-1"}


def read(variables: dict[str, str]) -> Settings:
    environ = {f"ROOKHOLD_{name}": text for name, text in variables.items()}
    return read_settings({"HOME": "/home/somebody"} | environ)


def start(variables: dict[str, str], *, uid: int = 1000, found: IsolationClass = SHARED) -> str:
    """Run every guard in the order of a start: 'starts', or the variable that refuses it."""
    settings = read(variables)
    refused: SettingError | None = None
    try:
        check_settings(settings, effective_uid=uid)
        check_backend(settings, settings.address, found)
    except SettingError as error:
        refused = error
    if refused is None:
        return "starts"
    keys = variables.get("API_KEYS")
    assert not keys or keys not in str(refused)
    assert refused.variable in str(refused)
    return f"{refused.code} {refused.variable}"


def test_a_complete_production_starts() -> None:
    assert start(GOOD) == "starts"


@pytest.mark.parametrize(
    ("change", "answer"),
    [
        ({"API_KEYS": ""}, "setting_required ROOKHOLD_API_KEYS"),
        ({"API_KEYS": "a-long-enough-key-1"}, "setting_unsafe ROOKHOLD_API_KEYS"),
        ({"API_KEYS": "acme:rookhold-dev-key"}, "setting_unsafe ROOKHOLD_API_KEYS"),
        ({"API_KEYS": "acme:fifteen-chars-x"[:20]}, "setting_unsafe ROOKHOLD_API_KEYS"),
        ({"ADDR": "192.0.2.1:7300"}, "setting_unsafe ROOKHOLD_ADDR"),
        ({"SECCOMP": "off"}, "setting_unsafe ROOKHOLD_SECCOMP"),
        ({"GVISOR_PLATFORM": "ptrace"}, "setting_unsafe ROOKHOLD_GVISOR_PLATFORM"),
    ],
)
def test_production_refuses(change: dict[str, str], answer: str) -> None:
    assert start(GOOD | change) == answer
    # the development override relaxes nothing here
    assert start(GOOD | change | {"UNSAFE_ALLOW_PUBLIC_DEV": "1"}) == answer


def test_production_behind_a_proxy_may_listen_beyond_loopback() -> None:
    assert start(GOOD | PUBLIC | {"TLS_TERMINATED_BY_PROXY": "yes"}) == "starts"


def test_production_with_a_certificate_may_listen_beyond_loopback() -> None:
    files = {"TLS_CERT_FILE": "/etc/x/chain.pem", "TLS_KEY_FILE": "/etc/x/key.pem"}
    assert start(GOOD | PUBLIC | files) == "starts"


def test_production_as_root_needs_an_account() -> None:
    assert start(GOOD, uid=0) == "setting_required ROOKHOLD_USER"
    assert start(GOOD | {"USER": "rookhold"}, uid=0) == "starts"


def test_development_may_use_the_slow_platform_of_gvisor() -> None:
    assert start({"GVISOR_PLATFORM": "ptrace"}) == "starts"


@pytest.mark.x86_64
@pytest.mark.parametrize(
    ("variables", "missing"),
    [
        ({"SANDBOX": "namespaces"}, "ROOKHOLD_ROOTFS"),
        ({"SANDBOX": "gvisor"}, "ROOKHOLD_ROOTFS"),
        ({"SANDBOX": "gvisor", "ROOTFS": "/srv/rootfs"}, "ROOKHOLD_GVISOR_RUNSC"),
        (
            {"SANDBOX": "gvisor", "ROOTFS": "/srv/rootfs", "GVISOR_RUNSC": "/usr/bin/runsc"},
            "ROOKHOLD_GVISOR_ROOTFS_SHA256",
        ),
    ],
)
def test_a_named_backend_needs_what_only_the_operator_can_name(
    variables: dict[str, str], missing: str
) -> None:
    assert start(variables) == f"setting_required {missing}"


def test_production_wants_an_isolation_class_or_an_acknowledgement() -> None:
    weak = GOOD | {"SANDBOX": "namespaces-dev"}
    assert start(weak, found=NONE) == "setting_unsafe ROOKHOLD_SANDBOX"
    assert start(weak | {"UNSAFE_ALLOW_NAIVE": "true"}, found=NONE) == "starts"


def test_auto_in_production_never_takes_a_weak_backend() -> None:
    auto = GOOD | {"SANDBOX": "auto", "UNSAFE_ALLOW_NAIVE": "true"}
    assert start(auto, found=NONE) == "setting_unsafe ROOKHOLD_SANDBOX"
    assert start(auto, found=SHARED) == "starts"


def test_where_the_platform_has_no_such_backend_nothing_is_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("platform.machine", lambda: "aarch64")
    assert start({"SANDBOX": "gvisor"}) == "starts"  # as far as settings can tell


@pytest.mark.parametrize(
    ("variables", "found"),
    [
        (PUBLIC, SHARED),  # the public key
        (PUBLIC | {"API_KEYS": "acme:rookhold-dev-key"}, SHARED),
        (PUBLIC | {"API_KEYS": "acme:short"}, SHARED),
        (PUBLIC | OURS, NONE),
        (PUBLIC | OURS | {"SANDBOX": "off"}, NONE),
        (PUBLIC | OURS | {"SANDBOX": "ns-dev"}, NONE),
    ],
)
def test_development_beyond_loopback_is_refused_unless_acknowledged(
    variables: dict[str, str], found: IsolationClass
) -> None:
    assert start(variables, found=found) == "setting_unsafe ROOKHOLD_ADDR"
    assert start(variables | {"UNSAFE_ALLOW_PUBLIC_DEV": "on"}, found=found) == "starts"
    assert start(variables | {"ADDR": "localhost:7300"}, found=found) == "starts"


def test_development_beyond_loopback_with_good_keys_and_a_class_starts() -> None:
    assert start(PUBLIC | OURS | {"SANDBOX": "namespaces", "ROOTFS": "/r"}) == "starts"


def test_the_bound_address_counts_too() -> None:
    settings = read({})
    with pytest.raises(SettingError):
        check_exposure(settings, Address("192.0.2.1", 7300))
