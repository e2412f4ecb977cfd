"""A shell command line cut into simple commands: words without their quotes, and what they are redirected to.

Pure, and never executes, expands or looks at anything. It knows what decides where a command begins and a word
ends: quotes, separators, substitutions, redirections, here-documents, comments, `[[ … ]]`, arithmetic. Variables
and patterns stay as they are written. What no shell would accept is cut somehow; nothing is raised, and time is
linear in the length, of which LONGEST characters count.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

LONGEST = 65_536
DEEPEST = 40

# A part of a word that only a shell could know.
UNKNOWN = "$()"

# Words after which another command begins.
_LEADING = frozenset({"if", "then", "elif", "else", "while", "until", "do", "!", "{", "time", "coproc"})
_SPACE = " \t\r"
_BREAKS = "\n;&|()"


@dataclass
class Simple:
    """One simple command. `over` are the files that its output is written over; `fed`: it reads a pipeline."""

    words: list[str] = field(default_factory=list)
    over: list[str] = field(default_factory=list)
    fed: bool = False


def simple_commands(line: str) -> list[Simple]:
    """Every simple command in the line, also those inside of substitutions, innermost first."""
    lexer = _Lexer(line[:LONGEST])
    lexer.commands("", 0)
    return [command for command in lexer.found if command.words or command.over]


class _Lexer:
    """One pass over the text; `at` only ever grows."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.found: list[Simple] = []
        self.pending: list[tuple[str, bool]] = []

    def commands(self, end: str, depth: int) -> None:
        """Read commands up to and with the character `end`; up to the end of the text where it is empty."""
        command = Simple()
        while self.at < len(self.text):
            char = self.text[self.at]
            if end and char == end:
                self.at += 1
                break
            if char in _SPACE:
                self.at += 1
            elif self.text.startswith("\\\n", self.at):
                self.at += 2
            elif char == "#":
                self.at = self._find("\n", self.at)
            elif self.text.startswith("((", self.at) and command.words in ([], ["for"]):
                self._arithmetic()
            elif char in _BREAKS and not self._both_streams():
                command = self._break(command, depth)
            elif not self._redirection(command, end, depth):
                self._add(command, self._word(end, depth))
        self.found.append(command)

    def _break(self, command: Simple, depth: int) -> Simple:
        char = self.text[self.at]
        self.at += 1
        self.found.append(command)
        if char == "\n":
            self._skip_documents()
        if char == "(" and depth < DEEPEST:
            self.commands(")", depth + 1)
        follows = self.text[self.at : self.at + 1]
        if char == "|" and follows == "&":
            self.at += 1
        goes_on = char == "\n" and command.fed and not command.words
        return Simple(fed=goes_on or (char == "|" and follows != "|"))

    def _add(self, command: Simple, word: str) -> None:
        if command.words or word not in _LEADING:
            command.words.append(word)
        if command.words == ["[["]:
            # In there `<` and `>` compare.
            self.at = self._find("]]", self.at)

    def _both_streams(self) -> bool:
        return self.text.startswith("&>", self.at)

    def _redirection(self, command: Simple, end: str, depth: int) -> bool:
        """Read a redirection, its number included, if one begins here."""
        start = self.at
        while start < len(self.text) and start < self.at + 4 and self.text[start] in "0123456789":
            start += 1
        if self._both_streams():
            start += 1
        sign = self.text[start : start + 1]
        if not sign or sign not in "<>":
            return False
        self.at = start + 1
        follows = self.text[self.at : self.at + 1]
        if follows == "(":
            self.at += 1
            self._substitution(")", depth)
            command.words.append(UNKNOWN)
        elif sign == "<":
            self._input(end, depth)
        else:
            appends = follows == ">"
            self.at += follows in (">", "|", "&") and bool(follows)
            target = self._operand(end, depth)
            copies = follows == "&" and (target == "-" or target.rstrip("-").isdigit())
            if target and not appends and not copies:
                command.over.append(target)
        return True

    def _input(self, end: str, depth: int) -> None:
        if self.text.startswith("<<", self.at):
            self.at += 2
            self._operand(end, depth)
        elif self.text.startswith("<", self.at):
            indented = self.text.startswith("-", self.at + 1)
            self.at += 2 if indented else 1
            self.pending.append((self._operand(end, depth), indented))
        else:
            self.at += self.text.startswith((">", "&"), self.at)
            self._operand(end, depth)

    def _operand(self, end: str, depth: int) -> str:
        while self.at < len(self.text) and self.text[self.at] in _SPACE:
            self.at += 1
        return self._word(end, depth)

    def _skip_documents(self) -> None:
        """Go past the here-documents that were announced on the line that ends here."""
        for delimiter, indented in self.pending:
            while self.at < len(self.text):
                end = self._find("\n", self.at)
                line = self.text[self.at : end]
                self.at = min(end + 1, len(self.text))
                if (line.lstrip("\t") if indented else line).rstrip("\r") == delimiter:
                    break
        self.pending.clear()

    def _word(self, end: str, depth: int) -> str:
        parts: list[str] = []
        while self.at < len(self.text):
            char = self.text[self.at]
            if char in _SPACE or char in _BREAKS or char in "<>" or char == end:
                break
            parts.append(self._part(char, depth))
        return "".join(parts)

    def _part(self, char: str, depth: int) -> str:
        """One character of a word, or what is quoted or substituted from here."""
        self.at += 1
        if char == "\\":
            self.at += 1
            escaped = self.text[self.at - 1 : self.at]
            return "" if escaped == "\n" else escaped
        if char == "'":
            start = self.at
            self.at = self._find("'", start)
            self.at += 1
            return self.text[start : self.at - 1]
        if char == '"':
            return "".join(self._quoted(depth))
        if char == "`":
            return self._substitution("`", depth)
        return self._dollar(depth) if char == "$" else char

    def _quoted(self, depth: int) -> Iterator[str]:
        while self.at < len(self.text):
            char = self.text[self.at]
            self.at += 1
            if char == '"':
                return
            if char == "\\":
                self.at += 1
                escaped = self.text[self.at - 1 : self.at]
                yield escaped if escaped in '"\\$`' else "" if escaped == "\n" else "\\" + escaped
            elif char == "`":
                yield self._substitution("`", depth)
            else:
                yield self._dollar(depth) if char == "$" else char

    def _dollar(self, depth: int) -> str:
        if self.text.startswith("((", self.at):
            return self._arithmetic()
        if self.text.startswith("(", self.at):
            self.at += 1
            return self._substitution(")", depth)
        if self.text.startswith("{", self.at):
            start = self.at
            self.at = min(self._find("}", start) + 1, len(self.text))
            return "$" + self.text[start : self.at]
        return "" if self.text.startswith("'", self.at) else "$"

    def _substitution(self, end: str, depth: int) -> str:
        if depth < DEEPEST:
            # The text that follows belongs to the command outside: so do the documents it announced.
            pending, self.pending = self.pending, []
            self.commands(end, depth + 1)
            self.pending = pending
        return UNKNOWN

    def _arithmetic(self) -> str:
        open_brackets = 2
        self.at += 2
        while self.at < len(self.text) and open_brackets:
            open_brackets += (self.text[self.at] == "(") - (self.text[self.at] == ")")
            self.at += 1
        return UNKNOWN

    def _find(self, what: str, start: int) -> int:
        found = self.text.find(what, start)
        return len(self.text) if found < 0 else found
