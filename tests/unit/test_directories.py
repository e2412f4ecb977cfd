"""The user's directories are those of `platformdirs`, whatever the environment says."""

from __future__ import annotations

import itertools

import platformdirs
import pytest

from putback import directories

HOMES = (None, "", "/h", "/h//me/", "relative")
VALUES = (None, "", "/somewhere", "/some//where/", "relative", "~/there", " ")


@pytest.mark.parametrize("home, chosen", list(itertools.product(HOMES, VALUES)))
def test_the_same_as_platformdirs(home: str | None, chosen: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("HOME", home), ("XDG_CONFIG_HOME", chosen), ("XDG_STATE_HOME", chosen)):
        if value is None:
            monkeypatch.delenv(name, raising=False)
        else:
            monkeypatch.setenv(name, value)
    assert directories.user_config() == platformdirs.user_config_path("putback")
    assert directories.user_state() == platformdirs.user_state_path("putback")
