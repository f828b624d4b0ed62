"""Functions of a few variables that give an answer, fitted on inputs and named as Python.

A maker takes a `Fitting` and yields each `Function` of its kind that could fit, with its constants
found; makers are registered in the entry-point group ``mechint.functions``. `best_function` takes
the smallest of those that fit as well as any.
"""

from __future__ import annotations

import contextlib
import itertools
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
import torch
from jaxtyping import Bool, Int
from torch import Tensor

from mechint.errors import DataError
from mechint.explanation.rules import NOTHING, Inputs
from mechint.groups.finite import FiniteGroup
from mechint.registry import FUNCTIONS

SAME_FIT = 0.005
"""Share of inputs by which a smaller function may fit worse."""
MAX_TIED = 0.1
"""Share of inputs on which a function may leave several answers tied."""
MAX_EXCEPTIONS = 3
"""Exceptions of a copy."""
CELL, TABLE = 2, 0.25
"""Inputs that show each cell of a table, of those as they are on the mean, at least; and cells per
fitted input, natural and composed, at most."""
SURE = 0.995
"""Share of inputs at which constants are no longer searched."""
MAX_CONSTANTS, MAX_TRIPLE = 31, 13
"""Moduli up to which all coefficients are tried, of three variables at once."""
MAX_MAP = 12
"""Values of a number that are mapped to answers one by one."""
LEAST_GROUP, MAX_GROUP, MAX_ROUNDS = 3, 128, 8
"""Elements of a group, at least and at most; rounds of completing its table, at most."""
GOOD_CELLS = 0.9
"""Share of the answers on which a completed table agrees, at least."""
MAX_AHEAD = 6
"""Difference of the counts of two of few operands that a function may ask for, at most."""
MAX_RESIDUE = 6
"""The largest number modulo which tokens and counts are looked up."""
MAX_COUNTED = 24
"""Operands that are counted one by one."""

Values = Mapping[str, Tensor]


@dataclass(frozen=True)
class ProgramVariable:
    """The content of sources: a token (example,), or a bag, counts of tokens (example, d_vocab)."""

    name: str
    python: str
    kind: Literal["token", "bag"] = "token"


@dataclass(frozen=True)
class Function:
    """An answer as a function of variables.

    python: an expression over the variables' names. compute: values → answers (example,),
    `NOTHING` where it gives none. size: roughly its constants. tables: names in `python` → their
    numbers. tops: values → flags (example, answer) of the answers that come first, several where
    they are tied; None where there is always one. words: its expression in words, for titles; ""
    where it is short.
    """

    python: str
    compute: Callable[[Values], Tensor]
    size: float
    tables: Mapping[str, Any] = field(default_factory=dict[str, Any])
    tops: Callable[[Values], Tensor] | None = None
    words: str = ""

    def strict(self, values: Values) -> Int[Tensor, " example"]:
        """The answers, `NOTHING` where several are tied."""
        found = self.compute(values)
        return found if self.tops is None else found.where(self.tops(values).sum(1) == 1, NOTHING)

    def gives(self, values: Values, answers: Int[Tensor, " example"]) -> Bool[Tensor, " example"]:
        """Flags of the answers that are those of the function, or one of several that are tied."""
        if self.tops is None:
            return self.compute(values) == answers
        tops = self.tops(values)
        inside = (answers >= 0) & (answers < tops.shape[1])
        return tops.gather(1, (answers * inside)[:, None])[:, 0] & inside

    @property
    def takes_none(self) -> bool:
        """True where the expression has an answer for a variable that is None."""
        looked_up = ".get(" in self.python and " % " not in self.python
        return looked_up or self.python.isidentifier()

    def uses(self, variable: ProgramVariable) -> bool:
        """Return whether the expression names a variable."""
        return named(variable.name).search(self.python) is not None


def named(variable: str) -> re.Pattern[str]:
    """The name of a variable in an expression, and not within a longer one."""
    return re.compile(rf"(?<!\w){re.escape(variable)}(?!\w)")


