"""Tokens that nobody gave out: changed, swapped, cut, expired, or signed by the wrong means."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from typing import TYPE_CHECKING, Any

from cryptography.hazmat.primitives import serialization

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from random import Random

    from issuer import Issuer, SigningKey

ASCII = "".join(chr(code) for code in range(0x21, 0x7F))


def segment(value: Any) -> str:
    data = value if isinstance(value, bytes) else json.dumps(value).encode()
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


class Forger:
    """Makes forgeries of good tokens; one seed makes the same ones of the same tokens."""

    def __init__(self, random: Random, issuer: Issuer, given: list[str]) -> None:
        self._random = random
        self._issuer = issuer
        self._given = given  # good ones, of the kinds that are compared
        self._kinds: list[Callable[[], str]] = [
            self._changed,
            self._cut,
            self._longer,
            self._of_two,
            self._noise,
            self._swapped,
            self._resigned_by_the_public_key,
            self._unsigned,
            self._over,
            self._member,
            self._claim,
            self._spelled_otherwise,
        ]

    def forgeries(self, count: int) -> Iterator[str]:
        for number in range(count):
            yield self._kinds[number % len(self._kinds)]()

    def _token(self) -> str:
        return self._random.choice([*self._given, self._issuer.token()])

    def _changed(self) -> str:
        token = self._token()
        at = self._random.randrange(len(token))
        other = self._random.choice(ASCII.replace(token[at], ""))
        return token[:at] + other + token[at + 1 :]

    def _cut(self) -> str:
        token = self._token()
        return token[: self._random.randrange(1, len(token))]

    def _longer(self) -> str:
        token, more = self._token(), self._random.choice(ASCII) * self._random.choice([1, 3, 9000])
        return self._random.choice([token + more, more + token])

    def _of_two(self) -> str:
        """The beginning of one and the end of another."""
        one, other = self._random.sample([*self._given, self._issuer.token()], 2)
        return one[: len(one) // 2] + other[len(other) // 2 :]

    def _noise(self) -> str:
        size = self._random.choice([1, 16, 64, 300])
        text = "".join(self._random.choices(ASCII, k=size))
        return self._random.choice([text, f"rookhold_{text}", f"{text}.{text}.{text}"])

    def _swapped(self) -> str:
        """What one says, signed as another."""
        one, other = self._issuer.token(), self._issuer.token(sub="somebody-else")
        parts, others = one.split("."), other.split(".")
        which = self._random.randrange(1, 3)
        parts[which] = others[which]
        return ".".join(parts)

    def _resigned_by_the_public_key(self) -> str:
        """HMAC with what everybody knows as its secret: the classic confusion."""
        key = self._key()
        shape = self._random.choice(
            [serialization.PublicFormat.SubjectPublicKeyInfo, serialization.PublicFormat.PKCS1]
            if key.algorithm.startswith("RS")
            else [serialization.PublicFormat.SubjectPublicKeyInfo]
        )
        public = key.private.public_key().public_bytes(serialization.Encoding.PEM, shape)
        name, digest = self._random.choice([("HS256", hashlib.sha256), ("HS512", hashlib.sha512)])
        said = self._random.choice([name, key.algorithm])  # the signature is an HMAC in any case
        text = f"{segment(self._header(key, alg=said))}.{segment(self._issuer.claims())}"
        return f"{text}.{segment(hmac.digest(public, text.encode(), digest))}"

    def _unsigned(self) -> str:
        name = self._random.choice(["none", "None", "NONE", "nOnE", "", None])
        text = f"{segment(self._header(self._key(), alg=name))}.{segment(self._issuer.claims())}"
        return f"{text}.{self._random.choice(['', 'AA', 'x'])}"

    def _over(self) -> str:
        ago = self._random.randrange(100, 10**6)
        now = self._issuer.claims()["iat"]
        return self._issuer.token(iat=now - ago - 60, exp=now - ago)

    def _member(self) -> str:
        """Signed well, under a header that is not to be believed."""
        name = self._random.choice(["jku", "jwk", "x5u", "x5c", "crit", "zip", "enc", "kid", "typ"])
        own = self._key().jwk()
        value: Any = self._random.choice(["https://attacker.example/", own, ["exp"], 7, True, {}])
        return self._issuer.token(header={name: value})

    def _claim(self) -> str:
        name = self._random.choice(["iss", "aud", "exp", "iat", "scope", "tenant_id", "client_id"])
        odd: Any = self._random.choice([[], {}, True, "\0", "", -1, 1e308, 2**70, ["x"], "a" * 600])
        return self._issuer.token(**{name: odd})

    def _spelled_otherwise(self) -> str:
        """The same bytes in another spelling of base64 or JSON, or with a member twice."""
        header, claims, signature = self._issuer.token().split(".")
        twice = segment(b'{"sub":"x",' + base64.urlsafe_b64decode(claims + "==")[1:])
        return self._random.choice(
            [
                f"{header}.{claims}.{signature}=",
                f"{header}={claims}.{signature}.",
                f"{header}.{twice}.{signature}",
                f"{header}.{claims}.{signature}.{signature}",
                f"{header}..{signature}",
                f"{header}.{claims}.{signature.swapcase()}",
            ]
        )

    def _key(self) -> SigningKey:
        return self._random.choice(list(self._issuer.keys.values()))

    def _header(self, key: SigningKey, **changes: Any) -> dict[str, Any]:
        return {"typ": "at+jwt", "alg": key.algorithm, "kid": key.kid, **changes}
