"""Every guard of `putback.turns`, found in its syntax and made so that it can be taken out while the tests run.

A guard is what stands between a request and an effect. Found are, in each module:

    if CONDITION: raise …           the condition, and each part of it that alone suffices; also where it returns
                                    words or a `TurnState` in place of raising, or notes a fault
    return "" if … else "words"     the words
    {**faults, **faults}, |= faults each of them, in a function that is named for its faults or looks for them
    check_…(…), attest(…)           a call for nothing but its refusal; each of its arguments that are faults
    raise …                         at the end of the body of a loop
    ("document", "field", TRUTH)    a row of a table of what has to hold
    (Fault.X, lambda item: …)       a row of a table of what is refused
    {"part": (one, other, …)}       what has to be equal, in a function named `check`
    yield "side", one, other        what has to be equal, pair by pair

Each becomes a call of `Switch` with the guard's number. As long as that guard is in, the call gives the value back
and notes where it refused; taken out, it gives what lets everything pass.
"""

from __future__ import annotations

import ast
import importlib.abc
import importlib.machinery
import importlib.util
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

PACKAGE = "putback.turns"
_CHECKS = ("check", "_check", "attest")
_NAME = "_guards"


@dataclass(frozen=True)
class Guard:
    """One guard: where it is, in which function, and its text."""

    number: int
    module: str
    line: int
    function: str
    text: str

    @property
    def key(self) -> str:
        """What stays the same when lines move."""
        return f"{self.module}.{self.function}: {self.text}"

    def __str__(self) -> str:
        return f"src/putback/turns/{self.module}.py:{self.line}: {self.function}: {self.text}"


@dataclass
class Switch:
    """Which guard is out, and which have refused something."""

    out: int = -1
    refused: set[int] = field(default_factory=set)

    def condition(self, number: int, value: Any) -> Any:
        if value:
            self.refused.add(number)
        return value if number != self.out else False

    def reason(self, number: int, value: Any) -> Any:
        if value:
            self.refused.add(number)
        return value if number != self.out else ""

    def truth(self, number: int, value: Any) -> Any:
        if not value:
            self.refused.add(number)
        return value if number != self.out else True

    def faults(self, number: int, value: Any) -> Any:
        if value:
            self.refused.add(number)
        return value if number != self.out else {}

    def equal(self, number: int, values: tuple[Any, ...]) -> Any:
        if any(value != values[0] for value in values):
            self.refused.add(number)
        return values if number != self.out else values[:1] * len(values)

    def pair(self, number: int, values: tuple[Any, Any, Any]) -> Any:
        side, one, other = values
        if one != other:
            self.refused.add(number)
        return values if number != self.out else (side, one, one)

    def skipped(self, number: int) -> bool:
        return number == self.out

    def note(self, number: int) -> None:
        self.refused.add(number)


SWITCH = Switch()
GUARDS: list[Guard] = []


