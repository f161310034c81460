"""A provider of access tokens for tests: real keys, an authority of its own, real TLS."""

from __future__ import annotations

import base64
import datetime
import ipaddress
import json
import ssl
import threading
import time
import uuid
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

import jwt
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.x509.oid import NameOID

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from types import TracebackType

AUDIENCE = "https://gateway.example/api"
SECONDS = 30


class SigningKey:
    """A private key, and how its public half is published."""

    def __init__(self, kid: str, algorithm: str) -> None:
        self.kid = kid
        self.algorithm = algorithm
        self.private: Any
        if algorithm[:2] in {"RS", "PS"}:
            self.private = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        elif algorithm == "EdDSA":
            self.private = ed25519.Ed25519PrivateKey.generate()
        else:
            curves = {"ES256": ec.SECP256R1(), "ES384": ec.SECP384R1(), "ES512": ec.SECP521R1()}
            self.private = ec.generate_private_key(curves[algorithm])

    def jwk(self, **changes: Any) -> dict[str, Any]:
        kind = jwt.get_algorithm_by_name(self.algorithm)
        public = json.loads(kind.to_jwk(self.private.public_key()))
        whole = {"kid": self.kid, "use": "sig", "alg": self.algorithm, **public}
        whole.pop("key_ops", None)
        whole |= changes
        return {name: value for name, value in whole.items() if value is not None}


class Provider:
    """Signs tokens and names keys; is to be found nowhere."""

    def __init__(self, url: str = "https://issuer.example", **algorithms: str) -> None:
        """`algorithms` are the keys to begin with, by kid."""
        self.url = url
        self.keys = {kid: SigningKey(kid, name) for kid, name in algorithms.items()}
        self.published: bytes | None = None  # instead of the keys
        self.clock: Callable[[], float] = time.time

    def add(self, kid: str, algorithm: str) -> SigningKey:
        self.keys[kid] = SigningKey(kid, algorithm)
        return self.keys[kid]

    def jwks(self) -> bytes:
        if self.published is not None:
            return self.published
        return json.dumps({"keys": [key.jwk() for key in self.keys.values()]}).encode()

    def claims(self, **changes: Any) -> dict[str, Any]:
        """Return good ones; a change to None takes a claim away."""
        now = int(self.clock())
        whole = {
            "iss": self.url,
            "sub": "user-7",
            "aud": AUDIENCE,
            "iat": now,
            "exp": now + 600,
            "jti": str(uuid.uuid4()),
            "client_id": "agent",
            "scope": "jobs:submit jobs:read service:read",
            "tenant_id": "org-1",
            **changes,
        }
        return {name: value for name, value in whole.items() if value is not None}

    def token(
        self,
        kid: str | None = None,
        *,
        header: dict[str, Any] | None = None,
        key: SigningKey | None = None,
        **claims: Any,
    ) -> str:
        """Return a signed token: of the first key, unless told otherwise."""
        key = key or self.keys[kid or next(iter(self.keys))]
        members = {"typ": "at+jwt", "alg": key.algorithm, "kid": kid or key.kid, **(header or {})}
        shown = {name: value for name, value in members.items() if value is not None}
        return signed(shown, self.claims(**claims), key)


class Issuer(Provider):
    """Publishes its keys over TLS; what a test changes, the next answer has."""

    def __init__(self, folder: Path, **algorithms: str) -> None:
        self.status = 200
        self.headers: dict[str, str] = {}
        self.delay = 0.0
        self.requests = 0
        self.ca_file = folder / "ca.pem"
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
        self._server.daemon_threads = True
        self._server.issuer = self  # type: ignore[attr-defined]
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(make_certificates(folder))
        self._server.socket = context.wrap_socket(
            self._server.socket, server_side=True, do_handshake_on_connect=False
        )
        self.port: int = self._server.server_address[1]
        super().__init__(f"https://localhost:{self.port}", **algorithms)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,))

    def __enter__(self) -> Issuer:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._server.shutdown()
        self._thread.join(SECONDS)
        self._server.server_close()

    def settings(self) -> dict[str, str]:
        """Return the variables by which a gateway finds and takes this provider."""
        return {
            "ROOKHOLD_OIDC_ISSUER": self.url,
            "ROOKHOLD_OIDC_AUDIENCE": AUDIENCE,
            "ROOKHOLD_OIDC_JWKS_URL": f"{self.url}/keys",
            "ROOKHOLD_OIDC_TENANT_MAP": "org-1=acme,org-2=other",
            "SSL_CERT_FILE": str(self.ca_file),
        }


def signed(header: dict[str, Any], claims: object, key: SigningKey) -> str:
    """Return a token of exactly this header and these claims, whatever they are worth."""
    parts = [encoded(json.dumps(part).encode()) for part in (header, claims)]
    kind = jwt.get_algorithm_by_name(key.algorithm)
    return ".".join([*parts, encoded(kind.sign(".".join(parts).encode(), key.private))])


def encoded(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def make_certificates(folder: Path) -> Path:
    """Make an authority, `ca.pem`, and with it a certificate for this host; return that file."""
    authority = ec.generate_private_key(ec.SECP256R1())
    ca = (
        _certificate("tests' own authority", authority.public_key())
        .issuer_name(_name("tests' own authority"))
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs_certificates=True), critical=True)
        .sign(authority, hashes.SHA256())
    )
    own = ec.generate_private_key(ec.SECP256R1())
    names = [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
    certificate = (
        _certificate("localhost", own.public_key())
        .issuer_name(ca.subject)
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs_certificates=False), critical=True)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(authority.public_key()),
            critical=False,
        )
        .sign(authority, hashes.SHA256())
    )
    (folder / "ca.pem").write_bytes(ca.public_bytes(serialization.Encoding.PEM))
    path = folder / "issuer.pem"
    key = own.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    path.write_bytes(key + certificate.public_bytes(serialization.Encoding.PEM))
    return path


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _certificate(name: str, public: Any) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(_name(name))
        .public_key(public)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
    )


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


class _Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        issuer: Issuer = self.server.issuer  # type: ignore[attr-defined]
        issuer.requests += 1
        time.sleep(issuer.delay)
        body = issuer.jwks()
        self.send_response(issuer.status)
        for name, value in {"content-length": str(len(body)), **issuer.headers}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def handle(self) -> None:
        try:
            super().handle()
        except OSError:
            return  # a client that does not trust us, or has left

    def finish(self) -> None:
        try:
            super().finish()
        except OSError:
            return

    def log_message(self, *arguments: object) -> None:
        del arguments