@dataclass(frozen=True)
class Fitting:
    """Values of variables with the model's answers, on inputs as they are and composed.

    inputs: what the rules were made for. natural: number of those as they are, which come first.
    """

    variables: tuple[ProgramVariable, ...]
    values: Values
    answers: Int[Tensor, " example"]
    inputs: Inputs
    natural: int

    @property
    def tokens(self) -> list[str]:
        """Names of the variables that are tokens."""
        return [one.name for one in self.variables if one.kind == "token"]

    @property
    def bags(self) -> list[str]:
        """Names of the variables that are bags."""
        return [one.name for one in self.variables if one.kind == "bag"]

    @property
    def n_answers(self) -> int:
        """The largest answer plus 1."""
        return int(self.answers.max()) + 1

    def fit(self, function: Function) -> float:
        """Share of the model's answers that a function gives; 0 of one that is often tied."""
        if function.tops is not None:
            tied = function.tops(self.values)[: self.natural].sum(1) > 1
            if float(tied.double().mean()) > MAX_TIED:
                return 0.0
        return float(function.gives(self.values, self.answers).double().mean())


def best_function(fitting: Fitting) -> tuple[Function | None, float]:
    """The smallest function among those that fit as well as any, and the share of answers that it
    gives.
    """
    made = [one for name in FUNCTIONS for one in FUNCTIONS[name](fitting)]
    found = [(fitting.fit(one), one) for one in made]
    if not found:
        return None, 0.0
    top = max(fit for fit, _ in found)
    fit, best = min(
        (one for one in found if one[0] >= top - SAME_FIT), key=lambda one: (one[1].size, -one[0])
    )
    return best, fit


def said(values: Values, names: Iterable[str], answers: Tensor) -> Tensor:
    """The answers, `NOTHING` where a token variable is."""
    silent = torch.zeros_like(answers, dtype=torch.bool)
    for name in names:
        if values[name].dim() == 1:
            silent |= values[name] == NOTHING
    return torch.where(silent, NOTHING, answers)


# --- makers ---------------------------------------------------------------------------------------
def copied(fitting: Fitting) -> Iterator[Function]:
    """A variable itself, or with a few exceptions."""
    for name in fitting.tokens:
        yield Function(name, lambda v, name=name: v[name], 1)
        yield from _with_exceptions(name, lambda v, name=name: v[name], fitting)


def _with_exceptions(
    python: str, compute: Callable[[Values], Tensor], fitting: Fitting
) -> Iterator[Function]:
    """The same but for up to `MAX_EXCEPTIONS` values, whose answers nearly all are another one."""
    found = compute(fitting.values)
    wrong = found[found != fitting.answers].unique()
    if not len(wrong) or len(wrong) > 200:
        return
    given = {value: fitting.answers[found == value] for value in wrong.tolist()}
    most = {value: int(some.mode().values) for value, some in given.items()}
    other = {
        value: answer
        for value, answer in most.items()
        if answer != value and float((given[value] == answer).double().mean()) > 0.9
    }
    if not 0 < len(other) <= MAX_EXCEPTIONS:
        return

    def changed(values: Values) -> Tensor:
        old = compute(values)
        new = old.clone()
        for value, answer in other.items():
            new[old == value] = answer
        return new

    shown = {None if value == NOTHING else value: answer for value, answer in other.items()}
    yield Function(f"{shown}.get({python}, {python})", changed, 1 + len(other))


def extremes(fitting: Fitting) -> Iterator[Function]:
    """The largest or smallest of several variables, and the distance of two."""
    names = fitting.tokens
    for several in [*itertools.combinations(names, 2), *([tuple(names)] if len(names) > 2 else [])]:
        for name, rank in (("max", -1), ("min", 0)):

            def ranked(v: Values, names: tuple[str, ...] = several, rank: int = rank) -> Tensor:
                return said(v, names, torch.stack([v[name] for name in names]).sort(0)[0][rank])

            yield Function(f"{name}({', '.join(several)})", ranked, 1.5)
    for a, b in itertools.combinations(names, 2):
        yield Function(
            f"abs({a} - {b})", lambda v, s=(a, b): said(v, s, (v[s[0]] - v[s[1]]).abs()), 1.5
        )


