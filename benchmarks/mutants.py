"""Mutants of the gates: each comparison and constant of a rule of decision weakened once.

    python -m benchmarks.mutants                 # all, a table; status 1 where one survives
    python -m benchmarks.mutants --only records  # those of files whose path has this

Of every comparison in `TARGETS` two mutants are made, always true and always false; of every
`and` and `or` the other one; of every bound (an upper-case constant of a module) one of half and
one of one and a half times its value. `NAMED` are further changes of meaning, as text: one whose
text is no longer there is an error. A mutant is killed where a test nearest to its file fails; what
changes no behavior is named in `EQUIVALENT`, with the reason.

Each mutant runs in a fork that imports the packages anew, so that it costs a second or two.
"""

from __future__ import annotations

import argparse
import ast
import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import os
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

ROOT = Path(__file__).parents[1]
RULE = ("tests/decide", "mechint/decide")
GATES = ("tests/explanation/test_gates.py",)
TARGETS: dict[str, tuple[str, ...]] = {
    "mechint/decide/_rule.py": RULE,
    "mechint/decide/evidence.py": RULE,
    "mechint/decide/chance.py": RULE,
    "mechint/decide/null.py": (*RULE, "tests/test_reporting.py", "tests/test_results.py"),
    "mechint/explanation/records.py": GATES,
    "mechint/explanation/standing.py": GATES,
    "mechint/explanation/checks/parts.py": GATES,
    "mechint/explanation/checks/blocks.py": GATES,
    "mechint/explanation/checks/logits.py": GATES,
    "mechint/explanation/checks/attention.py": GATES,
}
"""File → the tests nearest to it, of those that `make test` runs."""
LIMIT = 300.0
"""Seconds that one mutant may take; longer counts as killed."""


@dataclass(frozen=True)
class Mutant:
    """A file with one change: its new text, and the change in words."""

    file: str
    words: str
    text: str


class _Changes(ast.NodeTransformer):
    """Makes the change of one number, and counts all that can be made."""

    def __init__(self, wanted: int | None = None) -> None:
        self.wanted, self.seen = wanted, 0
        self.words, self.where = "", ["module"]

    def _take(self, node: ast.AST, words: str) -> bool:
        self.seen += 1
        if self.wanted != self.seen - 1:
            return False
        self.words = f"{self.where[-1]}: {ast.unparse(node)} → {words}"
        return True

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        self.where.append(node.name)
        node.body = [self.visit(one) for one in node.body]
        self.where.pop()
        return node

    def visit_Compare(self, node: ast.Compare) -> ast.AST:
        for value in (True, False):
            if self._take(node, str(value)):
                return ast.copy_location(ast.Constant(value), node)
        return self.generic_visit(node)

    def visit_BoolOp(self, node: ast.BoolOp) -> ast.AST:
        other = ast.And() if isinstance(node.op, ast.Or) else ast.Or()
        if self._take(node, "and" if isinstance(other, ast.And) else "or"):
            return ast.copy_location(ast.BoolOp(other, node.values), node)
        return self.generic_visit(node)

    def visit_Assert(self, node: ast.Assert) -> ast.AST:
        return node

    def visit_If(self, node: ast.If) -> ast.AST:
        if "TYPE_CHECKING" in ast.unparse(node.test):
            return node
        return self.generic_visit(node)

    def visit_Assign(self, node: ast.Assign) -> ast.AST:
        target = node.targets[0]
        name = ast.unparse(target)
        if (
            self.where[-1] != "module"
            or not name.replace(", ", "").replace("_", "").strip("()").isupper()
        ):
            return self.generic_visit(node)
        for one in ast.walk(node.value):
            if isinstance(one, ast.Constant) and isinstance(one.value, int | float):
                if isinstance(one.value, bool):
                    continue
                for factor in (0.5, 1.5):
                    new = type(one.value)(one.value * factor)
                    if self._take(node, f"{one.value} × {factor}"):
                        one.value = new
                        return node
        return node


def mutants_of(file: str) -> Iterator[Mutant]:
    """Every mutant of a file, and those of `NAMED`.

    Raises:
        ValueError: the text of a named one is not there, or is there more than once.
    """
    source = (ROOT / file).read_text(encoding="utf-8")
    count = _Changes()
    count.visit(ast.parse(source))
    for index in range(count.seen):
        change = _Changes(index)
        tree = ast.fix_missing_locations(change.visit(ast.parse(source)))
        yield Mutant(file, change.words, ast.unparse(tree))
    for where, words, old, new in NAMED:
        if where == file:
            if source.count(old) != 1:
                raise ValueError(f"{file}: {words}: {old!r} is there {source.count(old)} times")
            yield Mutant(file, words, source.replace(old, new))


