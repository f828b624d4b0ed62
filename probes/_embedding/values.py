"""Which tokens the embedding's geometry is about, and whether they stand in an order."""

from __future__ import annotations

import itertools

import numpy as np

from mechint.subject import Subject
from probes._fourier.spectra import cyclic_order


def value_tokens(subject: Subject, limit: int = 512) -> list[int]:
    """Tokens of the values 0 … n-1 in their order: those the task's group acts on, else those that
    the task spells as numbers, else all tokens; at most the first `limit` of these.
    """
    symmetry = subject.task.symmetry if subject.task else None
    if symmetry is not None:
        return list(symmetry.tokens)
    n = len(subject.model.W_E)
    return list(range(min(_numbers(subject) or n, n, limit)))


def in_order(subject: Subject) -> bool:
    """Whether the value tokens stand in an order that parity, residues and circles are about: that
    of a cyclic group, or of numbers. Elements of other groups are merely listed.

    >>> from mechint.planted import group_product, modular_addition
    >>> in_order(modular_addition(5, (1,)).subject)
    True
    >>> in_order(group_product("S3", ("standard",)).subject)
    False
    """
    symmetry = subject.task.symmetry if subject.task else None
    if symmetry is None:
        return _numbers(subject) > 0
    group = symmetry.group
    return group.is_cyclic and bool((cyclic_order(group) == np.arange(group.order)).all())


def _numbers(subject: Subject) -> int:
    """How many tokens, from the first on, the task spells as numbers one after another; 0 where
    these are no more than two.
    """
    texts = list(subject.task.vocabulary.tokens) if subject.task else []
    counting = itertools.takewhile(
        lambda i: texts[i].removeprefix("-").isdecimal() and int(texts[i]) == int(texts[0]) + i,
        range(len(texts)),
    )
    count = len(list(counting))
    return count if count > 2 else 0
