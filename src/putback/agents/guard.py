"""Whether a shell command plainly destroys data that is on this disk.

A judgement for a warning, never a protection: what a script, a variable or another program does is not seen, and
what is sent elsewhere (`git push --force`, `ssh`) is not meant. A command that reads is never taken for one that
destroys. Nothing is executed, expanded or looked up, nothing is raised; `shell_words.LONGEST` bounds the time.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence

from putback.agents.shell_words import UNKNOWN, simple_commands

# How often one command line may be an argument within another (`bash -c "bash -c …"`).
DEEPEST = 6

Words = Sequence[str]
Rule = Callable[[Words, int], str | None]

_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*\+?=", re.ASCII)
# What is there to be written over, and what is nobody's data.
_NO_DATA = re.compile(r"/(?:dev|proc|tmp|var/tmp)/|\$|(?:nul|null)\Z", re.IGNORECASE)

# Calls in the languages that people write one-liners in.
_DELETES = re.compile(
    r"\brmtree\(|\bos\.(?:remove|unlink|removedirs)\(|\.unlink\(|\b(?:rm|unlink|rmdir)Sync\(|\bFileUtils\.rm\w*"
)

# Programs that start another: their options that take a value, and how many operands come before the command.
_WRAPPERS: Mapping[str, tuple[str, int]] = {
    "sudo": ("ugphCDRTUrt", 0),
    "doas": ("uC", 0),
    "env": ("uC", 0),
    "nohup": ("", 0),
    "nice": ("n", 0),
    "ionice": ("cnp", 0),
    "time": ("fo", 0),
    "timeout": ("ks", 1),
    "exec": ("a", 0),
    "command": ("", 0),
    "builtin": ("", 0),
    "setsid": ("", 0),
    "stdbuf": ("ioe", 0),
    "busybox": ("", 0),
    "xargs": ("nIPLdsEa", 0),
    "parallel": ("jnNI", 0),
}
_FIND_EXECUTES = frozenset({"-exec", "-execdir", "-ok", "-okdir", "-x", "-X", "--exec", "--exec-batch"})
_SHELLS = frozenset({"sh", "bash", "zsh", "dash", "ksh", "ash", "fish", "su", "pwsh", "powershell"})


def destructive(command: str) -> str | None:
    """What the command destroys, in a few words that name the part at fault; None where none is plain."""
    return _line(command, 0)


def _line(line: str, depth: int) -> str | None:
    for simple in simple_commands(line):
        for target in simple.over:
            if not _NO_DATA.match(target) and UNKNOWN not in target:
                return f"`>` overwrites {target[:80]!r}"
        if reason := _command(simple.words, depth, fed=simple.fed):
            return reason
    return None


def _command(words: Words, depth: int, *, fed: bool = False) -> str | None:
    words = _unwrapped(words)
    if not words or depth > DEEPEST:
        return None
    name = _name(words[0])
    rest = words[1:]
    if any(word in ("--help", "--version") for word in rest):
        return None
    if name in _SHELLS:
        return _shell(rest, depth)
    if name in _POWERSHELL:
        return _POWERSHELL[name](rest, fed)
    rule = _RULES.get(name)
    return rule(rest, depth) if rule else None


def _name(word: str) -> str:
    return word.replace("\\", "/").rpartition("/")[2].lower().removesuffix(".exe")


def _unwrapped(words: Words) -> Words:
    """The command without assignments, and without programs that only start it."""
    words, given = list(words), False
    while words:
        while words and _ASSIGNMENT.match(words[0]):
            del words[0]
        wrapper = _name(words[0]) if words else ""
        if wrapper not in _WRAPPERS or (wrapper == "command" and words[1:2] and words[1] in ("-v", "-V")):
            break
        given = given or wrapper in ("xargs", "parallel")
        takes, operands = _WRAPPERS[wrapper]
        del words[0]
        while words and words[0].startswith("-") and words[0] != "-":
            option = words.pop(0)
            if option == "--":
                break
            if len(option) == 2 and option[1] in takes and words:
                del words[0]
        del words[:operands]
    return [*words, "{}"] if given and words else words


def _flags(words: Words) -> tuple[set[str], list[str]]:
    """The options by their names, short ones by their letters, and the operands."""
    flags: set[str] = set()
    operands: list[str] = []
    for at, word in enumerate(words):
        if word == "--":
            operands += words[at + 1 :]
            break
        if word.startswith("--"):
            flags.add(word.partition("=")[0])
        elif word.startswith("-") and len(word) > 1:
            flags |= set(word[1:])
        else:
            operands.append(word)
    return flags, operands


def _shell(words: Words, depth: int) -> str | None:
    for at, word in enumerate(words[:-1]):
        if re.fullmatch(r"-[a-z]*c|-command|--command", word, re.IGNORECASE):
            return _line(words[at + 1], depth + 1)
    return None


def _eval(words: Words, depth: int) -> str | None:
    return _line(" ".join(words), depth + 1)


def _rm(words: Words, depth: int) -> str | None:
    flags, operands = _flags(words)
    if not operands:
        return None
    if flags & {"r", "R", "--recursive"}:
        return "`rm -r` deletes directories and all that is in them"
    return "`rm` deletes files"


def _mv(words: Words, depth: int) -> str | None:
    flags, operands = _flags(words)
    if flags & {"n", "i", "b", "u", "t", "--no-clobber", "--interactive", "--backup", "--update"}:
        return None
    if len(operands) != 2 or _is_directory(operands[1]) or UNKNOWN in operands[1]:
        return None
    return f"`mv` may overwrite {operands[1][:80]!r}"


def _cp(words: Words, depth: int) -> str | None:
    flags, _ = _flags(words)
    if flags & {"r", "R", "a", "--recursive", "--archive", "S", "--suffix"}:
        return None
    return (_mv(words, depth) or "").replace("`mv`", "`cp`") or None


def _ln(words: Words, depth: int) -> str | None:
    return (_mv(words, depth) or "").replace("`mv`", "`ln -f`") or None if "f" in _flags(words)[0] else None


def _tee(words: Words, depth: int) -> str | None:
    flags, operands = _flags(words)
    if flags & {"a", "--append"}:
        return None
    over = next((name for name in operands if not _NO_DATA.match(name) and UNKNOWN not in name), None)
    return None if over is None else f"`tee` overwrites {over[:80]!r}"


def _sed(words: Words, depth: int) -> str | None:
    """Also of perl: files are rewritten in place, and no copy is kept."""
    in_place = any(re.fullmatch(r"-[nErsz]*i|-[pnlwa0]*i[pne]*|--in-place", word) for word in words)
    return "`-i` rewrites files in place" if in_place else None


def _program(words: Words, depth: int) -> str | None:
    """A program in the words of a command: only calls that do nothing else than delete."""
    given = next((words[at + 1] for at, word in enumerate(words[:-1]) if word in ("-c", "-e", "--eval")), "")
    found = _DELETES.search(given)
    return f"`{found.group().rstrip('(')}` deletes files" if found else None


def _perl(words: Words, depth: int) -> str | None:
    return _sed(words, depth) or _program(words, depth)


def _is_directory(name: str) -> bool:
    return name.endswith("/") or name.rpartition("/")[2] in (".", "..") or name.startswith("$")


def _find(words: Words, depth: int) -> str | None:
    if "-delete" in words:
        return "`find -delete` deletes what it finds"
    at = 0
    while at < len(words):
        word, at = words[at], at + 1
        if word in _FIND_EXECUTES:
            end = next((later for later in range(at, len(words)) if words[later] in (";", "+")), len(words))
            if reason := _command([*words[at:end], "{}"], depth + 1):
                return reason
            at = end
    return None


def _truncate(words: Words, depth: int) -> str | None:
    size = ""
    for at, word in enumerate(words):
        if word in ("-s", "--size"):
            size = "".join(words[at + 1 : at + 2])
        elif word.startswith(("-s", "--size=")):
            size = word.removeprefix("--size=").removeprefix("-s")
    return None if not words or size.startswith(("+", ">")) else "`truncate` cuts files off"


def _dd(words: Words, depth: int) -> str | None:
    for word in words:
        if word.startswith("of=") and not re.match(r"/dev/(null|std|fd|tty)|\$|\Z", word[3:]):
            return f"`dd` overwrites {word[3:83]!r}"
    return None


def _operands_lost(words: Words, depth: int) -> str | None:
    return "deletes files beyond recovery" if _flags(words)[1] else None


def _rsync(words: Words, depth: int) -> str | None:
    flags, operands = _flags(words)
    if flags & {"n", "--dry-run"} or not operands or re.match(r"[^/]*:", operands[-1]):
        return None
    if "--remove-source-files" in flags:
        return "`rsync --remove-source-files` deletes its source"
    if any(flag.startswith("--del") for flag in flags):
        return "`rsync --delete` deletes what its source does not have"
    return None


def _git(words: Words, depth: int) -> str | None:
    from putback.agents.guard_git import git  # the rules of git are many: who calls none does not load them

    return git(words)


def _remove_item(words: Words, fed: bool) -> str | None:
    lower = [word.lower() for word in words]
    if "-whatif" in lower:
        return None
    if any(word == "/s" or (word.startswith("-r") and "-recurse".startswith(word)) for word in lower):
        return "`Remove-Item -Recurse` deletes directories and all that is in them"
    return "`Remove-Item` deletes files" if words or fed else None


def _rmdir(words: Words, fed: bool) -> str | None:
    # Everywhere else it takes empty directories only.
    recursive = any(word.lower() in ("/s", "-recurse", "-r") for word in words)
    return _remove_item(words, fed) if recursive else None


def _clear_content(words: Words, fed: bool) -> str | None:
    return "`Clear-Content` empties files" if words or fed else None


_RULES: Mapping[str, Rule] = {
    "eval": _eval,
    "rm": _rm,
    "mv": _mv,
    "cp": _cp,
    "ln": _ln,
    "tee": _tee,
    "sed": _sed,
    "gsed": _sed,
    "perl": _perl,
    **dict.fromkeys(("python", "python3", "node", "ruby", "bun"), _program),
    "find": _find,
    "fd": _find,
    "truncate": _truncate,
    "dd": _dd,
    "shred": _operands_lost,
    "srm": _operands_lost,
    "unlink": _rm,
    "rsync": _rsync,
    "git": _git,
}

# By the names and the aliases of its commands; each is told whether a pipeline gives it what to work on.
_POWERSHELL: Mapping[str, Callable[[Words, bool], str | None]] = {
    "remove-item": _remove_item,
    "ri": _remove_item,
    "del": _remove_item,
    "erase": _remove_item,
    "rd": _rmdir,
    "rmdir": _rmdir,
    "clear-content": _clear_content,
    "clc": _clear_content,
}
