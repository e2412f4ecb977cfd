"""Settings: defaults, the user's file, the workspace's file, and single values from the command line.

Later sources win over earlier ones: defaults, `<user configuration>/putback/config.toml`, `[tool.putback]` in
the workspace's `pyproject.toml`, its `.putback.toml`, then `KEY=VALUE` pairs. Unknown keys and values of the
wrong type are errors that name the file and the key.
"""

from __future__ import annotations

import errno
import os
import re
import stat
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Literal

import msgspec

from putback import directories
from putback.errors import UsageError

Permissions = Literal["private", "group"]

MIB = 1 << 20
GIB = 1 << 30
MOST_BYTES = 4 * MIB

_SECONDS = {"h": 3600, "d": 86_400, "w": 7 * 86_400}
_PART = re.compile(r"([0-9]{1,6})([hdw])")
_DURATION = re.compile(r"(?:[0-9]{1,6}[hdw])+")
_TYPE = re.compile(r"`(\w+)(?: \| null)?`")
_IN_WORDS = {
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "str": "a text",
    "array": "a list",
    "object": "a table",
}


class CaptureSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Bounds and scope of a capture; sizes in bytes. `include` and `exclude` are gitignore patterns."""

    max_file_bytes: int = 64 * MIB
    max_new_bytes: int = 2 * GIB
    max_files: int = 300_000
    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    anywhere: bool = False


class StoreSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Bounds of the store in bytes, and how long to wait for another process in seconds.

    `permissions` say who may use a store that is made; one that exists has its own. They are the user's to say.
    """

    max_bytes: int = 20 * GIB
    min_free_bytes: int = 1 * GIB
    lock_wait_seconds: float = 30.0
    permissions: Permissions = "private"


class RetentionSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What `prune` keeps, also by itself after a capture. Off until the user sets it: nothing is evicted silently.

    The user's to say: an agent can write the workspace's files. A count of 0 is a rule that is not set.
    """

    keep_last: int | None = None
    keep_hourly: int | None = None
    keep_daily: int | None = None
    keep_weekly: int | None = None
    keep_within: str | None = None
    keep_message: tuple[str, ...] = ()

    @property
    def is_set(self) -> bool:
        """Whether there is any rule."""
        counts = (self.keep_last, self.keep_hourly, self.keep_daily, self.keep_weekly)
        return any(counts) or bool(self.keep_within) or bool(self.keep_message)


class RunSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Defaults of `putback run`. Times are in seconds of the wall clock, sizes in bytes.

    `snapshot`, `rollback_on_breach` and `verify` are the user's to say: a workspace cannot make putback copy its
    contents, put anything back or run a command.
    """

    snapshot: bool = False
    rollback_on_breach: bool = False
    max_seconds: float | None = None
    max_files: int | None = None
    max_bytes: int | None = None
    protected: tuple[str, ...] = ()
    fail_on_error: bool = False
    verify: str = ""
    leftovers: Literal["wait", "end", "leave"] = "wait"
    wait_seconds: float = 10.0
    grace_seconds: float = 5.0


class AgentSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What the hooks of coding agents do; the user's to say, for an agent can write the workspace's files.

    `guard` is what happens before a plainly destructive command: a capture, a question to the user by the agent,
    or nothing. `prompt_seconds` is how long a prompt may wait for a capture, which then goes on beside it.
    """

    guard: Literal["capture", "ask", "off"] = "capture"
    prompt_seconds: float = 10.0


class Settings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """All settings of one call."""

    capture: CaptureSettings = CaptureSettings()
    store: StoreSettings = StoreSettings()
    retention: RetentionSettings = RetentionSettings()
    run: RunSettings = RunSettings()
    agent: AgentSettings = AgentSettings()


_SECTIONS: dict[str, type[msgspec.Struct]] = {
    "capture": CaptureSettings,
    "store": StoreSettings,
    "retention": RetentionSettings,
    "run": RunSettings,
    "agent": AgentSettings,
}
_USERS = frozenset(
    {
        *("store.permissions", "run.snapshot", "run.rollback_on_breach", "run.verify"),
        *("agent.guard", "agent.prompt_seconds"),
        *(f"retention.{name}" for name in RetentionSettings.__struct_fields__),
    }
)


def user_file() -> Path:
    """Where the user's own settings are, whether or not there are any."""
    return directories.user_config() / "config.toml"


def keys() -> list[str]:
    """Every valid key, dotted."""
    return [f"{section}.{name}" for section, kind in _SECTIONS.items() for name in kind.__struct_fields__]


def load(
    workspace: Path,
    user_file: Path | None,
    pairs: Sequence[str] = (),
    *,
    forgive: Callable[[str], None] | None = None,
) -> Settings:
    """The settings in force for a workspace. Raises UsageError with every fault of a source at once.

    With `forgive`, a faulty file of the workspace is passed over and the fault told to it: an agent may have
    broken it, and having it back must not depend on it.
    """
    merged: dict[str, dict[str, Any]] = {}
    if user_file is not None:
        _merge(merged, _read(user_file), str(user_file))
    for read in (_project_settings, _own_settings):
        try:
            read(workspace, merged)
        except UsageError as error:
            if forgive is None:
                raise
            forgive(error.message)
    for pair in pairs:
        _merge(merged, _pair(pair), "-c")
    try:
        return msgspec.convert(merged, Settings)
    except msgspec.ValidationError as error:
        raise UsageError(f"configuration: {error}") from error


def _project_settings(workspace: Path, merged: dict[str, dict[str, Any]]) -> None:
    project = workspace / "pyproject.toml"
    _merge(merged, _table(_read(project, shared=True), project), f"{project} [tool.putback]", users=False)


