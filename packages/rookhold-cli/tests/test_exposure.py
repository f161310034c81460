from __future__ import annotations

import pytest

from rookhold_cli.exposure import is_public_plain_http

NAMES = {"public.example": ["10.0.0.1", "93.184.215.14"], "inside.example": ["fd00::1%eth0"]}


@pytest.mark.parametrize(
    ("base_url", "exposed"),
    [
        ("http://127.0.0.1:7300", False),
        ("http://[::1]:7300", False),
        ("http://192.168.1.5", False),
        ("http://8.8.8.8", True),
        ("http://[2606:4700::1111]", True),
        ("https://8.8.8.8", False),
        ("http://public.example", True),
        ("https://public.example", False),
        ("http://inside.example", False),
        ("http://unknown.example", False),
    ],
)
def test_only_plain_http_to_a_public_address_is_exposed(base_url: str, exposed: bool) -> None:
    assert is_public_plain_http(base_url, lambda host: NAMES.get(host, [])) is exposed
