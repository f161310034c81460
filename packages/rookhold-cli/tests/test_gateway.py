from __future__ import annotations

import pytest

from rookhold_cli.errors import UsageError
from rookhold_cli.gateway import configured, existing

BOTH = {"ROOKHOLD_BASE_URL": "http://127.0.0.1:1", "ROOKHOLD_API_KEY": "secret"}


def test_a_gateway_needs_both_variables() -> None:
    found = configured(BOTH)
    assert found is not None
    assert (found.base_url, found.api_key) == ("http://127.0.0.1:1", "secret")
    assert "secret" not in repr(found)


def test_no_variable_is_no_gateway() -> None:
    assert configured({}) is None
    assert configured({"ROOKHOLD_BASE_URL": "", "ROOKHOLD_API_KEY": ""}) is None


@pytest.mark.parametrize("name", sorted(BOTH))
def test_half_a_configuration_is_refused(name: str) -> None:
    for ask in (configured, existing):
        with pytest.raises(UsageError) as caught:
            ask({name: BOTH[name]})
        assert "secret" not in str(caught.value)


def test_other_commands_find_the_development_gateway() -> None:
    assert existing({}).base_url == "http://127.0.0.1:7300"
    assert existing(BOTH) == configured(BOTH)
