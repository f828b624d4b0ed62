"""Names of the positions of a sequence, for the axes of figures."""

from __future__ import annotations

from mechint.subject import Subject


def position_names(subject: Subject, rows: int = 512) -> list[str]:
    """One name per position: the token that stands there in every example, else the causal variable
    that it alone determines, else its number.

    >>> from mechint.planted import modular_addition
    >>> position_names(modular_addition(11, (3,)).subject)
    ['x', 'y', '=']
    """
    tokens, task = subject.data.tokens[:rows], subject.task
    alone = {}
    if task is not None:
        alone = {v.positions[0]: v.name for v in task.variables.values() if len(v.positions) == 1}
    fixed = {
        i
        for i in range(tokens.shape[1])
        if len(tokens) and bool((tokens[:, i] == tokens[0, i]).all())
    }
    if fixed | set(alone) != set(range(tokens.shape[1])):
        alone = {}  # names for some positions alone would not be read beside numbers
    names = []
    for place in range(tokens.shape[1]):
        if place in fixed:
            names.append(token_texts(subject, tokens[:1, place].tolist())[0])
        else:
            names.append(alone.get(place, str(place)))
    repeated = {name for name in names if names.count(name) > 1}
    return [f"{name} ({i})" if name in repeated else name for i, name in enumerate(names)]


def token_texts(subject: Subject, tokens: list[int]) -> list[str]:
    """The text of every token; its number where there is no vocabulary."""
    vocabulary = subject.task.vocabulary.tokens if subject.task else ()
    return [vocabulary[token] if token < len(vocabulary) else str(token) for token in tokens]
