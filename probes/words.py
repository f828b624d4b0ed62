"""Numbers, lists and positions in words."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from mechint.errors import NUMBERS, counted, plural
from mechint.subject import Subject

MAX_LISTED = 8
"""At most so many names are spelled out."""


def in_words(n: int, noun: str) -> str:
    """A number and its noun, spelled out up to ten.

    >>> in_words(6, "frequency"), in_words(1, "frequency"), in_words(14, "circle")
    ('six frequencies', 'one frequency', '14 circles')
    """
    return f"{NUMBERS[n]} {plural(noun, n)}" if n < len(NUMBERS) else counted(n, noun)


def named(items: Sequence[object], limit: int = MAX_LISTED) -> str:
    """The items with commas; of more than `limit` the first ones, and how many there are more.

    >>> named([3, 15, 17]), named(range(11), 8)
    ('3, 15, 17', '0, 1, 2, 3, 4, 5 and 5 others')
    """
    if len(items) <= limit:
        return ", ".join(map(str, items))
    shown = items[: limit - 2]
    return f"{', '.join(map(str, shown))} and {counted(len(items) - len(shown), 'other')}"


def portion(share: float) -> str:
    """A share in words, of which no more than all can be.

    >>> portion(0.83), portion(1.36)
    ('83%', 'all')
    """
    return f"{share:.0%}" if share < 1.005 else "all"


def mostly_wrong(answered: float, of: str = "pairs") -> str:
    """The reason for which nothing is asked of answers that are mostly wrong; "" else.

    >>> mostly_wrong(0.25), mostly_wrong(0.75)
    ('the model answers 25% of pairs drawn without selection', '')
    """
    if answered > 0.5:
        return ""
    return f"the model answers {answered:.0%} of {of} drawn without selection"


def listed(items: Iterable[object]) -> str:
    """Words with commas and "and".

    >>> listed([3, 15, 17])
    '3, 15 and 17'
    """
    words = [str(item) for item in items]
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)


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
