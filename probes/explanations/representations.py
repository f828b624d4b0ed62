"""Products in a group by irreducible representations; addition by frequencies.

Key representations are those of the probes `fourier` and `irreps`, read off the logits of the
fitting half.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from jaxtyping import Bool, Int
from torch import Tensor

from mechint.errors import plural
from mechint.explanation import Audit, Explanation, Family, Part, Route
from mechint.explanation.measure import Bench, partial
from mechint.explanation.parts import Features, Products, Values
from mechint.groups.finite import FiniteGroup
from mechint.groups.representations import Representations, representations
from mechint.groups.spectrum import Harmonics
from mechint.interventions import Site
from mechint.probes.spectra import KeyRule, LogitSums, Spectrum, cosine_spectrum
from mechint.probes.words import in_words, named
from mechint.subject import Subject
from mechint.task import Program, Step

SUMS, PRODUCTS = ("addition", "subtraction"), ("multiplication", "division")
"""Operations of a cyclic group, without and with an inverse, where the class of an answer is its
element and where it is not."""
NONE = -1
"""The element of a value that is none, as zero is none of a product modulo a prime."""
MAX_SPARE = 19
"""Spare representations, or as many of the functions of larger ones, in the null of each block, at
most.
"""
MAX_ADDED = 12
"""Representations that completing adds at most."""
GAIN = 0.005
"""Faithfulness or accuracy of the joint interchange that one more representation has to add."""
DRAWS = 4
"""Other inputs that each is put into, so that what is added does not hang on one draw."""
DIFFERENCE, AMPLITUDE = "difference", "amplitudes |cos(w(x - y)/2)|"
"""The variable x - y, and what it does in a pizza."""


@dataclass(frozen=True)
class Setting:
    """A subject whose answer is the product of its two operands, or of one with the inverse of the
    other: group, names, sites of the operands and of the answer.

    elements: variable → the element of each of its values, that of the inverse for an operand that
    is inverted; `NONE` of a value that is none.
    words: the operation, of a cyclic group. partly: whether some operand is none, so that what is
    said is of the other inputs.
    """

    group: FiniteGroup
    x: str
    y: str
    answer: str
    first: tuple[Site, Site]
    last: Site
    elements: Mapping[str, Int[Tensor, " value"]]
    words: str
    partly: bool

    @classmethod
    def of(cls, subject: Subject) -> Setting | None:
        """The setting of a subject; None where it has none."""
        task = subject.task
        program = None if task is None else task.own_program
        if task is None or program is None or task.symmetry is None or len(task.outputs) != 1:
            return None
        operands = [s for s in program.steps if not s.parents and len(s.positions) == 1]
        (answer,) = program.answers[-1]
        block = f"blocks.{subject.n_layers - 1}"
        ends = [("blocks.0.hook_resid_pre", f"{block}.hook_resid_post")]
        ends += [("hook_embed", f"{block}.hook_resid_post")]
        ends += [("hook_embed", f"{block}.mlp.hook_post")]  # of a network without a stream
        enters, leaves = next((one for one in ends if {*one} <= subject.hooks), ("", ""))
        if len(operands) != 2 or answer is None or not enters:
            return None
        one, two = operands
        known = elements_of(subject, program, (one, two), answer)
        if known is None:
            return None
        elements, inverts = known
        own = elements[answer]
        if int((own != NONE).sum()) != task.symmetry.group.order:
            return None
        sums = torch.equal(own, torch.arange(len(own)))
        values = program.run(subject.data.tokens, only=[answer])[answer].cpu()
        return cls(
            task.symmetry.group,
            one.name,
            two.name,
            answer,
            (Site(enters, one.positions[0]), Site(enters, two.positions[0])),
            Site(leaves, "answer"),
            elements,
            (SUMS if sums else PRODUCTS)[inverts],
            bool((own[values] == NONE).any()),
        )

    @property
    def irreps(self) -> Representations:
        """The irreducible representations of the group."""
        return representations(self.group)

    def names(self) -> list[str]:
        """Names of all but the trivial representation."""
        every = {one.name: self.irreps.matrices(one.name) for one in self.irreps.irreps}
        return [name for name, m in every.items() if m.shape[-1] > 1 or not np.allclose(m, 1)]

    def entries(self, name: str) -> Tensor:
        """(element, entry) of a representation; for a cyclic group the first column of its matrices
        is enough.
        """
        found = torch.from_numpy(np.ascontiguousarray(self.irreps.matrices(name))).double()
        return (found[:, :, :1] if self.group.is_cyclic else found).flatten(1)

    def _of_values(self, variable: str, table: Tensor) -> Tensor:
        """(value, column) of a table (element, column), 0 of a value that is no element."""
        return torch.cat([table, torch.zeros_like(table[:1])])[self.elements[variable]]

    def of_elements(self, values: Values) -> Bool[Tensor, " n"]:
        """Return whether the answer is an element, and so both operands are."""
        return self.elements[self.answer][values[self.answer].cpu()] != NONE

    def bench(self, bench: Bench) -> Bench:
        """The halves of the inputs of which something is said."""
        return bench.among(self.of_elements if self.partly else None)

    def features(self, variables: tuple[str, ...], tables: Sequence[Tensor]) -> Products:
        """The products of functions of these variables, a group for each table (element, column) of
        them; beside another, `DIFFERENCE` has the constant and |cos(w/2)| of a wave of frequency w
        in place of it.
        """

        def group(table: Tensor) -> tuple[tuple[str, Tensor], ...]:
            size = ((1 + table[:, :1]) / 2).clamp(min=0).sqrt()  # |cos(θ/2)| of cos θ
            amplitude = torch.cat([torch.ones_like(size), size], 1)
            own = {name: self._of_values(name, table) for name in variables if name != DIFFERENCE}
            return tuple((one, own.get(one, amplitude if own else table)) for one in variables)

        none = torch.zeros(self.group.order, 0).double()
        return Products(tuple(map(group, tables or [none])))

    def with_difference(self, program: Program) -> Program:
        """The program with the variable `DIFFERENCE`, on which no answer depends."""
        quotients = torch.from_numpy(self.group.table[:, self.group.inverses])
        first, second = self.elements[self.x], self.elements[self.y]

        def compute(tokens: Tensor, x: Tensor, y: Tensor) -> Tensor:
            return quotients[first[x.cpu()], second[y.cpu()]].to(x.device)

        words = f"{self.x} - {self.y}"
        step = Step(DIFFERENCE, self.group.order, compute, (self.x, self.y), words)
        return dataclasses.replace(program, steps=(*program.steps, step))

    def inputs(self, names: Sequence[str]) -> tuple[Part, Part]:
        """Parts for the operands, where they enter the residual stream."""
        first, second = (
            self._part(variable, site, (variable,), names)
            for variable, site in zip((self.x, self.y), self.first, strict=True)
        )
        return first, second

    def product(self, names: Sequence[str]) -> Part:
        """The part for the answer at the last site."""
        return self._part("answer", self.last, (self.answer,), names, reads=True)

    def pizza(self, names: Sequence[str]) -> Part:
        """The same where every wave of the sum, of frequency w, has a constant amplitude and one
        that grows with |cos(w(x - y)/2)|: what neurons make of cos wx + cos wy, which is
        2 cos(w(x - y)/2) cos(w(x + y)/2).
        """
        return self._part("answer", self.last, (self.answer, DIFFERENCE), names, reads=True)

    def difference(self, names: Sequence[str]) -> Part:
        """As much of another product, of the first operand with the inverse of the second: a null
        for explanations that name all representations.
        """
        return self._part("answer", self.last, (DIFFERENCE,), names, reads=True)

    def products(self, names: Sequence[str]) -> Part:
        """The part for products of the entries of ρ(x) with those of ρ(y), for the same ρ, at the
        last site.
        """
        return self._part("products", self.last, (self.x, self.y), names, reads=True)

    def _part(
        self,
        name: str,
        site: Site,
        variables: tuple[str, ...],
        names: Sequence[str],
        reads: bool = False,
    ) -> Part:
        """A part with a block for each representation, of which its features have a group each."""
        features = self.features(variables, [self.entries(one) for one in names])
        blocks, start = dict[str, slice](), 0
        for block, group in zip(names, features.groups, strict=False):
            width = math.prod(table.shape[1] for _, table in group)
            blocks[block], start = slice(start, start + width), start + width
        return Part(name, site, variables, features, blocks, reads)


def elements_of(
    subject: Subject, program: Program, operands: tuple[Step, Step], answer: str
) -> tuple[dict[str, Int[Tensor, " value"]], bool] | None:
    """Variable → the element of each of its values, and True where an operand is inverted; None
    where the answer is no such product.

    Of an operand the element is that of its token, or of the token of its number where its tokens
    are not those of the symmetry; of the answer, that of the product.
    """
    assert subject.task is not None and subject.task.symmetry is not None
    symmetry, tokens = subject.task.symmetry, subject.data.tokens.cpu()
    values = {name: one.cpu() for name, one in program.run(subject.data.tokens).items()}
    group, last = symmetry.group, max(*symmetry.tokens, int(tokens.max()))
    of_token = torch.full((last + 1,), NONE)
    of_token[torch.tensor(symmetry.tokens)] = torch.arange(group.order)
    found = dict[str, Tensor]()
    for step in operands:
        own = of_token[tokens[:, step.positions[0]]]
        if bool((own == NONE).all()) and int(values[step.name].max()) <= last:
            own = of_token[values[step.name]]
        found[step.name] = own
    table, inverses = (torch.from_numpy(one.copy()) for one in (group.table, group.inverses))
    for inverted in (None, *reversed(operands)):
        own = dict(found)
        if inverted is not None:
            held = own[inverted.name]
            own[inverted.name] = torch.where(held == NONE, NONE, inverses[held])
        x, y = own.values()
        own[answer] = torch.where((x == NONE) | (y == NONE), NONE, table[x, y])
        sizes = {name: program.variables[name].n_values for name in own}
        maps = {name: mapped(values[name], own[name], sizes[name]) for name in own}
        made = {name: one for name, one in maps.items() if one is not None}
        if len(made) == len(maps):
            return made, inverted is not None
    return None


def mapped(
    values: Int[Tensor, " n"], elements: Int[Tensor, " n"], size: int
) -> Int[Tensor, " value"] | None:
    """Value → its element, `NONE` for values that do not occur; None where a value has two, or two
    values have one.
    """
    found = torch.full((size,), NONE)
    found[values] = elements
    own = found[found != NONE]
    return found if torch.equal(found[values], elements) and len(own.unique()) == len(own) else None


def spectrum(bench: Bench, setting: Setting) -> Spectrum:
    """Cosines of the logits with the characters of the group, on the fitting half."""
    bench, own = setting.bench(bench), setting.elements[setting.answer]
    answers = own[bench.values(bench.fitted)[setting.answer].cpu()]
    n = setting.group.order
    logits = bench.centered_logits[bench.fitted][:, own.argsort()[-n:]]
    logits = logits - logits.mean(1, keepdim=True)
    logits = logits - logits.mean(0)
    sums = torch.zeros(n, n).double().index_add_(0, answers, logits).numpy()
    summed = LogitSums(sums, len(answers), float(logits.square().sum()))
    return cosine_spectrum(Harmonics(setting.group), summed, KeyRule(), bench.seed)


def comparable(cosines: Sequence[float]) -> bool:
    """Return whether no frequency stands out and none is missing: the least has a quarter of the
    largest.
    """
    return min(cosines, default=0.0) >= max(cosines, default=0.0) / 4 > 0


class _Group(Family):
    """The base of these families: keys, completion by the largest unexplained effect."""

    words: ClassVar[str]
    """The name of its explanations, of the operation; then comes that of the keys."""
    noun: ClassVar[str] = "representation"
    """A key in words."""
    cyclic: ClassVar[bool] = False
    """True of a family of cyclic groups, which the others do not serve."""
    last: ClassVar[Callable[[Setting, Sequence[str]], Part]]
    fuller: ClassVar[Callable[[Setting, Sequence[str]], Part] | None] = None
    """The part of the last site that completing tries first."""

    def propose(self, bench: Bench) -> Iterator[Explanation]:
        setting = Setting.of(bench.subject)
        assert setting is not None
        if keys := [str(key) for key in spectrum(bench, setting).keys]:
            yield self.make(bench, setting, keys, keys)

    def make(
        self,
        bench: Bench,
        setting: Setting,
        keys: Sequence[str],
        inputs: Sequence[str],
        last: Callable[[Setting, Sequence[str]], Part] | None = None,
    ) -> Explanation:
        """The explanation by `keys` at the last site and `inputs` at the operands; last: the part
        of the last site, that of the family when None.
        """
        last = last or type(self).last
        others = [name for name in setting.names() if name not in {*keys, *inputs}]
        size = {name: setting.entries(name).shape[1] for name in setting.names()}
        subject, program, end = bench.subject, bench.program, last(setting, keys)
        if DIFFERENCE in end.variables or not others:
            program = setting.with_difference(program)

        def spare(sample: int) -> Explanation | None:
            if not others:
                return Explanation("spare", program, (setting.difference(keys),))
            wanted = sum(size[name] for name in inputs)
            chosen: list[str] = []
            start = sample * len(inputs) % max(len(others), 1)
            for name in others[start:] + others[:start]:
                if sum(size[one] for one in chosen) < wanted:
                    chosen.append(name)
            parts = (*setting.inputs(chosen), last(setting, chosen))
            return Explanation("spare", program, parts)

        def spare_blocks(part: Part, name: str) -> list[Features]:
            if not others and not part.reads:
                return []
            variables = part.variables if others else (DIFFERENCE,)
            tables = [setting.entries(other).split(size[name], 1) for other in others or keys]
            pieces = [one for each in itertools.zip_longest(*tables) for one in each]
            alike = [one for one in pieces if one is not None and one.shape[1] == size[name]]
            return [setting.features(variables, [one]) for one in alike[:MAX_SPARE]]

        parts = (*setting.inputs(inputs), end)
        heads = tuple(range(subject.model_description.n_heads or 1))
        routes = [
            Route("attention is the same for every input", layer, heads)
            for layer in range(subject.n_layers)
            if f"blocks.{layer}.attn.hook_pattern" in subject.hooks
        ]
        added = [name for name in inputs if name not in keys]
        without = [name for name in keys if name not in inputs]
        more = f", inputs also {named(added)}" if added else ""
        more += f", inputs without {named(without)}" if without else ""
        more += f", {AMPLITUDE}" if DIFFERENCE in end.variables else ""
        nouns = plural(self.noun, 2)
        every = len(keys) == len(setting.names())
        these = f"all {len(keys)} {nouns}" if every else f"{nouns} {named(keys)}"
        words = self.words.format(setting.words)
        more += ", of operands that are not 0" if setting.partly else ""
        return Explanation(
            f"{words} {these}{more}",
            program,
            parts,
            tuple(routes),
            self.name,
            spare,
            spare_blocks,
            short=f"{words} {in_words(len(keys), self.noun)}",
            among=setting.of_elements if setting.partly else None,
        )

    def applies(self, subject: Subject) -> bool:
        setting = Setting.of(subject)
        return setting is not None and setting.group.is_cyclic == type(self).cyclic

    def complete(self, bench: Bench, found: Audit) -> tuple[Explanation | None, tuple[str, ...]]:
        setting = Setting.of(bench.subject)
        assert setting is not None
        if not found.explanation.parts:
            return None, ()
        end, inputs = found.explanation.parts[-1], list(found.explanation.parts[0].blocks)
        keys, last, fuller = list(end.blocks), self._ending(end), type(self).fuller
        bench = setting.bench(bench)
        inner = bench.inner().under(setting.with_difference(bench.program))
        if fuller is not None and last is not fuller:
            gained = refilled(inner, fuller(setting, keys)) - refilled(inner, last(setting, keys))
            if gained >= GAIN * len(keys) or len(keys) == len(setting.names()):
                # as much as so many more keys, or there are none more
                return self.make(bench, setting, keys, inputs, fuller), (AMPLITUDE,)
        held = entering(bench, found.explanation)
        more = missing_keys(inner, setting, keys, last)
        added = largest_effects(bench, setting, held)
        made = self.make(bench, setting, [*keys, *more], [*held, *added], last)
        kept = entering(bench, made)
        if not more and {*kept} == {*inputs}:
            return None, ()
        missing = (*more, *(name for name in kept if name not in inputs))
        made = self.make(bench, setting, [*keys, *more], kept, last)
        return made, tuple(dict.fromkeys(missing))

    def without(self, bench: Bench, found: Explanation, blocks: Sequence[str]) -> list[Explanation]:
        setting, (first, *_, end) = Setting.of(bench.subject), found.parts
        assert setting is not None
        keys, inputs = (
            [name for name in part.blocks if name not in blocks] for part in (end, first)
        )
        last = self._ending(end)
        kept = (inputs, list(first.blocks)) if keys else ()
        return [self.make(bench, setting, keys, names, last) for names in kept]

    def _ending(self, end: Part) -> Callable[[Setting, Sequence[str]], Part]:
        """The function that made a part of the last site."""
        fuller = type(self).fuller
        return fuller if fuller and DIFFERENCE in end.variables else type(self).last


def entering(bench: Bench, explanation: Explanation) -> list[str]:
    """Representations of the inputs, without those of which the answer's do not follow: exchanging
    them in the inputs changes the logits, on the fitting half alone, in a way that is predicted
    worse than by no change. These may be made of others, as a second harmonic is.
    """
    inner = bench.inner().under(explanation.program)
    *first, last = (inner.fit(part) for part in explanation.parts)
    return [
        name
        for name in explanation.parts[0].blocks
        if name not in last.part.blocks or partial(inner, last, first, name).value > 0
    ]


def refilled(bench: Bench, part: Part) -> float:
    """Accuracy when a part comes from the program and the rest of its site from other inputs."""
    n = len(bench.judged)
    base = bench.judged[torch.cat([bench.order("refilled", n, draw) for draw in range(DRAWS)])]
    to = bench.judged.repeat(DRAWS)
    edit = bench.edit(bench.fit(part), bench.values(base), bench.values(to))
    return bench.kept(bench.logits(base, [edit]), bench.targets(to)).value


def missing_keys(
    inner: Bench,
    setting: Setting,
    keys: Sequence[str],
    last: Callable[[Setting, Sequence[str]], Part],
) -> list[str]:
    """Representations that the last site lacks, by the energy of their products there: those that
    add to the accuracy of refilling it; inner: a bench of the fitting half.
    """
    rest = [name for name in setting.names() if name not in keys]
    every = inner.fit(setting.product([*keys, *rest]))
    sizes = {
        name: float(every.weights[columns].square().sum())
        for name, columns in every.part.blocks.items()
    }
    return select_gaining(
        lambda more: refilled(inner, last(setting, [*keys, *more])),
        sorted(rest, key=lambda one: -sizes[one])[:MAX_ADDED],
        inner.accuracy,
    )


def select_gaining(
    score: Callable[[Sequence[str]], float], names: Sequence[str], enough: float
) -> list[str]:
    """The names that each add `GAIN` to a score, tried in order, up to `MAX_ADDED` of them or until
    it is enough.
    """
    chosen, reached = list[str](), score(())
    for name in names:
        if reached >= enough - 1e-9 or len(chosen) >= MAX_ADDED:
            break
        more = score([*chosen, name])
        if more >= reached + GAIN:
            chosen, reached = [*chosen, name], more
    return chosen


def largest_effects(bench: Bench, setting: Setting, inputs: Sequence[str]) -> list[str]:
    """Representations that the inputs lack, the largest unexplained effect first: those that add to
    the joint interchange of the operands, on the fitting half alone.
    """
    inner = bench.inner()
    base, own = inner.judged, inner.values(inner.judged)
    source = inner.values(base[inner.order("largest effects", len(base))])
    given = {name: source[name] for name in (setting.x, setting.y)}
    new = inner.values(base, given)
    labels = inner.labels(new)

    def moved(names: Sequence[str], only: str | None = None) -> Tensor:
        edits = []
        for part in setting.inputs(names):
            columns = None if only is None else part.blocks[only]
            edits.append(inner.edit(inner.fit(part), own, new, columns))
        return inner.logits(base, edits)

    rest = [name for name in setting.names() if name not in inputs]
    sizes = {
        name: float((moved([*inputs, name], name) - inner.logits(base)).square().mean())
        for name in rest
    }
    return select_gaining(
        lambda more: inner.kept(moved([*inputs, *more]), labels).value,
        sorted(rest, key=lambda one: -sizes[one])[: 2 * MAX_ADDED],
        inner.accuracy,
    )


class Frequencies(_Group):
    """Does the model add by a few Fourier frequencies of the operands, or by all?

    Of products and quotients modulo a prime the frequencies are those of the discrete logarithms.
    """

    name: ClassVar[str] = "frequencies"
    mechanisms: ClassVar[tuple[str, ...]] = ("clock-pizza", "fourier")
    words: ClassVar[str] = "{} by"
    noun: ClassVar[str] = "frequency"
    cyclic: ClassVar[bool] = True
    last = Setting.product
    fuller = Setting.pizza

    def propose(self, bench: Bench) -> Iterator[Explanation]:
        yield from (found := list(super().propose(bench)))
        setting = Setting.of(bench.subject)
        assert setting is not None
        if not found and comparable(spectrum(bench, setting).values.tolist()):
            every = setting.names()
            whole = self.make(bench, setting, every, every)
            if entering(setting.bench(bench), whole) == every:  # not those of a lookup table
                yield whole


class GroupProducts(_Group):
    """Do the logits read irreducible representations of the product, or bilinear products?"""

    name: ClassVar[str] = "representations"
    mechanisms: ClassVar[tuple[str, ...]] = ("irreps",)
    words: ClassVar[str] = "product of"
    last = Setting.product


class Bilinear(GroupProducts):
    """Are the logits bilinear in the same irreducible representations of both operands?"""

    name: ClassVar[str] = "bilinear"
    words: ClassVar[str] = "bilinear in"
    last = Setting.products
