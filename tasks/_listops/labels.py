"""Targets of whole texts: what is predicted, and which of it is the answer."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Int, Int8
from torch import Tensor

from mechint.task import IGNORE, Batch, TargetKind
from tasks._listops.notation import Notation


@dataclass(frozen=True)
class Labels:
    """Labels texts of `notation`; `loss_on` says from where on characters are predicted: after the
    = ("answer"), after the prompt ("output"), or all.
    """

    notation: Notation
    chain_of_thought: bool
    loss_on: str

    def labeled(
        self, tokens: Int[np.ndarray, "batch n_ctx"], lengths: Int[np.ndarray, " batch"]
    ) -> Batch:
        """Whole texts of `lengths`, the target of a character the next one."""
        place = np.arange(tokens.shape[1] - 1)
        first = self.prompts(tokens, self.loss_on)[:, None].numpy() - 1
        read = (place < lengths[:, None] - 1) & (place >= first)
        targets = np.full_like(tokens, IGNORE)
        np.copyto(targets[:, :-1], tokens[:, 1:], where=read)
        wide = [
            torch.from_numpy(array.astype(np.int64))
            for array in (tokens, targets[..., None], lengths)
        ]
        kinds = torch.from_numpy(self.kinds(tokens, targets))
        return Batch(wide[0], wide[1], lengths=wide[2], kinds=kinds)

    def kinds(
        self, tokens: Int[np.ndarray, "batch n_ctx"], targets: Int[np.ndarray, "batch n_ctx"]
    ) -> Int8[np.ndarray, "batch n_ctx"]:
        """The `TargetKind` of every target: the first character of the value is the answer; its
        further characters and the chain of thought are steps; the prompt, marks and the end are
        form.
        """
        ids, end = self.notation.vocabulary.ids, self.notation.end_token
        equals = tokens == ids["="]  # the answer is read at the =
        solved = np.cumsum(tokens == ids[">"], 1) > 0  # the chain of thought has begun
        solved |= np.cumsum(equals, 1) > 0
        kinds = np.where(solved, TargetKind.STEP, TargetKind.FORM).astype(np.int8)
        kinds[np.isin(targets, (ids[">"], ids["="], end))] = TargetKind.FORM
        kinds[equals] = TargetKind.ANSWER
        kinds[targets == IGNORE] = TargetKind.NONE
        return kinds

    def prompts(
        self, tokens: Int[np.ndarray, "batch n_ctx"], until: str = "output"
    ) -> Int[Tensor, " batch"]:
        """(batch,) tokens before the answer, before the output (the first > or =), or 1 for all."""
        if until == "all":
            return torch.ones(len(tokens), dtype=torch.int64)
        mark = ">" if until == "output" and self.chain_of_thought else "="
        return torch.from_numpy((tokens == self.notation.vocabulary.ids[mark]).argmax(1) + 1)