class _Instrument(ast.NodeTransformer):
    def __init__(self, module: str) -> None:
        self._module = module
        self._functions: list[str] = []

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        return self._inside(node)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        return self._inside(node)

    def _inside(self, node: Any) -> ast.AST:
        self._functions.append(node.name)
        self.generic_visit(node)
        self._functions.pop()
        return node

    def visit_If(self, node: ast.If) -> ast.AST:
        self.generic_visit(node)
        if _refuses(node.body[-1]):
            if isinstance(node.test, ast.BoolOp) and isinstance(node.test.op, ast.Or):
                node.test.values = [self._call("condition", part, part) for part in node.test.values]
            node.test = self._call("condition", node.test, node.test)
        return node

    def visit_Return(self, node: ast.Return) -> ast.AST:
        self.generic_visit(node)
        value = node.value
        if isinstance(value, ast.IfExp) and _words(value.body) != _words(value.orelse):
            node.value = self._call("reason", value, value)
        return node

    def visit_AugAssign(self, node: ast.AugAssign) -> ast.AST:
        self.generic_visit(node)
        if isinstance(node.target, ast.Name) and node.target.id == "faults":
            node.value = self._call("faults", node.value, node.value)
        return node

    def visit_For(self, node: ast.For) -> ast.AST:
        self.generic_visit(node)
        last = node.body[-1]
        if isinstance(last, ast.Raise):
            test = self._call("condition", last, ast.Constant(True))
            node.body[-1] = ast.If(test=test, body=[last], orelse=[])
        return node

    def visit_Expr(self, node: ast.Expr) -> Any:
        self.generic_visit(node)
        value = node.value
        if isinstance(value, ast.Yield) and _row(value.value, 3, 1):
            assert value.value is not None
            value.value = self._call("pair", value.value, value.value)
        if not isinstance(value, ast.Call) or not _name(value.func).startswith(_CHECKS):
            return node
        number = self._add(value)
        if any(keyword.arg == "hint" for keyword in value.keywords):
            value.args = [self._call("faults", arg, arg) for arg in value.args]
        note = ast.Expr(self._method("note", ast.Constant(number)))
        handler = ast.ExceptHandler(
            type=ast.Name("BaseException", ast.Load()), name=None, body=[note, ast.Raise(exc=None, cause=None)]
        )
        tried = ast.Try(body=[node], handlers=[handler], orelse=[], finalbody=[])
        skipped = self._method("skipped", ast.Constant(number))
        return ast.If(test=ast.UnaryOp(ast.Not(), skipped), body=[tried], orelse=[])

    def visit_Tuple(self, node: ast.Tuple) -> ast.AST:
        self.generic_visit(node)
        if _row(node, 3, 2) and not isinstance(node.elts[2], ast.Constant):
            node.elts[2] = self._call("truth", node, node.elts[2])
        elif (
            len(node.elts) == 2
            and isinstance(node.elts[1], ast.Lambda)
            and isinstance(node.elts[0], ast.Attribute)
        ):
            node.elts[1].body = self._call("condition", node, node.elts[1].body)
        return node

    def visit_Dict(self, node: ast.Dict) -> ast.AST:
        self.generic_visit(node)
        if not self._functions:
            return node
        if "faults" in self._functions[-1]:
            pairs = zip(node.keys, node.values, strict=True)
            node.values = [self._call("faults", value, value) if key is None else value for key, value in pairs]
        if self._functions[-1] == "check":
            node.values = [
                self._call("equal", value, value) if isinstance(value, ast.Tuple) else value
                for value in node.values
            ]
        return node

    def _call(self, method: str, guard: ast.AST, value: ast.expr) -> ast.Call:
        return self._method(method, ast.Constant(self._add(guard)), value)

    def _method(self, method: str, *arguments: ast.expr) -> ast.Call:
        function = ast.Attribute(ast.Name(_NAME, ast.Load()), method, ast.Load())
        return ast.Call(function, list(arguments), [])

    def _add(self, node: ast.AST) -> int:
        text = " ".join(ast.unparse(_bare(node)).split())
        guard = Guard(len(GUARDS), self._module, node.lineno, ".".join(self._functions), text[:100])  # type: ignore[attr-defined]
        GUARDS.append(guard)
        return guard.number


class _Bare(ast.NodeTransformer):
    """Undo the instrumentation, for the text of what it is in."""

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        function = node.func
        ours = isinstance(function, ast.Attribute) and _name(function.value) == _NAME
        return node.args[-1] if ours else node


def _bare(node: ast.AST) -> ast.AST:
    copy = ast.parse(ast.unparse(ast.fix_missing_locations(node)))
    return _Bare().visit(copy)


def _name(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def _refuses(last: ast.stmt) -> bool:
    """Whether a branch that ends so refuses, or says why."""
    if isinstance(last, ast.Return):
        state = isinstance(last.value, ast.Attribute) and _name(last.value.value) == "TurnState"
        return state or _words(last.value)
    if isinstance(last, ast.Assign) and isinstance(last.targets[0], ast.Subscript):
        return _name(last.targets[0].value) == "faults"
    return isinstance(last, ast.Raise)


def _words(value: ast.expr | None) -> bool:
    return isinstance(value, ast.JoinedStr) or (
        isinstance(value, ast.Constant) and isinstance(value.value, str) and bool(value.value)
    )


def _row(value: ast.expr | None, length: int, names: int) -> bool:
    """Whether this is a tuple of that length of which so many, from the first on, are names or words."""
    if not isinstance(value, ast.Tuple) or len(value.elts) != length:
        return False
    head = value.elts[:names]
    return isinstance(head[-1], ast.Constant) and all(
        isinstance(item, ast.Name) or (isinstance(item, ast.Constant) and isinstance(item.value, str))
        for item in head
    )


class Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Loads the modules of the package with their guards instrumented."""

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if not name.startswith(PACKAGE + ".") or path is None:
            return None
        file = Path(path[0]) / f"{name.rpartition('.')[2]}.py"
        return importlib.util.spec_from_file_location(name, file, loader=self) if file.exists() else None

    def exec_module(self, module: ModuleType) -> None:
        assert module.__file__ is not None
        source = Path(module.__file__).read_text()
        tree = _Instrument(module.__name__.rpartition(".")[2]).visit(ast.parse(source))
        setattr(module, _NAME, SWITCH)
        exec(compile(ast.fix_missing_locations(tree), module.__file__, "exec"), vars(module))


def install() -> None:
    """From now on modules of the package are loaded instrumented. Raises RuntimeError where one is loaded."""
    loaded = [name for name in sys.modules if name.startswith(PACKAGE + ".")]
    if loaded:
        raise RuntimeError(f"loaded already: {loaded}")
    sys.meta_path.insert(0, Finder())
