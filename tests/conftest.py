"""Fixtures and hooks that every test has."""

from __future__ import annotations

import os
from collections import Counter

import hypothesis
import pytest

from crash.killing import is_long
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
    *("unit/test_install", "unit/test_doctor", "unit/test_adapters", "unit/test_bulk", "unit/test_streams"),
    *("unit/test_reclaim", "unit/test_prune", "unit/test_automatic", "unit/test_forget", "unit/test_relocate"),
    *("unit/test_check", "unit/test_merge", "unit/test_undo_turn", "unit/test_store_places", "agents_real/"),
    *("unit/test_listing", "unit/test_sizes"),
)


# Every so-manieth of what is one case for each of these with each of those; with the profile `long` of hypothesis
# all of them. The numbers share no divisor with the length of the inner list, so that nothing is left out of it.
_THINNED = {
    "race/test_swaps.py::test_restore_over_what_was_swapped": 3,
    "race/test_swaps.py::test_restore_of_what_was_staged_and_swapped": 3,
    "race/test_swaps.py::test_snapshot_of_what_was_swapped": 3,
    "race/test_swaps.py::test_file_that_does_not_hold_still": 3,
    "unit/test_confinement.py::test_unsafe_path_in_a_list_refuses_the_whole_restore": 2,
    "unit/test_confinement.py::test_hostile_path_in_a_record_leads_nowhere": 2,
    "unit/test_hostile_documents.py::test_an_unsafe_path_is_refused_and_the_others_go_on": 2,
}


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Thin out the largest products, mark what is slow, and put the requirements that a test bears into its
    reports for `requirements.py`."""
    if not is_long():
        _thin_out(config, items)
    for item in items:
        if any(place in item.nodeid for place in _SLOW):
            item.add_marker("slow")
        for mark in item.iter_markers("requirement"):
            item.user_properties += [("requirement", number) for number in mark.args]


def _thin_out(config: pytest.Config, items: list[pytest.Item]) -> None:
    seen: Counter[str] = Counter()
    left: list[pytest.Item] = []
    for item in list(items):
        name = item.nodeid.partition("[")[0].removeprefix("tests/")
        seen[name] += 1
        if name in _THINNED and (seen[name] - 1) % _THINNED[name]:
            left.append(item)
            items.remove(item)
    config.hook.pytest_deselected(items=left)


@pytest.fixture(autouse=True, scope="session")
def no_waiting_for_the_disk() -> None:
    """No test can cut the power. Which calls are made, and in which order, is asserted where it matters."""
    os.fsync = lambda descriptor: None