NAMED: tuple[tuple[str, str, str, str], ...] = (
    # nulls
    (
        "mechint/decide/null.py",
        "what is not a number is a surprise",
        "np.isnan(values) | np.isnan(observed) | (values >= observed)",
        "values >= observed",
    ),
    (
        "mechint/decide/null.py",
        "step-down p-values are not made monotone",
        "np.maximum.accumulate((1 + reached) / (1 + len(samples)))",
        "(1 + reached) / (1 + len(samples))",
    ),
    (
        "mechint/decide/null.py",
        "rounding is an effect",
        "norm = np.maximum(norm, ROUNDING * norm.max(initial=0.0))",
        "norm = norm * 1.0",
    ),
    (
        "mechint/decide/null.py",
        "collisions turned round",
        "1 / self.arrangements) < COLLISION_LEVEL",
        "1 / self.arrangements) > COLLISION_LEVEL",
    ),
    (
        "mechint/decide/null.py",
        "spread of a population",
        "values.std(ddof=1)",
        "values.std(ddof=0)",
    ),
    (
        "mechint/decide/null.py",
        "a whole success is lost to rounding",
        "(np.bincount(own, right) / rows).sum() + 1e-9",
        "(np.bincount(own, right) / rows).sum()",
    ),
    (
        "mechint/decide/null.py",
        "a null decides up to twice its level",
        "if null.floor > alpha * (1 + 1e-9):",
        "if null.floor > 2 * alpha:",
    ),
    # records
    (
        "mechint/explanation/records.py",
        "a share has no null",
        "decision=all_of([own, *against]),",
        "decision=own,",
    ),
    (
        "mechint/explanation/records.py",
        "a match need not beat the right answer",
        "if beats is not None and not beats:",
        "if False:",
    ),
    (
        "mechint/explanation/records.py",
        "failed necessity is not wrong",
        'contradicts=bound.side == "below" or less or half,',
        "contradicts=less or half,",
    ),
    (
        "mechint/explanation/records.py",
        "two spare blocks show a need",
        "level=SPARE_LEVEL)",
        "level=max(SPARE_LEVEL, 1 / (1 + rank.samples)))",
    ),
    # exchanges
    (
        "mechint/explanation/checks/parts.py",
        "refills into inputs of the same answer",
        "differ = (bench.targets(base) != labels).any(1).cpu()",
        "differ = torch.ones(len(base), dtype=torch.bool)",
    ),
    (
        "mechint/explanation/checks/parts.py",
        "interchanges count where nothing changes",
        "changed = (labels != bench.labels(own)).any(1).cpu()\n    return Exchange(",
        "changed = torch.ones(len(base), dtype=torch.bool)\n    return Exchange(",
    ),
    (
        "mechint/explanation/checks/parts.py",
        "an input is resampled from itself",
        "partner[order[start:end]] = order[start:end].roll(1)",
        "partner[order[start:end]] = order[start:end]",
    ),
    (
        "mechint/explanation/checks/parts.py",
        "necessity counts where nothing changes",
        "found, skill = counted_share(right[changed])",
        "found, skill = counted_share(right)",
    ),
    (
        "mechint/explanation/checks/parts.py",
        "a resample may pass a part",
        "refutes=True",
        "refutes=False",
    ),
    (
        "mechint/explanation/checks/parts.py",
        "refills are asked of what does not settle the answer",
        "if not parts or not settles(bench, variables_of(level)):",
        "if not parts:",
    ),
    (
        "mechint/explanation/checks/parts.py",
        "a refill tests every part of its depth",
        "tuple(needed), found",
        "tuple(map(str, parts)), found",
    ),
    # logits, attention
    (
        "mechint/explanation/checks/logits.py",
        "the right answer has no constant",
        "scale = float(((x - center) * y).sum() / (x - center).square().sum().clamp_min(1e-12))",
        "scale = 0.0",
    ),
    (
        "mechint/explanation/checks/attention.py",
        "a route has no null",
        '"route", str(claim), (str(claim),), found, skill, null=null)',
        '"route", str(claim), (str(claim),), found, skill)',
    ),
    (
        "mechint/explanation/checks/attention.py",
        "a moved tag has no null",
        "null=null,\n        null_bound=MOVED_NULL",
        "null_bound=MOVED_NULL",
    ),
    # standings, chance
    (
        "mechint/explanation/standing.py",
        "what is untested stands",
        'return Standing(claim, "untested", next(',
        'return Standing(claim, "stands", next(',
    ),
    (
        "mechint/explanation/standing.py",
        "variables without a site are left out",
        "if lacking:",
        "if False:",
    ),
    (
        "mechint/decide/chance.py",
        "chance of the largest single output",
        "if asked.all():",
        "if asked.all() and answers.shape[1] < 2:",
    ),
)
"""(file, the change in words, text, its replacement)."""

