"""The cost of the synthetic language behind an instance that has overwritten a text's first words.

The text goes on from a state that no reader has seen. The best one knows where it was cut, begins
with the automaton's occupancy there and goes on by Bayes: the forward recursion of hidden Markov
models (Rabiner 1989, Sec. III.A).

Cost: tokens × different tokens of a position, sparse products with (text, state) each.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float, Int
from scipy.sparse import csr_matrix

from tasks._corpus.language import Automaton


def losses_behind(
    automaton: Automaton, tokens: Int[np.ndarray, "n length"], first: Int[np.ndarray, " n"]
) -> Float[np.ndarray, "n length"]:
    """-log P(token | the tokens from `first` on) in nats, (n, length); 0 before it.

    Args:
        tokens: texts from a document's start.
        first: of each text, the position of the first token that is seen, 1 or later.

    >>> from tasks._corpus.language import build
    >>> machine, _ = build(40, 0.1, 0)
    >>> tokens, _ = machine.draw(2, 6, np.random.default_rng(0))
    >>> losses_behind(machine, tokens, np.array([4, 5])).astype(bool).tolist()
    [[False, False, False, False, True, True], [False, False, False, False, False, True]]
    """
    size = len(automaton.kinds)
    begin = automaton.occupancy(tokens.shape[1])
    beliefs, losses = np.zeros((len(tokens), size)), np.zeros(tokens.shape)
    for position in range(int(first.min()), tokens.shape[1]):
        beliefs[first == position] = begin[position]
        for token in np.unique(tokens[first <= position, position]):
            rows = np.flatnonzero((first <= position) & (tokens[:, position] == token))
            edges = automaton.token == token
            ends = automaton.source[edges], automaton.target[edges]
            step = csr_matrix((automaton.probability[edges], ends), (size, size))
            joint = beliefs[rows] @ step  # P(token, next state | seen)
            chance = joint.sum(1)
            losses[rows, position] = -np.log(chance)
            beliefs[rows] = joint / chance[:, None]
    return losses