def affine(fitting: Fitting) -> Iterator[Function]:
    """A sum of up to three variables with whole coefficients, modulo a number."""
    fitted = 0.0
    for several in (1, 2, 3):
        for names in itertools.combinations(fitting.tokens, several):
            for modulus in sorted({fitting.n_answers, len(fitting.inputs.operands)}):
                if modulus < 3 or fitting.n_answers > modulus:
                    continue
                if fitted > SURE or (several == 3 and modulus > MAX_TRIPLE):
                    continue
                found = _coefficients([fitting.values[n] for n in names], fitting, modulus)
                if found is None:
                    continue
                function = _affine(names, *found, modulus)
                fitted = max(fitted, fitting.fit(function))
                yield function


def _affine(names: tuple[str, ...], factors: tuple[int, ...], plus: int, modulus: int) -> Function:
    terms = [n if f == 1 else f"{f} * {n}" for f, n in zip(factors, names, strict=True)]
    terms += [str(plus)] if plus else []
    expression = " + ".join(terms)
    expression = expression if len(terms) == 1 and " " not in expression else f"({expression})"

    def compute(values: Values) -> Tensor:
        terms = (f * values[n] for f, n in zip(factors, names, strict=True))
        total = sum(terms, torch.tensor(plus))
        return said(values, names, total % modulus)

    return Function(f"{expression} % {modulus}", compute, 3)


def _coefficients(
    values: list[Tensor], fitting: Fitting, modulus: int
) -> tuple[tuple[int, ...], int] | None:
    """The factors and the constant that give most answers."""
    few = [0, 1, 2, modulus - 2, modulus - 1]
    factors = list(range(modulus)) if modulus <= MAX_CONSTANTS else few
    if len(factors) ** len(values) > 40_000:
        return None
    best: tuple[float, tuple[int, ...], int] | None = None
    for chosen in itertools.product(factors[1:], repeat=len(values)):
        rest = fitting.answers - sum(f * v for f, v in zip(chosen, values, strict=True))
        counts = torch.bincount(rest % modulus, minlength=modulus)
        share = float(counts.max()) / len(rest)
        if best is None or share > best[0] + 1e-9:
            best = share, chosen, int(counts.argmax())
        if best[0] > SURE:
            break
    return None if best is None else best[1:]


def digits_of_sums(fitting: Fitting) -> Iterator[Function]:
    """A digit of a sum before the last one, with the carry of the digits behind it: of several
    variables, each worth 1 or the base, the sum divided by the base.
    """
    if len(fitting.tokens) < 2:
        return
    values = torch.stack([fitting.values[name] for name in fitting.tokens], 1)
    for base in sorted({fitting.n_answers, len(fitting.inputs.operands)} - {0, 1}):
        worth = torch.cartesian_prod(*[torch.tensor([0, 1, base])] * values.shape[1])
        worth = worth.reshape(-1, values.shape[1])
        worth = worth[(worth == 1).sum(1) > 1]  # fewer carry nothing
        if not len(worth):
            continue
        found = (values @ worth.T).div(base, rounding_mode="floor")
        shares = (found == fitting.answers[:, None]).double().mean(0)
        best = worth[int(shares.argmax())].tolist()
        used = {n: w for n, w in zip(fitting.tokens, best, strict=True) if w}
        terms = " + ".join(n if w == 1 else f"{w} * {n}" for n, w in used.items())

        def compute(values: Values, used: Mapping[str, int] = used, base: int = base) -> Tensor:
            total = torch.stack([w * values[n] for n, w in used.items()]).sum(0)
            return said(values, used, total.div(base, rounding_mode="floor"))

        yield Function(f"({terms}) // {base}", compute, 3)


