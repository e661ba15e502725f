"""`dimoo studio` and `dimoo serve`: what they refuse before anything is loaded."""

from __future__ import annotations

import pytest

pytest.importorskip("gradio", reason="needs the extra [app]")


@pytest.mark.parametrize("command", ["studio", "serve"])
def test_logins_are_pairs(cli, command):
    result = cli(command, "--auth", "nobody", "--model", "missing/", code=2)
    assert "--auth is USER:PASSWORD, got 'nobody'" in result.output


def test_a_public_address_needs_a_login(cli):
    assert "give --auth USER:PASSWORD" in cli("studio", "--share", "--model", "missing/", code=2).output


def test_limits_are_checked_before_the_model_is_loaded(cli):
    assert "at least 1" in cli("serve", "--max-batch", "0", "--model", "missing/", code=2).output


def test_help_names_what_is_served(cli):
    assert "/v1/chat/completions" in cli("serve", "--help").output
