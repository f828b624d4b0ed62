"""Prompts as a task, from a file or a list."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import torch
from jaxtyping import Int
from torch import Tensor

from mechint.config import setting
from mechint.errors import DataError, counted
from mechint.models.foreign.local import has_tokenizer, load_tokenizer, opening_of
from mechint.models.foreign.untouched import evaluating
from mechint.prompts.reading import Answer, Example, PromptReader, rows_text, token_names
from mechint.subject.pairs import Pairs
from mechint.system.files import read_json
from mechint.task import (
    ANY,
    IGNORE,
    Batch,
    Chance,
    Counterfactuals,
    FiniteTask,
    Output,
    Program,
    Symmetry,
    Variable,
    Vocabulary,
)

CHUNK = 1024
"""Prompts per forward when the model's own answers are taken."""


@dataclass(frozen=True)
class Prompts(FiniteTask):
    """Prompts from a file or a list, for a language model that was not trained on a task of ours.

    Chance is the best constant answer over the prompts. An answer of a pair is right where its
    logit is above that of the other prompt's answer, whatever other tokens are given, and chance is
    one half (Wang et al. 2022). Of a few prompts numbers and figures are shown, and findings about
    answers are unclear.
    """

    name: ClassVar[str] = "prompts"
    source: ClassVar[str] = "prompts of the user's"
    without_variables: ClassVar[str] = (
        'no prompt has a pair; give "prompt", "answer" and "counterfactual" in a .jsonl file'
    )
    when_wrong: ClassVar[str] = "give prompts that the model answers correctly"
    is_sample: ClassVar[bool] = True

    path: str = setting("prompts.txt", "file: .txt, a text per line; .jsonl, an object per line")
    tokenizer: str | None = setting(
        None, "directory of the tokenizer; none where the file holds token ids"
    )
    vocab_size: int | None = setting(
        None, "tokens of the model; what the tokenizer's directory states when none", low=1
    )

    @property
    def title(self) -> str:
        """Name of the file: "Prompts of pairs.jsonl", and where they have no answers."""
        return f"Prompts of {Path(self.path).name}" + ", first choices" * self.own_choices

    @property
    def own_choices(self) -> bool:
        return any(one.open for one in self.prompts)

    text: str | None = setting(
        None, "the prompts as JSON lines, in place of a file", longest=1 << 26
    )
    prepend_bos: bool | None = setting(
        None, "BOS before every text; as the tokenizer's own encode does when none"
    )

    n_classes: int | None = setting(
        None, "classes that the model answers with; its tokens when none", low=1
    )

    @classmethod
    def of(
        cls,
        data: str | Path | Sequence[Any],
        tokenizer: Path | Any,
        d_vocab: int,
        n_ctx: int | None,
        **settings: Any,
    ) -> Prompts:
        """Prompts for a model of `d_vocab` tokens that reads `n_ctx` positions.

        Args:
            data: a file, or a list of texts, lists of token ids or mappings.
            tokenizer: its directory, which may hold none; or the tokenizer itself.
            settings: fields of the task, such as `prepend_bos`.

        Raises:
            DataError: a prompt is longer than what the model reads, or cannot be used.
            CheckpointError: the tokenizer cannot be read.
            UnknownNameError: no such setting.
        """
        given: dict[str, Any] = {"vocab_size": d_vocab, **settings}
        given |= {"path": str(data)} if isinstance(data, str | Path) else {"text": rows_text(data)}
        if isinstance(tokenizer, Path) and has_tokenizer(tokenizer):
            given["tokenizer"] = str(tokenizer)
        made = cls.from_dict(given)
        if not isinstance(tokenizer, Path):
            vars(made)["encoder"] = tokenizer  # in place of one from a directory
        made.check_lengths(n_ctx)
        return made

    def check_lengths(self, n_ctx: int | None) -> None:
        """DataError where a prompt is longer than the `n_ctx` positions that a model reads."""
        for one in self.prompts:
            length = len(one.tokens) + self._later
            if n_ctx is not None and length > n_ctx:
                raise DataError(
                    f"{self.place(one)}: {counted(length, 'token')}; the model "
                    f"reads at most {n_ctx}"
                )

    def place(self, one: Example) -> str:
        """The line of the file or the item of the list that `one` comes from."""
        return self._reader.place(one.line)

    @property
    def special_ids(self) -> frozenset[int]:
        """Tokens that no text holds but at its ends: padding, beginning, end."""
        return frozenset(getattr(self.encoder, "all_special_ids", None) or ())

    @property
    def has_tokenizer(self) -> bool:
        """True where texts can be given."""
        return self.encoder is not None

    @property
    def begins_with_bos(self) -> bool:
        """True where every text begins with BOS."""
        return bool(opening_of(self.encoder, self.prepend_bos))

    def unspaced(self) -> Batch | None:
        """The prompts whose answer lacks a space and with one is a token too, if any."""
        rows = [index for index, one in enumerate(self.prompts) if one.spaced is not None]
        return self.examples()[rows] if rows else None

    # --- the file ---------------------------------------------------------------------------------
    @cached_property
    def encoder(self) -> Any:
        """The tokenizer itself; None where token ids are given."""
        return None if self.tokenizer is None else load_tokenizer(Path(self.tokenizer))

    @cached_property
    def _reader(self) -> PromptReader:
        known = Path(self.path), self.encoder, self.d_vocab
        return PromptReader(
            *known, text=self.text, prepend_bos=self.prepend_bos, d_vocab_out=self.n_classes
        )

    @cached_property
    def prompts(self) -> list[Example]:
        """Every different prompt, in its order."""
        return self._reader.read().examples

    @property
    def pairs(self) -> list[tuple[int, int]]:
        """(base, counterfactual) as indices of `prompts`, every pair both ways."""
        return list(self._reader.pairs) if self.prompts else []

    @property
    def is_text(self) -> bool:
        """True where the prompts are texts, whose own tokens are the answers."""
        return self.prompts[0].answer is None and not self.prompts[0].open

    def take_answers(self, network: Any) -> None:
        """Let the model's own answer stand where a prompt has none.

        Raises:
            DataError: two prompts are one input and ask at different positions.
        """
        if not self.own_choices:
            return
        tokens, found = self.inputs(), []
        places = [len(one.tokens) - 1 if one.at is None else one.at for one in self.prompts]
        at = torch.tensor(places)
        with torch.no_grad(), evaluating(network):
            device = next(network.parameters()).device
            for start in range(0, len(tokens), CHUNK):
                rows = slice(start, start + CHUNK)
                logits = network(tokens[rows].to(device)).cpu()
                found.append(logits[torch.arange(len(logits)), at[rows]].argmax(-1))
        said = torch.cat(found).tolist()
        vars(self)["prompts"] = [
            dataclasses.replace(one, answer=answer) if one.open else one
            for one, answer in zip(self.prompts, said, strict=True)
        ]

    def told(self, program: Program, symmetry: Symmetry) -> Prompts:
        """The same prompts with a program that was found to give their answers, and its group."""
        made = copy.copy(self)
        vars(made).update(programs={program.name: program}, symmetry=symmetry)
        return made

    @cached_property
    def programs(self) -> Mapping[str, Program]:
        return {}

    @cached_property
    def symmetry(self) -> Symmetry | None:
        return None

    # --- what every task says ---------------------------------------------------------------------
    @cached_property
    def vocabulary(self) -> Vocabulary:
        words = [] if self.encoder is None else token_names(self.encoder)
        known = self.vocab_size
        if known is None and self.tokenizer is not None:
            given = read_json(Path(self.tokenizer) / "config.json", DataError)
            stated = given.get("vocab_size") if isinstance(given, Mapping) else None
            known = stated if isinstance(stated, int) else len(words)
        if known is None:
            raise DataError(
                f"{self.path}: neither tokenizer nor vocab_size is given; name the tokenizer's "
                "directory, or give token ids and vocab_size"
            )
        words = words[:known]
        names = (*words, *map(str, range(len(words), known)))
        return Vocabulary(names, separator="" if words else " ")

    @cached_property
    def n_ctx(self) -> int:
        return max(len(one.tokens) for one in self.prompts) + self._later

    @cached_property
    def outputs(self) -> tuple[Output, ...]:
        names = self.vocabulary.tokens
        if self.n_classes is not None and self.n_classes != self.d_vocab:
            names = tuple(map(str, range(self.n_classes)))
        several = [" or ".join(map(self.vocabulary.decode, one)) for one in self._several]
        return (Output("next token", len(names), names=(*names, *several)),)

    @cached_property
    def chance(self) -> Mapping[str, Chance]:
        return {"next token": Chance.of(self.examples().answers.targets.flatten())}

    @property
    def n_answers(self) -> int:
        return self.n_ctx - 1 if self.is_text else 1

    @property
    def grid(self) -> tuple[int, ...]:
        return (len(self.prompts),)

    @property
    def fractions(self) -> tuple[float, float]:
        return 1.0, 0.0

    def inputs(self) -> Int[Tensor, "n pos"]:
        rows = [one.tokens for one in self.prompts]
        ends = {row[-1] for row in rows}
        # filled rows tell which prompt they are: surely where no prompt ends in the filler
        for filler in sorted(range(self.d_vocab), key=ends.__contains__):
            filled = [(*row, *[filler] * (self.n_ctx - len(row))) for row in rows]
            if len(set(filled)) == len(rows):
                return torch.tensor(filled)
        raise DataError(
            f"{self.path}: whichever of the model's {counted(self.d_vocab, 'token')} fills the "
            "shorter prompts, two become the same; give prompts of one length"
        )

    def batch_of(self, tokens: Int[Tensor, "batch pos"]) -> Batch:
        index = self.index_of(tokens)
        lengths = self._lengths[index].to(tokens.device)
        return Batch(tokens, self.label_inputs(tokens), lengths=lengths)

    def label_inputs(self, tokens: Int[Tensor, "batch pos"]) -> Int[Tensor, "batch pos output"]:
        return self._targets[self.index_of(tokens)].to(tokens.device)

    def brute_force(self, tokens: Sequence[int]) -> list[list[int]]:
        (index,) = self.index_of(torch.tensor([list(tokens)])).tolist()
        one = self.prompts[index]
        if self.is_text:
            said = [*one.tokens[1:], IGNORE]
        else:
            said = [IGNORE] * len(one.tokens)
            said[-1 if one.at is None else one.at] = one.answer
        return [[token] for token in said + [IGNORE] * (len(tokens) - len(said))]

    def tokens_of(self, text: str) -> list[int]:
        return self._reader.encode(text, "text")

    # --- pairs ------------------------------------------------------------------------------------
    @property
    def variables(self) -> Mapping[str, Variable]:
        """The prompt as a whole, where the file states counterfactuals; and what the prompts say
        of themselves, where each of them does.
        """
        if not self.pairs:
            return self._named_variables()
        partners, table = self._partners, self.inputs()

        def change(tokens: Tensor, values: Tensor) -> Tensor:
            rows = []
            for index, value in zip(self.index_of(tokens).tolist(), values.tolist(), strict=True):
                choices = partners[index] or [index]
                rows.append(choices[value % len(choices)])
            return table[rows].to(tokens.device)

        return {
            "prompt": Variable(
                "prompt",
                len(self.prompts),
                "which prompt of the file it is; changed to a counterfactual of it",
                self.index_of,
                self._label,
                change=change,
                is_example=True,
            ),
            **self._named_variables(),
        }

    def _named_variables(self) -> dict[str, Variable]:
        """The variables that every prompt has a value of; changed to a counterfactual that has the
        value, whose answer is then the label.
        """
        known = [dict(one.variables) for one in self.prompts]
        names = [name for name in known[0] if all(name in values for values in known)]
        return {name: self._named(name, [one[name] for one in known]) for name in names}

    def _named(self, name: str, said: Sequence[str]) -> Variable:
        partners = self._partners
        words = sorted(set(said))
        values = torch.tensor([words.index(one) for one in said])
        table = self.inputs()

        def with_value(index: int, value: int) -> int | None:
            """The prompt itself or the first counterfactual of it that has the value."""
            return next((i for i in (index, *partners[index]) if int(values[i]) == value), None)

        def found(tokens: Tensor, wanted: Tensor) -> list[int | None]:
            rows = zip(self.index_of(tokens).tolist(), wanted.tolist(), strict=True)
            return [with_value(index, value) for index, value in rows]

        def change(tokens: Tensor, wanted: Tensor) -> Tensor:
            own = self.index_of(tokens).tolist()
            rows = [i if j is None else j for i, j in zip(own, found(tokens, wanted), strict=True)]
            return table[rows].to(tokens.device)

        def label(tokens: Tensor, wanted: Tensor) -> Tensor:
            rows = found(tokens, wanted)
            said = [IGNORE if row is None else self.prompts[row].answer or 0 for row in rows]
            own, answers = self.label_inputs(tokens), torch.tensor(said, device=tokens.device)
            return answers[:, None, None].expand_as(own).where(own != IGNORE, IGNORE)

        return Variable(
            name,
            len(words),
            f"what the prompts say of themselves: {', '.join(words[:8])}",
            lambda tokens: values[self.index_of(tokens).cpu()].to(tokens.device),
            label,
            change=change if self.pairs else None,
        )

    def stated_pairs(self, variable: Variable) -> Counterfactuals | None:
        """The pairs of the file, both ways."""
        if not self.pairs:
            raise DataError(
                f"no prompt has a counterfactual, in which {variable.name!r} has another value"
            )
        base, source = (list(side) for side in zip(*self.pairs, strict=True))
        every = self.examples()
        values = variable.value_of(every.tokens[source])
        labels = variable.label(every.tokens[base], values)
        return Counterfactuals(variable, every[base], every[source], labels, values)

    def _label(self, tokens: Tensor, values: Tensor) -> Tensor:
        """The answer of prompt number `values`, where that of `tokens` is read."""
        answers = torch.tensor([one.answer or 0 for one in self.prompts], device=tokens.device)
        own = self.label_inputs(tokens)
        return answers[values][:, None, None].expand_as(own).where(own != IGNORE, IGNORE)

    # --- several right answers, and answers of several tokens -------------------------------------
    @cached_property
    def _answers(self) -> Sequence[Answer]:
        """Of each class its tokens, one or several right ones; then those of the file; and of ANY
        and IGNORE, which count from the end, none.
        """
        alone = [((one,),) for one in range(self.outputs[0].n_classes)]
        return [*alone, *self._several, ((),), ((),)]

    @property
    def several(self) -> int:
        return min(1, len(self._several)) + bool(self._later)

    @property
    def _several(self) -> Sequence[Answer]:
        return [*self._reader.answers] if self.prompts else []

    @property
    def _later(self) -> int:
        """Tokens of the longest answer behind its first."""
        return max((len(one[0]) - 1 for one in self._several), default=0)

    @cached_property
    def _firsts(self) -> Int[Tensor, "answer m"]:
        return _filled([[token for text in one for token in text[:1]] for one in self._answers])

    def alternatives(self, classes: Int[Tensor, "*shape"]) -> Int[Tensor, "*shape m"]:
        return self._firsts.to(classes.device)[classes]

    def spelled(self, pairs: Pairs) -> tuple[Pairs, Int[Tensor, " part"]]:
        whole, index = super().spelled(pairs)
        parts, indices = [whole], [index]
        for k in range(1, self._later + 1):
            for name, other in (("answers", "labels"), ("labels", "answers")):
                texts = [self._answers[one][0] for one in getattr(pairs, name)[:, 0].tolist()]
                some = [row for row, text in enumerate(texts) if len(text) > k]
                said = torch.tensor([texts[row][: k + 1] for row in some]).view(-1, k + 1).to(index)
                part, places = (
                    pairs[some],
                    pairs.reads[some, None] + torch.arange(1, k + 1).to(index),
                )
                base, source = (
                    one.scatter(1, places, said[:, :k]) for one in (part.base, part.source)
                )
                classes = {name: said[:, k:], other: torch.full_like(said[:, k:], ANY)}
                reads, source_reads = part.reads + k, part.source_reads + k
                part = dataclasses.replace(part, base=base, source=source, reads=reads, **classes)
                parts.append(dataclasses.replace(part, source_reads=source_reads))
                indices.append(index[some])
        return Pairs.cat(parts), torch.cat(indices)

    def wrong_answers(
        self, tokens: Int[Tensor, "batch pos"]
    ) -> Int[Tensor, "batch alternative"] | None:
        """The answers of each prompt's counterfactuals; None where the file states no pairs, or
        none of the tokens are prompts of it.
        """
        if not self.pairs:
            return None
        others = [[self.prompts[i].answer or 0 for i in row] for row in self._partners]
        found = [self._places.get(tuple(row)) for row in tokens.tolist()]
        if not any(index is not None and others[index] for index in found):
            return None
        rows = [[] if index is None else others[index] for index in found]
        return _filled(rows).to(tokens.device)

    # --- looked up --------------------------------------------------------------------------------
    @cached_property
    def _partners(self) -> list[list[int]]:
        """Indices of the counterfactuals of each prompt."""
        partners: list[list[int]] = [[] for _ in self.prompts]
        for base, other in self.pairs:
            partners[base].append(other)
        return partners

    @cached_property
    def _places(self) -> dict[tuple[int, ...], int]:
        return {tuple(row): index for index, row in enumerate(self.inputs().tolist())}

    @cached_property
    def _lengths(self) -> Int[Tensor, " n"]:
        return torch.tensor([len(one.tokens) for one in self.prompts])

    @cached_property
    def _targets(self) -> Int[Tensor, "n pos output"]:
        return torch.tensor([self.brute_force(row) for row in self.inputs().tolist()])

    def index_of(self, tokens: Int[Tensor, "batch pos"]) -> Int[Tensor, " batch"]:
        """(batch,) which prompt of the file each row is; DataError for one that is not in it."""
        try:
            found = [self._places[tuple(row)] for row in tokens.tolist()]
        except KeyError as error:
            raise DataError(f"{self.path}: tokens {error} are not a prompt of the file") from error
        return torch.tensor(found, dtype=torch.int64, device=tokens.device)


def _filled(rows: Sequence[Sequence[int]]) -> Int[Tensor, "row n"]:
    """The rows, filled up with IGNORE."""
    most = max(map(len, rows))
    return torch.tensor([[*row, *[IGNORE] * (most - len(row))] for row in rows])