def compared(fitting: Fitting) -> Iterator[Function]:
    """Two variables compared; one plus a number, but for one answer where it equals the other."""
    pairs = itertools.combinations(fitting.tokens, 2)
    for (a, b), d in itertools.product(pairs, fitting.tokens):
        equal = fitting.values[a] == fitting.values[b]
        if CELL <= int(equal.sum()) < len(equal):
            stop = int(fitting.answers[equal].mode().values)
            plus = int((fitting.answers - fitting.values[d])[~equal].mode().values)

            def next_or(
                v: Values, a: str = a, b: str = b, d: str = d, k: int = plus, c: int = stop
            ) -> Tensor:
                return said(v, (d,), torch.where(v[a] == v[b], c, v[d] + k))

            more = f" + {plus}" if plus else ""
            yield Function(f"{stop} if {a} == {b} else {d}{more}", next_or, 3)
    for a, b in itertools.combinations(fitting.tokens, 2):
        for sign, compare in (("==", torch.eq), ("<", torch.lt), ("<=", torch.le)):
            yield from _decided(
                f"{a} {sign} {b}", lambda v, a=a, b=b, f=compare: f(v[a], v[b]), (a, b), fitting
            )


def _decided(
    python: str, test: Callable[[Values], Tensor], names: Iterable[str], fitting: Fitting
) -> Iterator[Function]:
    """One answer where a condition holds and another where it does not."""
    holds, names = test(fitting.values), tuple(names)
    if bool(holds.all()) or not bool(holds.any()):
        return
    yes, no = (int(fitting.answers[one].mode().values) for one in (holds, ~holds))
    if yes == no:
        return
    text = f"int({python})" if (yes, no) == (1, 0) else f"{yes} if {python} else {no}"

    def compute(values: Values) -> Tensor:
        return said(values, names, torch.where(test(values), yes, no))

    yield Function(text, compute, 2)


def counted(fitting: Fitting) -> Iterator[Function]:
    """Counts of tokens in a bag, the most frequent token, and comparisons of counts."""
    operands = fitting.inputs.operands
    largest = len(operands) - 1
    for bag in fitting.bags:

        def of(values: Values, bag: str = bag) -> Tensor:
            return values[bag][:, operands]

        def tops(values: Values, bag: str = bag, of: Any = of) -> Tensor:
            found = torch.zeros(values[bag].shape, dtype=torch.bool)
            found[:, operands] = of(values) == of(values).amax(1, keepdim=True)
            return found

        most = f"most_common({bag})"
        yield Function(most, lambda v, of=of: operands[of(v).argmax(1)], 2, tops=tops)
        yield from _numbered(f"len({bag})", lambda v, of=of: (of(v) > 0).sum(1), fitting)
        yield Function(
            f"max({bag})",
            lambda v, of=of: operands[largest - (of(v) > 0).flip(1).int().argmax(1)],
            2,
        )
        yield Function(f"min({bag})", lambda v, of=of: operands[(of(v) > 0).int().argmax(1)], 2)
        for i, j in itertools.combinations(range(min(len(operands), 8)), 2):
            a, b = f"{bag}[{operands[i]}]", f"{bag}[{operands[j]}]"

            def ahead(values: Values, of: Any = of, i: int = i, j: int = j) -> Tensor:
                return of(values)[:, i] - of(values)[:, j]

            yield from _decided(f"{a} == {b}", lambda v, f=ahead: f(v) == 0, (), fitting)
            for bound in range(-MAX_AHEAD, MAX_AHEAD + 1) if len(operands) < 4 else (0, 1):
                said = {0: f"{a} >= {b}", 1: f"{a} > {b}"}.get(bound, f"{a} - {b} >= {bound}")
                yield from _decided(said, lambda v, f=ahead, k=bound: f(v) >= k, (), fitting)
    for name, number in counts(fitting):
        yield from _numbered(name, number, fitting)
        yield from _decided(f"{name} > 0", lambda v, n=number: n(v) > 0, (), fitting)
        highest = int(number(fitting.values).max()) if len(operands) <= 8 else 0
        for bound in range(2, highest + 1):
            yield from _decided(
                f"{name} >= {bound}", lambda v, n=number, b=bound: n(v) >= b, (), fitting
            )
        modulus = fitting.n_answers
        if modulus < 3:
            continue
        found = _coefficients([number(fitting.values)], fitting, modulus)
        if found is not None:
            sums = _affine((name,), *found, modulus)
            yield replace(sums, compute=lambda v, f=sums.compute, n=name, of=number: f({n: of(v)}))