EQUIVALENT: dict[str, str] = {}
"""The change of a mutant that no test can kill → the reason."""


# --- running one ----------------------------------------------------------------------------------
class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Serves the text of one mutated module."""

    def __init__(self, mutant: Mutant) -> None:
        self.mutant = mutant
        self.name = mutant.file.removesuffix(".py").replace("/", ".")

    def find_spec(self, fullname: str, path: Any, target: Any = None) -> Any:
        if fullname != self.name:
            return None
        return importlib.util.spec_from_file_location(
            fullname, ROOT / self.mutant.file, loader=self
        )

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> None:
        return None

    def exec_module(self, module: ModuleType) -> None:
        exec(compile(self.mutant.text, str(ROOT / self.mutant.file), "exec"), vars(module))  # noqa: S102


def survives(mutant: Mutant | None, tests: Sequence[str]) -> bool:
    """Return whether the tests pass with a mutant, or as things are, in a fork."""
    child = os.fork()
    if child:
        start = time.monotonic()
        while True:
            done, status = os.waitpid(child, os.WNOHANG)
            if done:
                return os.waitstatus_to_exitcode(status) == 0
            if time.monotonic() - start > LIMIT:
                os.kill(child, 9)
                os.waitpid(child, 0)
                return False
            time.sleep(0.05)
    status = 1
    try:
        import pytest

        quiet = os.open(os.devnull, os.O_WRONLY)
        os.dup2(quiet, 1)
        os.dup2(quiet, 2)
        given = ["-x", "-q", "-p", "no:cacheprovider", "-p", "no:randomly", *tests]
        given += ["-W", "ignore::pytest.PytestAssertRewriteWarning"]
        plugin = _Plugin(mutant)
        status = int(pytest.main(given, plugins=[plugin]))
    finally:
        os._exit(status)


class _Plugin:
    """Puts the finder before the import hooks of the tests."""

    def __init__(self, mutant: Mutant | None) -> None:
        self.mutant = mutant

    def pytest_sessionstart(self) -> None:
        if self.mutant is not None:
            sys.meta_path.insert(0, _Finder(self.mutant))


def _preload() -> None:
    """Import what the packages need, and forget the packages themselves."""
    for name in ("mechint.explanation", "mechint.cli.explain", "scipy.stats", "hypothesis"):
        importlib.import_module(name)
    own = ("mechint", "tasks", "probes", "studies", "benchmarks.")
    for name in [one for one in sys.modules if one.partition(".")[0] in own]:
        del sys.modules[name]


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; 1 where a mutant survives that is not equivalent."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.mutants")
    parser.add_argument("--only", default="", help="files whose path has this")
    parser.add_argument("--list", action="store_true", help="the mutants alone")
    chosen = parser.parse_args(arguments)
    os.chdir(ROOT)
    made = [one for file in TARGETS if chosen.only in file for one in mutants_of(file)]
    if chosen.list:
        print("\n".join(f"{one.file}  {one.words}" for one in made))
        return 0
    _preload()
    alive = list[Mutant]()
    print("| file | mutants | killed | equivalent | alive |\n| --- | --- | --- | --- | --- |")
    for file, tests in TARGETS.items():
        own = [one for one in made if one.file == file]
        if not own:
            continue
        if not survives(None, tests):
            raise SystemExit(f"{file}: its tests fail as things are: {' '.join(tests)}")
        same = [one for one in own if one.words in EQUIVALENT]
        left = [one for one in own if one.words not in EQUIVALENT and survives(one, tests)]
        killed = len(own) - len(same) - len(left)
        print(f"| {file} | {len(own)} | {killed} | {len(same)} | {len(left)} |", flush=True)
        alive += left
    for one in alive:
        print(f"alive: {one.file}: {one.words}")
    return 1 if alive else 0


if __name__ == "__main__":
    raise SystemExit(main())
