"""Tokens of our own form, and the pepper that has no printed one."""

import hmac
import pickle
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rookhold_server.identity.structured import Pepper, new_key_id, new_token, parts

SECRET = "s" * 32


@pytest.mark.parametrize(
    ("token", "key_id"),
    [
        (f"rookhold_ci-1_{SECRET}", "ci-1"),
        (f"rookhold_A_{SECRET}", "A"),
        (f"rookhold_{'x' * 64}_{SECRET}", "x" * 64),
        (f"rookhold_ci_{'_' * 32}", "ci"),
        (f"rookhold_ci_{'.' * 40}", "ci"),
    ],
)
def test_the_first_underscore_ends_the_key_id(token: str, key_id: str) -> None:
    found = parts(token)
    assert found is not None
    assert found.key_id == key_id


@pytest.mark.parametrize(
    "token",
    [
        "",
        "rookhold_",
        "rookhold_ci",
        f"rookhold__{SECRET}",
        f"rookhold_ci_{SECRET[1:]}",
        f"rookhold_c.i_{SECRET}",
        f"rookhold_{'x' * 65}_{SECRET}",
        f"Rookhold_ci_{SECRET}",
        f"rookhold-ci_{SECRET}",
        f" rookhold_ci_{SECRET}",
        "rookhold-dev-key",
    ],
)
def test_anything_else_is_of_another_form(token: str) -> None:
    assert parts(token) is None


def test_a_token_that_we_make_has_43_characters_of_secret() -> None:
    tokens = {new_token("ci-1") for _ in range(50)}
    assert len(tokens) == 50
    for token in tokens:
        assert re.fullmatch(r"rookhold_ci-1_[A-Za-z0-9_-]{43}", token)
        found = parts(token)
        assert found is not None
        assert found.key_id == "ci-1"
    assert parts(new_token(new_key_id())) is not None


def test_the_verifier_covers_the_whole_token() -> None:
    key, token = bytes(range(32)), f"rookhold_ci-1_{SECRET}"
    assert Pepper(key).verifier(token) == hmac.digest(key, token.encode(), "sha256")
    assert Pepper(key).verifier(token) != Pepper(key).verifier(token.replace("ci-1", "ci-2"))
    assert Pepper(key).verifier(token) != Pepper(bytes(32)).verifier(token)


def test_a_pepper_shows_itself_nowhere() -> None:
    pepper = Pepper(b"\xab" * 32)
    for text in (repr(pepper), str(pepper), f"{pepper}", repr([pepper]), repr(vars(type(pepper)))):
        assert "abab" not in text
        assert "\\xab" not in text
    with pytest.raises(TypeError):
        pickle.dumps(pepper)
    with pytest.raises(ValueError, match="32 bytes"):
        Pepper(b"\xab" * 31)
    assert Pepper.new().hex() != Pepper.new().hex()


@settings(max_examples=60, deadline=None)
@given(st.text())
def test_no_text_breaks_the_parser(text: str) -> None:
    for token in (text, f"rookhold_{text}", f"rookhold_{text}_{SECRET}"):
        found = parts(token)
        if found is not None:
            assert token.startswith(f"rookhold_{found.key_id}_")
            assert "_" not in found.key_id
            assert len(token) == len("rookhold__") + len(found.key_id) + found.secret_characters