def counts(fitting: Fitting) -> Iterator[tuple[str, Callable[[Values], Tensor]]]:
    """The number of each of few operands in a bag, and the sum of all, in Python and of values."""
    operands = fitting.inputs.operands
    for bag in fitting.bags:
        names = [f"{bag}[{one}]" for one in operands.tolist()[:MAX_COUNTED]]
        each = [*torch.eye(len(operands), dtype=torch.long)[: len(names)], operands]
        for name, weights in zip([*names, f"sum({bag}.elements())"], each, strict=True):
            yield name, lambda v, bag=bag, weights=weights: v[bag][:, operands] @ weights


def _numbered(
    python: str, number: Callable[[Values], Tensor], fitting: Fitting
) -> Iterator[Function]:
    """A number as the answer, or each of its values mapped to one."""
    yield Function(python, number, 2)
    found = number(fitting.values)
    seen = found.unique().tolist()
    if not 2 <= len(seen) <= MAX_MAP:
        return
    table = {int(n): int(fitting.answers[found == n].mode().values) for n in seen}
    if len(set(table.values())) < 2:
        return
    index = torch.full((max(table) + 2,), NOTHING)
    index[list(table)] = torch.tensor(list(table.values()))

    def compute(values: Values) -> Tensor:
        return index[number(values).clamp(max=len(index) - 1)]

    yield Function(f"{table}.get({python})", compute, 2 + len(table))


def tables(fitting: Fitting) -> Iterator[Function]:
    """A table of one or two variables, each cell of which several inputs show."""
    for several in (1, 2):
        for names in itertools.combinations(fitting.tokens, several):
            size = max(int(fitting.values[name].max()) for name in names) + 2
            key = _cells(fitting.values, names, size)
            shown, index, counts = key.unique(return_inverse=True, return_counts=True)
            most = min(TABLE * len(key), fitting.natural / CELL)
            if len(shown) > most or int(counts.median()) < CELL:
                continue
            table = torch.full((size**several,), NOTHING)
            for number, cell in enumerate(shown.tolist()):
                if counts[number] >= CELL:
                    table[cell] = fitting.answers[index == number].mode().values
            written = {
                _cell(cell, size, several): int(table[cell])
                for cell in shown.tolist()
                if table[cell] != NOTHING
            }

            def compute(
                values: Values, names: Any = names, size: int = size, table: Tensor = table
            ) -> Tensor:
                outside = torch.stack([values[name] >= size - 1 for name in names]).any(0)
                found = table[_cells(values, names, size).clamp(max=len(table) - 1)]
                return torch.where(outside, NOTHING, found)

            name = "TABLE_" + "_".join(str(names[i]).translate(_PLAIN) for i in range(several))
            listed = names[0] if several == 1 else f"({', '.join(names)})"
            yield Function(f"{name}.get({listed})", compute, 10 + len(written), {name: written})


def residues(fitting: Fitting) -> Iterator[Function]:
    """A table of one or two tokens modulo a number, or of a count or the sum of a bag modulo it."""
    for modulus in range(2, MAX_RESIDUE + 1):
        names = {f"{one} % {modulus}": one for one in fitting.tokens}

        def reduced(values: Values, names: Any = names, modulus: int = modulus) -> Values:
            old = {new: values[name] for new, name in names.items() if name in values}
            return {new: one.where(one == NOTHING, one % modulus) for new, one in old.items()}

        variables = tuple(ProgramVariable(new, new) for new in names)
        for one in tables(replace(fitting, variables=variables, values=reduced(fitting.values))):
            yield replace(one, compute=lambda v, f=one.compute, of=reduced: f(of(v)))
        for python, number in counts(fitting):
            yield from _numbered(
                f"{python} % {modulus}", lambda v, n=number, m=modulus: n(v) % m, fitting
            )


