"""An explanation as a Python file of numpy alone.

Variables become lookup tables: of each step of the program every case of its parents and of the
tokens that it reads is computed once. Features that are `Products` and the weights that read the
logits off them are written as numbers.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from mechint.errors import NotApplicableError
from mechint.explanation.measure import Bench
from mechint.explanation.parts import Products
from mechint.task import Program, Step

if TYPE_CHECKING:
    from mechint.explanation.explanation import Explanation
    from mechint.explanation.source_program import SourceProgram
    from mechint.subject import Subject

MAX_CASES = 1 << 16
"""Cases of one variable that are written out, at most."""
MARK = "A program that mechint wrote"
HEADER = f'''"""{MARK}, as it found it in a model. What it is of stands in MADE_OF.

    python THIS_FILE < TOKENS    one input per line, its tokens as integers
"""

import sys

import numpy as np
'''

RUN = '''
def variables(tokens):
    """Variable -> (example,) its values, from tokens (example, position)."""
    found = {}
    for name, (axes, table) in TABLES.items():
        index = (found[axis] if isinstance(axis, str) else tokens[:, axis] for axis in axes)
        found[name] = table[tuple(index)]
    return found

'''
LOGITS = '''
def features(tokens):
    """(example, feature) products of the columns of the tables of each group."""
    found, columns = variables(tokens), []
    for group in FEATURES:
        product = np.ones((len(tokens), 1))
        for name, table in group:
            product = product[:, :, None] * table[found[name]][:, None, :]
            product = product.reshape(len(tokens), -1)
        columns.append(product)
    return np.concatenate(columns, 1)


def logits(tokens):
    """(example, class) above the mean class of each output."""
    return features(tokens) @ WEIGHTS + BIAS


def answers(tokens):
    """(example, output) the classes of largest logit."""
    found = logits(np.asarray(tokens))
    return np.stack([found[:, start:stop].argmax(1) for start, stop in OUTPUTS], 1)
'''
_READ = """

if __name__ == "__main__":
    try:
        rows = [[int(x) for x in line.split()] for line in sys.stdin if line.strip()]
    except ValueError as error:
        sys.exit(f"tokens are integers, one input per line: {error}")
    if not rows:
        sys.exit("no input: give tokens as integers, one input per line")
    for one in answers(rows):
"""
MAIN_OF_ROWS = f"""

