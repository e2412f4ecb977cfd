"""Which paths the user's ignore rules leave out: git decides, with the same sources as in the user's own git.

The sources outside the tree (the user's global file, the repository's `info/exclude`) and the patterns that
putback's configuration excludes are put into one file for git, in that order, so that each keeps its precedence;
the `.gitignore` files in the tree are read by git itself. A `!pattern` in a `.gitignore` therefore wins over an
`exclude` of the configuration.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from pathlib import Path

import msgspec

from putback.errors import StorageError
from putback.fs.durable import write_cache
from putback.git.command import Git
from putback.git.user_repo import UserRepository, excludes_file, split_paths
from putback.paths import RelPath, fault

_SOME = frozenset({0, 1})


class Verdict(msgspec.Struct):
    """Of the paths that were asked about: the ignored ones, and those that the configuration excludes."""

    ignored: set[RelPath] = set()
    excluded: set[RelPath] = set()


class IgnoreRules(msgspec.Struct, frozen=True):
    """The rules in force for one capture. `git` is bound to the private repository and the work tree."""

    git: Git
    file: Path
    first_excluded_line: int
    include: tuple[str, ...]
    digest: bytes

    def judge(self, asked: Sequence[RelPath]) -> Verdict:
        """Which of the paths are ignored, by a directory above them too. Raises StorageError or IntegrityError."""
        if not asked:
            return Verdict()
        # `./` keeps git from reading a leading colon as pathspec magic; it comes back with the answer.
        given = b"".join(b"./" + path + b"\0" for path in asked)
        answer = self.git.without_literal_pathspecs().run(
            "check-ignore", "--no-index", "-z", "-v", "--stdin", given=given, accept=_SOME
        )
        verdict = Verdict()
        fields = answer.out.split(b"\0")
        ours = os.fsencode(self.file)
        for at in range(0, len(fields) - 1, 4):
            source, line, pattern, path = fields[at : at + 4]
            if pattern.startswith(b"!"):
                continue
            excluded = source == ours and int(line) >= self.first_excluded_line
            (verdict.excluded if excluded else verdict.ignored).add(RelPath(path.removeprefix(b"./")))
        return verdict

    def ignored_among(self, files: Sequence[RelPath]) -> set[RelPath]:
        """Which of some files are ignored, themselves or by a directory above them."""
        return self.judge([path for path in files if fault(path) is None]).ignored

    def included(self) -> set[RelPath]:
        """The paths that the configuration includes although rules may ignore them."""
        if not self.include:
            return set()
        patterns = [f"--exclude={pattern}" for pattern in self.include]
        nothing_tracked = self.git.on(
            self.git.git_dir or b"", work_tree=self.git.work_tree, index=self.file.with_name("no-index")
        )
        found = split_paths(nothing_tracked.run("ls-files", "-o", "-i", "-z", *patterns).out)
        return {path for path in found if not path.endswith(b"/")}


def gather(
    git: Git, file: Path, repository: UserRepository | None, include: tuple[str, ...], exclude: tuple[str, ...]
) -> IgnoreRules:
    """Put the rules together in `file` for a capture. Raises StorageError where a source cannot be read."""
    sources = [excludes_file(git, repository)]
    if repository is not None:
        sources.append(Path(os.fsdecode(repository.common_dir)) / "info" / "exclude")
    users = b"".join(_content(source) + b"\n" for source in sources)
    ours = "".join(pattern + "\n" for pattern in exclude).encode()
    text = users + ours
    try:
        if not file.exists() or file.read_bytes() != text:
            write_cache(file, text)
    except OSError as error:
        raise StorageError(f"cannot write the store: {error.strerror}") from error
    digest = hashlib.sha256(text + b"\0" + "\n".join(include).encode()).digest()
    bound = git.configured(("core.excludesFile", str(file)))
    return IgnoreRules(bound, file, users.count(b"\n") + 1, include, digest)


def _content(source: Path) -> bytes:
    try:
        return source.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return b""
    except OSError as error:
        # Going on would treat everything as not ignored, and capture what the user keeps out.
        raise StorageError(
            f"cannot read the ignore rules in {str(source)!r}: {error.strerror}",
            hint="make the file readable, or remove it, then run the command again",
        ) from error