def products(fitting: Fitting) -> Iterator[Function]:
    """The product of two tokens in a group whose table follows from the answers that are shown, by
    associativity: cells that no input shows as well.
    """
    for first, second in itertools.combinations(fitting.tokens, 2):
        x, y = (fitting.values[name][: fitting.natural] for name in (first, second))
        answers = fitting.answers[: fitting.natural]
        elements = torch.cat([x, y]).unique()
        zero = [z for z in elements if bool((answers == z)[(x == z) | (y == z)].all())][:1]
        for z in zero:  # as 0 of products modulo a prime: the others are the group
            other = (x != z) & (y != z)
            x, y, answers = x[other], y[other], answers[other]
            elements = elements[elements != z]
        n = len(elements)
        if n < LEAST_GROUP or NOTHING in elements or not bool(torch.isin(answers, elements).all()):
            continue
        place = [np.searchsorted(elements.numpy(), one.numpy()) for one in (x, y, answers)]
        shown = np.full((n, n), NOTHING)
        shown[place[0], place[1]] = place[2]
        table = completed(shown) if n <= MAX_GROUP else shown
        if (table < 0).any() or (table[place[0], place[1]] == place[2]).mean() < GOOD_CELLS:
            continue
        with contextlib.suppress(DataError):
            FiniteGroup(table)
            every = torch.tensor([*elements, *zero])
            size = int(every.max()) + 1
            by_token = torch.full((size + 1, size + 1), NOTHING)
            by_token[torch.meshgrid(every, every, indexing="ij")] = every[-1]
            by_token[torch.meshgrid(elements, elements, indexing="ij")] = elements[table]
            written = {(a, b): int(by_token[a, b]) for a in every.tolist() for b in every.tolist()}
            name = "_".join(["PRODUCT", *(one.translate(_PLAIN) for one in (first, second))])

            def compute(
                values: Values, a: str = first, b: str = second, table: Tensor = by_token
            ) -> Tensor:
                x, y = (values[one].clamp(max=len(table) - 1) for one in (a, b))
                return said(values, (a, b), table[x, y])

            listed = " and the zero ".join([f"{n} elements", *(str(int(one)) for one in zero)])
            yield Function(
                f"{name}.get(({first}, {second}))",
                compute,
                4,
                {name: written},
                words=f"the product of {first} and {second} in a group of {listed}",
            )


def completed(table: Int[np.ndarray, "element element"]) -> Int[np.ndarray, "element element"]:
    """The table of a product where each cell is what most of x(yz) = (xy)z say that it is, a cell
    that is shown having a vote of its own; -1 where none says anything.
    """
    n = len(table)
    for _ in range(MAX_ROUNDS):
        rows, columns = np.nonzero(table >= 0)
        cells = [(rows * n + columns) * n + table[rows, columns]]
        for y in range(n):
            x, z = np.flatnonzero(table[:, y] >= 0)[:, None], np.flatnonzero(table[y] >= 0)
            xy, yz = table[x, y], table[y, z]
            for row, column, said in ((x, yz, table[xy, z]), (xy, z, table[x, yz])):
                cells.append(((row * n + column) * n + said)[said >= 0])
        by_cell = np.bincount(np.concatenate(cells), minlength=n**3).reshape(n, n, n)
        found = np.where(by_cell.any(2), by_cell.argmax(2), NOTHING)
        if np.array_equal(found, table):
            break
        table = found
    return table


_PLAIN = str.maketrans("[]-% ", "__mm_")


def _cells(values: Values, names: Iterable[str], size: int) -> Tensor:
    """The cell of a table, 0 in each axis for `NOTHING`."""
    cell = torch.zeros((), dtype=torch.long)
    for name in names:
        cell = cell * size + (values[name] + 1).clamp(max=size - 1)
    return cell


def _cell(cell: int, size: int, several: int) -> Any:
    digits = [int(one) - 1 for one in np.unravel_index(cell, (size,) * several)]
    keys = [None if digit == NOTHING else digit for digit in digits]
    return keys[0] if several == 1 else tuple(keys)