def answers(rows):
    return [answer([int(x) for x in row]) for row in rows]
{_READ}        print(one)
"""
MAIN = f"{_READ}        print(*one)\n"


@dataclass(frozen=True)
class Code:
    """The text of a file, and how often its answers are those of the model.

    agreement: share of the `n` judged inputs, which nothing in the file was fitted to.
    """

    text: str
    agreement: float
    n: int

    def answers(self, tokens: Int[Tensor, "n pos"]) -> Int[np.ndarray, "n output"]:
        """The answers of the file."""
        return defined(self.text)["answers"](tokens.cpu().numpy())


def defined(text: str) -> dict[str, Any]:
    """Name → what the text of a file defines; its main part is not run."""
    names: dict[str, Any] = {"__name__": "explanation"}
    exec(compile(text, "explanation", "exec"), names)  # noqa: S102
    return names


def written(
    subject: Subject, explanation: Explanation, seed: int = 0, examples: int = 3000
) -> Code:
    """The file of an explanation on a subject; see `Explanation.to_python`.

    Raises:
        NotApplicableError: no part reads the logits, or a variable has more than `MAX_CASES` cases.
    """
    bench = Bench.of(subject, explanation.program, seed, examples).among(explanation.among)
    if explanation.over_sources is not None:
        return _over_sources(bench, explanation.over_sources)
    features = next((part.features for part in explanation.parts if part.reads), None)
    if not isinstance(features, Products):
        raise NotApplicableError(
            f"{explanation.name} cannot be written out: no part of it gives the logits"
        )
    used = {name for group in features.groups for name, _ in group}
    tables = _tables(bench, explanation.program, used)
    header = _header(bench, explanation)
    body = "TABLES = {\n" + "".join(map(_entry, tables.items())) + "}\n"
    body += '"""Variable -> variables and tokens (by position) that it follows from; values."""\n'
    body += f"{_readout(bench, features)}\n{RUN}{LOGITS}"
    made = Code(f"{header}\n{body}{MAIN}", math.nan, len(bench.judged))
    found = torch.from_numpy(made.answers(bench.tokens(bench.judged))).long()
    agreement = bench.kept(bench.own_logits[bench.judged], found).value
    return Code(made.text, agreement, made.n)


def run_rows(
    text: str, tokens: Int[Tensor, "example pos"], stop: Int[Tensor, " example"]
) -> Int[Tensor, " example"]:
    """The answers of the function `answer` of a file to the tokens of each row up to `stop`; -1
    where one is None.
    """
    answer = defined(text)["answer"]
    rows = [row[:end] for row, end in zip(tokens.tolist(), stop.tolist(), strict=True)]
    said = [answer(row) for row in rows]
    return torch.tensor([-1 if one is None else int(one) for one in said])


def _over_sources(bench: Bench, program: SourceProgram) -> Code:
    """The file of a program over sources, and how often its answers are those of the model."""
    path = bench.subject.provenance["checkpoint"].get("path", "")
    text = program.python(f"{MARK}{f' in {path}' if path else ''}.")
    tokens, rows = bench.tokens(bench.judged).cpu(), bench.judged
    at = bench.subject.answer_positions[rows.to(bench.subject.device)].cpu()
    said = program.run_python(tokens, at)
    own = bench.own_logits[rows].argmax(1)
    return Code(text, float((said == own).double().mean()), len(rows))


# --- variables ------------------------------------------------------------------------------------
Axes = tuple[str | int, ...]
"""The keys of a table: variables by name, tokens by position."""


def _tables(bench: Bench, program: Program, wanted: set[str]) -> dict[str, tuple[Axes, np.ndarray]]:
    """Tables of the variables that `wanted` follow from, compared with their values on the data."""
    tokens, needed = (
        bench.tokens(torch.cat([bench.fitted, bench.judged])).cpu(),
        program.needed(wanted),
    )
    values = program.run(tokens, only=needed)
    tables = dict[str, tuple[Axes, np.ndarray]]()
    for step in program.steps:
        if step.name in needed:
            made = _table(step, program, tokens, values)
            if made is None or not _looks_up(made, tokens, values, step.name):
                raise NotApplicableError(
                    f"{program.name} cannot be written out: {step.name} has more than "
                    f"{MAX_CASES:,} cases, or some that cannot be computed"
                )
            tables[step.name] = made
    return tables


def _table(
    step: Step, program: Program, tokens: Tensor, values: Mapping[str, Tensor]
) -> tuple[Axes, np.ndarray] | None:
    """Every case of a step; None where there are too many, or one cannot be computed."""
    parents = [values[name] for name in step.parents]
    try:
        places = [p for p in range(tokens.shape[1]) if _reads(step, tokens, parents, p)]
        sizes = [program.variables[name].n_values for name in step.parents]
        shape = (*sizes, *(int(tokens[:, place].max()) + 1 for place in places))
        seen = [torch.arange(size) for size in sizes]
        seen += [tokens[:, place].unique() for place in places]
        if math.prod(shape) > MAX_CASES:
            return None
        grid = torch.cartesian_prod(*seen).reshape(-1, len(seen))
        inputs = tokens[:1].repeat(len(grid), 1)
        inputs[:, places] = grid[:, len(sizes) :]
        found = step.compute(inputs, *grid[:, : len(sizes)].T)
    except (IndexError, RuntimeError):  # cases that do not occur
        return None
    table = np.zeros(shape, np.int64)
    table[tuple(grid.T.numpy())] = found.numpy()
    return (*step.parents, *places), table


def _reads(step: Step, tokens: Tensor, parents: Sequence[Tensor], place: int) -> bool:
    """Return whether the step changes with the token at a position, its parents kept."""
    moved = tokens.clone()
    moved[:, place] = tokens[:, place].roll(1)
    return not torch.equal(step.compute(moved, *parents), step.compute(tokens, *parents))


def _looks_up(
    made: tuple[Axes, np.ndarray], tokens: Tensor, values: Mapping[str, Tensor], name: str
) -> bool:
    axes, table = made
    at = (values[axis] if isinstance(axis, str) else tokens[:, axis] for axis in axes)
    return bool((table[tuple(one.numpy() for one in at)] == values[name].numpy()).all())


# --- text -----------------------------------------------------------------------------------------
def _header(bench: Bench, explanation: Explanation) -> str:
    """The fixed text at the top, and what the file is of as literals: names of files and claims
    may hold anything, quotes and code included.
    """
    made_of = {
        "made": "tables of the program, and weights that were fitted to the model's logits",
        "checkpoint": bench.subject.provenance["checkpoint"].get("path", ""),
        "explanation": explanation.name,
        "program of the variables": explanation.program.name,
    }
    lines = "".join(f"    {key!a}: {str(value)!a},\n" for key, value in made_of.items())
    return f"{HEADER}\nMADE_OF = {{\n{lines}}}\n"


def _entry(item: tuple[str, tuple[Axes, np.ndarray]]) -> str:
    name, (axes, table) = item
    return f"    {name!r}: ({axes!r}, {_numbers(table)}),\n"


def _readout(bench: Bench, features: Products) -> str:
    """The feature tables and the fitted weights."""
    assert bench.subject.task is not None
    weights, bias = bench.read(features)
    groups = "".join(
        "    ["
        + ", ".join(f"({name!r}, {_numbers(table.numpy())})" for name, table in group)
        + "],\n"
        for group in features.groups
    )
    ends = [(one.start, one.stop) for one in bench.subject.task.output_slices.values()]
    return (
        f"FEATURES = [\n{groups}]\n"
        f"OUTPUTS = {ends!r}\n"
        f"BIAS = {_numbers(bias.numpy())}\n"
        f"WEIGHTS = {_numbers(weights.numpy())}\n"
        f'"""(feature, class), fitted by least squares to {len(bench.fitted):,} inputs."""\n'
    )


def _numbers(values: np.ndarray) -> str:
    """An array as an expression, of whole numbers or of six digits."""
    flat = values.ravel()
    if values.ndim == 1 and np.array_equal(flat, np.arange(len(flat))):
        return f"np.arange({len(flat)})"
    plain = (f"{one}" if values.dtype.kind == "i" else f"{one:.6g}" for one in flat.tolist())
    lines = textwrap.fill(", ".join(plain), 95, initial_indent="    ", subsequent_indent="    ")
    shape = f".reshape({values.shape})" if values.ndim > 1 else ""
    return f"np.array([\n{lines}\n]){shape}"
