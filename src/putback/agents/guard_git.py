"""Which git commands throw away what git does not keep: uncommitted work, and commits that nothing names."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

Words = Sequence[str]

_GLOBAL_WITH_VALUE = frozenset({"-C", "-c", "--git-dir", "--work-tree", "--namespace", "--config-env"})
_NEW_BRANCH = frozenset({"b", "B", "t", "--orphan", "--track", "--detach"})


def git(words: Words) -> str | None:
    """What the arguments of `git` destroy, in words; None where it is nothing, or not plain."""
    words = list(words)
    while words and words[0].startswith("-"):
        del words[: 2 if words[0] in _GLOBAL_WITH_VALUE else 1]
    if not words or "-h" in words:
        return None
    rule = _RULES.get(words[0])
    return rule(words[1:]) if rule else None


def _options(words: Words) -> set[str]:
    """Long options by their names, short ones by their letters."""
    found: set[str] = set()
    for word in words:
        if word == "--":
            break
        if word.startswith("--"):
            found.add(word.partition("=")[0])
        elif word.startswith("-"):
            found |= set(word[1:])
    return found


def _reset(words: Words) -> str | None:
    # git takes any beginning of an option that is of one option alone.
    hard = any(len(option) > 3 and "--hard".startswith(option) for option in _options(words))
    return "`git reset --hard` throws away uncommitted work" if hard else None


def _clean(words: Words) -> str | None:
    options = _options(words)
    if not options & {"f", "--force"} or options & {"n", "--dry-run"}:
        return None
    return "`git clean -f` deletes untracked files"


def _checkout(words: Words) -> str | None:
    options = _options(words)
    lost = "`git checkout` of paths throws away uncommitted work"
    if "--" in words:
        return lost if words[-1] != "--" else None
    operands = [word for word in words if not word.startswith("-")]
    if any(operand in (".", ":/") or operand.startswith("./") for operand in operands):
        return lost
    if options & {"f", "--force"}:
        return "`git checkout -f` throws away uncommitted work"
    return lost if len(operands) > 1 and not options & _NEW_BRANCH else None


def _restore(words: Words) -> str | None:
    options = _options(words)
    if not words or (options & {"S", "--staged"} and not options & {"W", "--worktree"}):
        return None
    return "`git restore` throws away uncommitted work"


def _switch(words: Words) -> str | None:
    forced = _options(words) & {"f", "--force", "--discard-changes"}
    return "`git switch --force` throws away uncommitted work" if forced else None


def _stash(words: Words) -> str | None:
    if words and words[0] in ("drop", "clear"):
        return f"`git stash {words[0]}` deletes stashed work"
    if not words or words[0] in ("push", "save") or words[0].startswith("-"):
        return "`git stash` takes uncommitted work away"
    return None


def _branch(words: Words) -> str | None:
    options = _options(words)
    forced = "D" in options or (options & {"d", "--delete"} and options & {"f", "--force"})
    return "`git branch -D` deletes a branch that may not be merged" if forced else None


def _rm(words: Words) -> str | None:
    options = _options(words)
    if options & {"n", "--dry-run", "--cached"} or not words:
        return None
    return "`git rm` deletes files"


def _worktree(words: Words) -> str | None:
    forced = words and words[0] == "remove" and _options(words) & {"f", "--force"}
    return "`git worktree remove --force` deletes a work tree" if forced else None


def _checkout_index(words: Words) -> str | None:
    forced = _options(words) & {"f", "--force"}
    return "`git checkout-index -f` throws away uncommitted work" if forced else None


def _read_tree(words: Words) -> str | None:
    lost = _options(words) >= {"u", "--reset"}
    return "`git read-tree --reset -u` throws away uncommitted work" if lost else None


def _abort(words: Words) -> str | None:
    return "`--abort` throws away what was done about conflicts" if "--abort" in words else None


def _reflog(words: Words) -> str | None:
    told = words and words[0] in ("expire", "delete") and not _options(words) & {"n", "--dry-run"}
    return "`git reflog` deletes the names of earlier commits" if told else None


def _gc(words: Words) -> str | None:
    now = any(word in ("--prune=now", "--prune=all") for word in words)
    return "`git gc --prune` deletes commits that nothing names" if now else None


_RULES: Mapping[str, Callable[[Words], str | None]] = {
    "reset": _reset,
    "clean": _clean,
    "checkout": _checkout,
    "restore": _restore,
    "switch": _switch,
    "stash": _stash,
    "branch": _branch,
    "rm": _rm,
    "worktree": _worktree,
    "checkout-index": _checkout_index,
    "read-tree": _read_tree,
    **dict.fromkeys(("merge", "rebase", "am", "cherry-pick", "revert"), _abort),
    "reflog": _reflog,
    "gc": _gc,
}
