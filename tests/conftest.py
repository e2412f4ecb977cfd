"""Fixtures and hooks that every test has."""

from __future__ import annotations

import hypothesis
import pytest

from support.hermetic import home, open_workspace, repository, store, tree
from support.turns import turning

__all__ = ["home", "open_workspace", "repository", "store", "tree", "turning"]

_COMMON = {
    "deadline": None,
    "database": None,
    "suppress_health_check": list(hypothesis.HealthCheck),
}
_QUICK = [hypothesis.Phase.explicit, hypothesis.Phase.generate]
hypothesis.settings.register_profile("default", max_examples=15, stateful_step_count=25, phases=_QUICK, **_COMMON)
hypothesis.settings.register_profile("long", max_examples=400, stateful_step_count=60, **_COMMON)
hypothesis.settings.load_profile("default")


# Hundreds of cases each, or many processes: short one by one, long together.
_SLOW = (
    *("crash/", "race/", "unit/test_confinement", "unit/test_faults", "unit/test_git_unavailable"),
    *("unit/test_locks", "unit/test_scope", "unit/test_hostile_git", "unit/test_robustness", "unit/test_runs"),
    *("unit/test_hostile_documents", "unit/test_hostile_runs", "unit/test_supervisor", "unit/test_verify"),
    *("unit/test_interrupted_runs", "unit/test_portable", "unit/test_ledger", "unit/test_follow"),
    *("unit/test_guards", "unit/test_worktree_provider", "unit/test_claims", "unit/test_bindings", "mcp/"),
    *("unit/test_turn_", "unit/test_staged", "unit/test_user_index", "unit/test_permissions", "unit/test_hook"),
    *("unit/test_check", "unit/test_install", "unit/test_doctor", "unit/test_adapters", "unit/test_bulk"),
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what is slow, and put the requirements that a test bears into its reports for `requirements.py`."""
    for item in items:
        if any(place in item.nodeid for place in _SLOW):
            item.add_marker("slow")
        for mark in item.iter_markers("requirement"):
            item.user_properties += [("requirement", number) for number in mark.args]
