"""Where settings come from, who wins, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from putback import config
from putback.errors import UsageError


def load(root: Path, *pairs: str, user: Path | None = None) -> config.Settings:
    return config.load(root, user, pairs)


def test_nothing_configured_gives_the_defaults(tree: Path) -> None:
    assert load(tree) == config.Settings()


def test_later_sources_win(tree: Path, tmp_path: Path) -> None:
    user = tmp_path / "config.toml"
    user.write_text("[capture]\nmax_files = 1\nmax_file_bytes = 1\nmax_new_bytes = 1\nexclude = ['u']\n")
    (tree / "pyproject.toml").write_text(
        "[tool.putback.capture]\nmax_files = 2\nmax_file_bytes = 2\nmax_new_bytes = 2\n"
    )
    (tree / ".putback.toml").write_text("[capture]\nmax_files = 3\nmax_file_bytes = 3\n")
    found = load(tree, "capture.max_files=4", user=user).capture
    assert (found.max_files, found.max_file_bytes, found.max_new_bytes, found.exclude) == (4, 3, 2, ("u",))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[capture]\nmax_file = 1", "nearest valid name is 'capture.max_files'"),
        ("[captur]\n", "nearest valid name is 'capture'"),
        ("capture = 1", "is not a table"),
        ("[capture]\nmax_files = 'many'", "capture.max_files"),
        ("[capture]\nmax_files = -1", "not a size"),
        ("[capture]\nexclude = 'one'", "capture.exclude"),
        ("[capture\n", ".putback.toml"),
        ("[capture]\nmax_file = 1\n[stor]\n", "max_file.*stor"),
    ],
)
def test_faults_are_named(tree: Path, text: str, said: str) -> None:
    (tree / ".putback.toml").write_text(text)
    with pytest.raises(UsageError, match=said):
        load(tree)


def test_a_broken_project_file_matters_only_where_it_speaks_of_us(tree: Path) -> None:
    (tree / "pyproject.toml").write_text("[project\nname = ")
    assert load(tree) == config.Settings()
    (tree / "pyproject.toml").write_text("[tool.putback\n")
    with pytest.raises(UsageError):
        load(tree)


@pytest.mark.parametrize(
    ("root", "home", "unsuitable"),
    [
        ("/", "/home/me", True),
        ("/home/me", "/home/me", True),
        ("/home", "/home/me", True),
        ("/tmp", "/home/me", True),
        ("/etc", "/home/me", True),
        ("/usr/lib", "/home/me", True),
        ("/home/me/project", "/home/me", False),
        ("/tmp/project", "/home/me", False),
        ("/work", "/home/me", False),
    ],
)
def test_what_is_plainly_no_project(root: str, home: str, unsuitable: bool) -> None:
    assert (config.is_unsuitable(Path(root), Path(home)) is not None) == unsuitable
