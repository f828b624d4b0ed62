"""Mutants of the gates: each comparison and constant of a rule of decision weakened once.

    python -m benchmarks.mutants                 # all, a table; status 1 where one survives
    python -m benchmarks.mutants --only records  # those of files whose path has this
    python -m benchmarks.mutants --out benchmarks/results/mutants.json   # keeps the rows

Of every comparison in `TARGETS` two mutants are made, always true and always false; of every
`and` and `or` the other one; of every bound (an upper-case constant of a module) one of half and
one of one and a half times its value. `NAMED` are further changes of meaning, as text: one whose
text is no longer there is an error. A mutant is killed where a test nearest to its file fails; what
changes no behavior is named in `EQUIVALENT`, with the reason.

The tests of a file are collected once, and run in a fork for each mutant, which replaces the code
of the functions that are imported already. Of a function those that call it are run, the shortest
first: a mutant costs a fraction of a second.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import functools
import inspect
import json
import os
import random
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType, FunctionType
from typing import IO, Any

ROOT = Path(__file__).parents[1]
RULE = ("tests/decide", "mechint/decide")
GATES = ("tests/explanation/test_gates.py",)
FORGED = (*GATES, "tests/explanation/test_forgeries.py")
TARGETS: dict[str, tuple[str, ...]] = {
    "mechint/decide/_rule.py": RULE,
    "mechint/decide/evidence.py": RULE,
    "mechint/decide/null.py": (*RULE, "tests/test_reporting.py", "tests/test_results.py"),
    "mechint/explanation/records.py": (*GATES, "mechint/explanation/records.py"),
    "mechint/explanation/standing.py": GATES,
    "mechint/explanation/checks/parts.py": GATES,
    "mechint/explanation/checks/blocks.py": GATES,
    "mechint/explanation/checks/logits.py": GATES,
    "mechint/explanation/checks/attention.py": FORGED,
    "mechint/explanation/checks/finer.py": FORGED,
    "mechint/explanation/checks/composed.py": ("tests/explanation/test_composed.py",),
    "mechint/explanation/checks/words.py": (
        "tests/explanation/test_composed.py",
        "tests/explanation/test_induced_fooled.py",
    ),
    "mechint/explanation/_audit.py": (
        "tests/explanation/test_audit.py",
        "tests/explanation/test_induced_fooled.py",
    ),
}
"""File → the tests nearest to it, of those that `make test` runs."""
SPECTRA = ("tests/probes/test_spectra.py", "tests/probes/test_sentences.py")
ALIGNED = ("tests/probes/test_das.py",)
PARTS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "probes/spectra.py": ((), SPECTRA),
    "probes/_das/search.py": (
        ("verdict", "choose_cell", "decode", "share_within_values", "SPARE", "LEAST_DECODED"),
        ALIGNED,
    ),
    "probes/_das/controls.py": (("falls_short", "_at_most", "_commonest"), ALIGNED),
    "probes/_das/_swap.py": ((), ALIGNED),
}
"""File that measures and decides → its functions and bounds that decide, and the tests."""
EVERY = TARGETS | {file: tests for file, (_, tests) in PARTS.items()}
LIMIT = 100
"""Seconds of the processor that one mutant may take; longer counts as killed."""


@dataclass(frozen=True)
class Mutant:
    """A file with one change: its new text, the change in words, and the function that it is in;
    "" where it is in none, or in several.
    """

    file: str
    words: str
    text: str
    inside: str = ""


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
    deciding = PARTS[file][0] if file in PARTS else None
    for index in range(count.seen):
        change = _Changes(index)
        tree = ast.fix_missing_locations(change.visit(ast.parse(source)))
        where, _, words = change.words.partition(": ")
        inside = "" if where == "module" else where
        if deciding is None or (inside or words.partition(" ")[0]) in deciding:
            yield Mutant(file, change.words, ast.unparse(tree), inside)
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
        "all_of([own, *against]),",
        "own,",
    ),
    (
        "mechint/explanation/records.py",
        "a match need not beat the right answer",
        "if rival is not None:",
        "if False:",
    ),
    (
        "mechint/explanation/records.py",
        "failed completeness is not wrong",
        'contradicts=bound.side == "below" or less or half,',
        "contradicts=less or half,",
    ),
    (
        "mechint/explanation/records.py",
        "two spare blocks show a need",
        "level=SPARE_LEVEL)",
        "level=max(SPARE_LEVEL, 1 / (1 + null.samples)))",
    ),
    # exchanges
    (
        "mechint/explanation/checks/parts.py",
        "faithfulness takes inputs of the same answer",
        "differ = (bench.targets(base) != labels).any(1).cpu()",
        "differ = torch.ones(len(base), dtype=torch.bool)",
    ),
    (
        "mechint/explanation/checks/parts.py",
        "interchanges count where nothing changes",
        "changed = (labels != bench.labels(own)).any(1).cpu()",
        "changed = torch.ones(len(base), dtype=torch.bool)",
    ),
    (
        "mechint/explanation/checks/parts.py",
        "an input is scrubbed with itself",
        "kept = (partner != torch.arange(len(partner))).nonzero().flatten()",
        "kept = torch.arange(len(partner))",
    ),
    (
        "mechint/explanation/checks/parts.py",
        "completeness counts where nothing changes",
        "found, skill = counted_share(right[changed])",
        "found, skill = counted_share(right)",
    ),
    (
        "mechint/explanation/checks/parts.py",
        "causal scrubbing may pass a part",
        "refutes=True",
        "refutes=False",
    ),
    (
        "mechint/explanation/checks/parts.py",
        "faithfulness is asked of what does not settle the answer",
        "if not parts or not settles(bench, collect_variables(level)):",
        "if not parts:",
    ),
    (
        "mechint/explanation/checks/parts.py",
        "faithfulness tests every part of its depth",
        "of = find_tested(bench, exchange, parts, fits, needed)",
        "of = tuple(map(str, parts))",
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
        "found, skill, null=null, scope=joint)",
        "found, skill, scope=joint)",
    ),
    # spectra
    (
        "probes/spectra.py",
        "answers are not permuted with the classes",
        "largest = np.array([alone, alike])",
        "largest = np.array([alone])",
    ),
    (
        "probes/spectra.py",
        "noise has no level",
        "levels = np.maximum(rule.cosine, flat_level(values / lookup, rule.alpha) * lookup)",
        "levels = np.maximum(rule.cosine, 0 * lookup)",
    ),
    (
        "probes/spectra.py",
        "a later round raises the threshold",
        "threshold = min(threshold, upper_quantile(null, alpha))",
        "threshold = upper_quantile(null, alpha)",
    ),
    (
        "probes/spectra.py",
        "inputs answered right are those answered wrong",
        'return "inputs answered wrong", ~subject.correct()',
        'return "inputs answered wrong", subject.correct()',
    ),
    (
        "probes/spectra.py",
        "keys need not be key on unseen inputs",
        "keys = [key for key in found.keys if key in own.keys]",
        "keys = list(found.keys)",
    ),
    (
        "probes/spectra.py",
        "the level of noise is of the median",
        "np.quantile(np.abs(values), 0.25",
        "np.quantile(np.abs(values), 0.5",
    ),
    (
        "probes/spectra.py",
        "a rule that cannot say yes says no",
        "doubt=found.undecided,",
        'doubt="",',
    ),
    # das
    (
        "probes/_das/search.py",
        "pairs that differ in more decide",
        "if self.full_swap_minimal < rule.threshold:",
        "if self.full_swap < rule.threshold:",
    ),
    (
        "probes/_das/search.py",
        "frequent values count more",
        "votes = one_hot[known] / one_hot[known].sum(0).clamp_min(1)",
        "votes = one_hot[known]",
    ),
    (
        "probes/_das/_swap.py",
        "outputs that are not asked count as wrong",
        "masked_fill(labels[rows] == IGNORE, math.nan)",
        "masked_fill(labels[rows] == IGNORE, 0.0)",
    ),
    # standings, chance
    (
        "mechint/explanation/standing.py",
        "what is untested stands",
        'return Standing(claim, "untested", "no test of it could fail")',
        'return Standing(claim, "stands", "no test of it could fail")',
    ),
    (
        "mechint/decide/evidence.py",
        "chance of the largest single output",
        "return float(counts.max() / len(answers))",
        "return max(np.unique(c, return_counts=True)[1].max() / len(c) for c in answers.T)",
    ),
)
"""(file, the change in words, text, its replacement)."""

EQUIVALENT: dict[str, str] = {
    "module: RESAMPLES = 400 → 400 × 0.5": "precision of an interval",
    "module: RESAMPLES = 400 → 400 × 1.5": "precision of an interval",
    "module: MAX_CONSTANTS = 512 → 512 × 0.5": "cost, where outputs are not asked",
    "module: MAX_CONSTANTS = 512 → 512 × 1.5": "cost, where outputs are not asked",
    "module: CHANGED = 400 → 400 × 0.5": "cost, and precision of a mean",
    "module: CHANGED = 400 → 400 × 1.5": "cost, and precision of a mean",
    "need: widths not in self.spares → True": "the same effects, measured again",
    "module: PENALTY = 0.001 → 0.001 × 0.5": "strength of a ridge, and no bound",
    "module: PENALTY = 0.001 → 0.001 × 1.5": "strength of a ridge, and no bound",
    "module: DIGITS = 9 → 9 × 1.5": "13 digits, too, are far from the rounding of float64",
}
"""The change of a mutant that no test can kill → the reason."""


# --- running them ---------------------------------------------------------------------------------
def functions_of(space: Mapping[str, Any], inside: str = "") -> Iterator[tuple[str, FunctionType]]:
    """Name → function of everything in a namespace, methods and properties of its classes too."""
    for name, found in list(space.items()):
        if isinstance(found, type) and not inside:
            for inner, method in functions_of(vars(found), name):
                yield f"{name}.{inner}", method
        for attribute in ("fget", "func", "__func__"):
            found = getattr(found, attribute, found) if not isinstance(found, type) else found
        found = inspect.unwrap(found) if isinstance(found, FunctionType) else found
        if isinstance(found, FunctionType):
            yield name, found


def apply(mutant: Mutant) -> None:
    """Put a mutant in the place of the module that is imported: the code of its functions, and its
    constants wherever they were imported to or are a default.
    """
    name = mutant.file.removesuffix(".py").replace("/", ".")
    name = name if mutant.file.startswith("mechint/") else f"mechint.{name}"
    file, own = str(ROOT / mutant.file), vars(sys.modules[name])
    made: dict[str, Any] = dict(own)
    exec(compile(mutant.text, file, "exec"), made)  # noqa: S102
    new = {path: one for path, one in functions_of(made) if one.__code__.co_filename == file}
    for path, function in functions_of(own):
        if function.__code__.co_filename == file:
            function.__code__ = new[path].__code__
    constants = {
        key: old for key, old in own.items() if key.isupper() and repr(old) != repr(made[key])
    }
    changed = {id(old): made[key] for key, old in constants.items()}
    ours = ("mechint", "probes", "tests")
    for module in [one for one in list(sys.modules.values()) if one is not None]:
        if changed and module.__name__.partition(".")[0] in ours:
            for key, old in list(vars(module).items()):
                if key in constants and id(old) in changed:
                    setattr(module, key, changed[id(old)])
            for _, function in functions_of(vars(module)):
                given = function.__kwdefaults__ or {}
                given.update(
                    {k: changed[id(one)] for k, one in given.items() if id(one) in changed}
                )
                plain = function.__defaults__ or ()
                function.__defaults__ = tuple(changed.get(id(one), one) for one in plain)


class Loop:
    """A plugin of pytest: collects the tests once, and runs them in a fork for each mutant."""

    def __init__(self, file: str, mutants: Sequence[Mutant]) -> None:
        self.file, self.mutants = file, mutants
        self.passes = False
        self.alive = list[Mutant]()

    def pytest_runtestloop(self, session: Any) -> bool:
        # as things are, and with the same text put in place as a mutant is
        same = Mutant(self.file, "no change", (ROOT / self.file).read_text(encoding="utf-8"))
        with tempfile.TemporaryFile("w+") as calls:
            self.passes = self._passes(session.items, None, calls)
            calls.seek(0)
            told = [json.loads(line) for line in calls]
        order = sorted(range(len(told)), key=lambda one: told[one][0])
        self.passes = self.passes and self._passes(session.items, same)
        if self.passes:
            for one in self.mutants:
                near = [i for i in order if not one.inside or one.inside in told[i][1]]
                if self._passes([session.items[i] for i in near], one):
                    print(f"alive: {one.file}: {one.words}", flush=True)
                    self.alive.append(one)
        return True

    def _passes(
        self, items: Sequence[Any], mutant: Mutant | None, calls: IO[str] | None = None
    ) -> bool:
        """Return whether tests pass with a mutant, or as things are; then the seconds of each, and
        the functions of the file that it calls, are written to `calls`, a line each.
        """
        child = os.fork()
        if not child:
            resource.setrlimit(resource.RLIMIT_CPU, (LIMIT, LIMIT))
            status = 1
            with contextlib.suppress(BaseException):
                if mutant is not None:
                    apply(mutant)
                for item in items:
                    start, called = time.process_time(), set[str]()
                    if calls is not None:
                        sys.setprofile(functools.partial(self._note, called))
                    item.config.hook.pytest_runtest_protocol(item=item, nextitem=None)
                    sys.setprofile(None)
                    if item.session.testsfailed:
                        break
                    if calls is not None:
                        seconds = time.process_time() - start
                        print(json.dumps([seconds, sorted(called)]), file=calls, flush=True)
                else:
                    status = 0
            os._exit(status)
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0

    def _note(self, called: set[str], frame: FrameType, event: str, _: Any) -> None:
        if event == "call" and frame.f_code.co_filename == str(ROOT / self.file):
            called.add(frame.f_code.co_name)


def run(file: str, mutants: Sequence[Mutant]) -> list[Mutant]:
    """The mutants of a file that its tests let live.

    Raises:
        SystemExit: its tests fail as things are.
    """
    import pytest

    loop = Loop(file, mutants)
    options = ["-p", "no:cacheprovider", "-p", "no:terminal"]
    pytest.main([*options, *EVERY[file]], plugins=[loop])
    if not loop.passes:
        raise SystemExit(f"{file}: its tests fail as things are: {' '.join(EVERY[file])}")
    return loop.alive


def keep(out: Path, file: str, counts: Mapping[str, int]) -> None:
    """Write the counts of a file into a table that keeps those of the other files."""
    from benchmarks.kept import keep_row, made  # pytest would warn of one imported before

    command = f"python -m benchmarks.mutants --only {file} --out {out}"
    keep_row(out, dict(counts), made(command, file))


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; 1 where a mutant survives that is not equivalent."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.mutants")
    parser.add_argument("--only", default="", help="files whose path has this")
    parser.add_argument("--list", action="store_true", help="the mutants alone")
    parser.add_argument("--sample", type=int, help="so many of each file, drawn with seed 0")
    parser.add_argument("--out", type=Path, help="JSON that keeps the counts of each file")
    chosen = parser.parse_args(arguments)
    os.chdir(ROOT)
    files = [file for file in EVERY if chosen.only in file]
    made = {file: list(mutants_of(file)) for file in files}
    total = {file: len(own) for file, own in made.items()}
    if chosen.sample is not None:
        draw = random.Random(0)
        made = {file: draw.sample(own, min(chosen.sample, len(own))) for file, own in made.items()}
    if chosen.list:
        print("\n".join(f"{one.file}  {one.words}" for own in made.values() for one in own))
        return 0
    if len(files) > 1:  # tests are collected once in a process
        print("| file | mutants | tried | killed | equivalent | alive |\n|" + " --- |" * 6)
        command = [sys.executable, "-m", "benchmarks.mutants"]
        for name, given in (("--out", chosen.out), ("--sample", chosen.sample)):
            command += [name, str(given)] * (given is not None)
        command += ["--only"]
        return max(subprocess.run([*command, file]).returncode for file in files)
    (file,) = files
    same = [one for one in made[file] if one.words in EQUIVALENT]
    alive = run(file, [one for one in made[file] if one.words not in EQUIVALENT])
    killed = len(made[file]) - len(same) - len(alive)
    counts = {"mutants": total[file], "tried": len(made[file]), "killed": killed}
    counts |= {"equivalent": len(same), "alive": len(alive)}
    print(f"| {file} | {' | '.join(map(str, counts.values()))} |", flush=True)
    if chosen.out is not None:
        keep(chosen.out, file, counts)
    return 1 if alive else 0


if __name__ == "__main__":
    raise SystemExit(main())