def _own_settings(workspace: Path, merged: dict[str, dict[str, Any]]) -> None:
    own = workspace / ".putback.toml"
    _merge(merged, _read(own), str(own), users=False)


def _read(path: Path, *, shared: bool = False) -> dict[str, Any]:
    """The document in a file, empty where there is none. `shared` files belong to others, too."""
    try:
        data = _content(path)
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except OSError as error:
        if shared:
            return {}
        raise UsageError(f"cannot read {str(path)!r}: {error.strerror}") from error
    if shared and b"putback" not in data:
        # Whatever is wrong with it is not ours to refuse: an agent may be halfway through writing it.
        return {}
    import tomllib  # most workspaces have nothing to parse

    try:
        return tomllib.loads(data.decode())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{path}: {error}") from error


def _content(path: Path) -> bytes:
    """The content of a regular file of sane size; never waits for a pipe. Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with open(descriptor, "rb") as file:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode) or found.st_size > MOST_BYTES:
            raise OSError(errno.EINVAL, "not a regular file of sane size")
        return file.read(MOST_BYTES)


def _table(document: dict[str, Any], path: Path) -> dict[str, Any]:
    tool = document.get("tool", {})
    table = tool.get("putback", {}) if isinstance(tool, dict) else {}
    if not isinstance(table, dict):
        raise UsageError(f"{path}: [tool.putback] is not a table")
    return table


def _pair(pair: str) -> dict[str, Any]:
    import tomllib

    key, equals, value = pair.partition("=")
    section, _, name = key.partition(".")
    if not pair.isascii() and any(0xD800 <= ord(c) < 0xE000 for c in pair):
        raise UsageError(f"not UTF-8: {pair.encode(errors='backslashreplace').decode()!r}")
    if not equals or not name:
        raise UsageError(f"not KEY=VALUE: {pair!r}", hint="example: -c capture.max_file_bytes=1000000")
    try:
        parsed = tomllib.loads(f"value = {value}")["value"]
    except (tomllib.TOMLDecodeError, UnicodeError):
        parsed = value
    return {section: {name: parsed}}


def _merge(merged: dict[str, dict[str, Any]], source: dict[str, Any], origin: str, *, users: bool = True) -> None:
    """Lay a source over those before it. Where it is not the `users` own, some keys are not for it to set."""
    faults = list(_faults(source))
    if not users and not faults:
        named = (f"{section}.{name}" for section, table in source.items() for name in table)
        faults = [f"{key} can be set in your own configuration only" for key in named if key in _USERS]
    if faults:
        raise UsageError(f"{origin}: " + "; ".join(faults))
    for section, table in source.items():
        merged.setdefault(section, {}).update(table)


def _faults(source: dict[str, Any]) -> Iterable[str]:
    for section, table in source.items():
        if section not in _SECTIONS:
            yield _unknown(section, list(_SECTIONS))
        elif not isinstance(table, dict):
            yield f"{section!r} is not a table"
        else:
            for name, value in table.items():
                yield from _value_faults(section, name, value)


def _value_faults(section: str, name: str, value: object) -> Iterable[str]:
    key = f"{section}.{name}"
    if key not in keys():
        yield _unknown(key, keys())
        return
    try:
        msgspec.convert({name: value}, _SECTIONS[section])
    except msgspec.ValidationError as error:
        said = str(error).partition(" - ")[0].lower()
        yield f"{key}: {_TYPE.sub(lambda found: _IN_WORDS.get(found[1], found[0]), said)}"
        return
    if key == "retention.keep_within":
        try:
            duration_seconds(str(value))
        except ValueError as error:
            yield f"{key}: {error}"
    if isinstance(value, (int, float)) and not isinstance(value, bool) and not 0 <= value < float("inf"):
        yield f"{key}: {value} is not a size"
    for item in value if isinstance(value, list) else ():
        if any(c in item for c in "\0\r\n"):
            yield f"{key}: {item!r} is not a pattern"


def duration_seconds(text: str) -> float:
    """The length of a time like `14d`, `36h`, `2w` or `1w3d`, in seconds. Raises ValueError for any other text."""
    if not _DURATION.fullmatch(text):
        raise ValueError(f"{text!r} is not a length of time; examples: 14d, 36h, 2w, 1w3d")
    seconds = sum(int(number) * _SECONDS[unit] for number, unit in _PART.findall(text))
    if seconds == 0:
        raise ValueError(f"{text!r} is no time at all; leave it out where it is to keep nothing")
    return float(seconds)


def _unknown(key: str, valid: list[str]) -> str:
    import difflib

    near = difflib.get_close_matches(key, valid, n=1, cutoff=0.0)
    return f"unknown key {key!r}; the nearest valid name is {near[0]!r}"


def is_unsuitable(root: Path, home: Path) -> str | None:
    """Why `root` is plainly no project, or None."""
    if root == Path(root.anchor):
        return "the root of the file system"
    if root == home:
        return "the home directory"
    if root in home.parents:
        return "a directory above the home directory"
    temporary = {Path(os.path.realpath(name)) for name in ("/tmp", "/var/tmp", "/private/tmp")}
    if root in temporary:
        return "the directory for temporary files"
    if str(root) in _SYSTEM:
        return "a system directory"
    return None


_SYSTEM = frozenset(
    {
        *("/bin", "/boot", "/dev", "/etc", "/home", "/lib", "/lib64", "/media", "/mnt", "/opt", "/proc", "/root"),
        *("/run", "/sbin", "/srv", "/sys", "/usr", "/usr/bin", "/usr/lib", "/usr/local", "/usr/share", "/var"),
        *("/var/lib", "/var/log", "/Applications", "/Library", "/System", "/Users", "/Volumes"),
    }
)
