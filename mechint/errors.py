"""Exceptions for input that cannot be served.

    MechintError                a ValueError: one line: what, where, got, expected, what next
    ├── UnknownNameError        no task, probe, study or hook of that name ("did you mean")
    ├── ParameterError          a parameter of the wrong type or range
    ├── DataError               a corpus, table or counterfactual set that cannot be used
    ├── CheckpointError         a file that is missing, truncated, foreign or would need to run code
    ├── NotApplicableError      a probe that cannot ask its question of this subject
    ├── RunError                a run directory or an output path that cannot be used
    └── TrainingError           training that cannot go on
        └── NonFiniteError      a loss that is not finite, with the step and the parameter's name

Everything else that escapes is a bug of ours; invariants are ``assert``.
"""

from __future__ import annotations

import difflib
import math
import unicodedata
from collections.abc import Iterable

MAX_MESSAGE = 500
"""Characters of a message; what is longer loses its middle."""

NUMBERS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")
"""Numbers up to ten in words."""


SYNONYMS = {
    "learning_rate": "lr",
    **dict.fromkeys(("epochs", "n_epochs", "num_epochs", "iterations", "max_steps"), "steps"),
    **dict.fromkeys(("hidden", "hidden_size", "hidden_dim", "width", "dim", "n_embd"), "d_model"),
    **dict.fromkeys(("heads", "num_heads", "n_head"), "n_heads"),
    **dict.fromkeys(("layers", "num_layers", "n_layer", "depth"), "n_layers"),
    **dict.fromkeys(("random_seed", "rng_seed", "manual_seed"), "seed"),
    "wd": "weight_decay",
}
"""Words of the field that no parameter here has → the parameter that is meant."""


def percent(share: float, decimals: int = 1) -> str:
    """A share of one in percent, with so many decimals or, near 0% and 100%, as many as tell it
    from them; "" of NaN.

    >>> percent(0.873), percent(0.9995), percent(1.0), percent(0.99999999)
    ('87.3%', '99.95%', '100%', 'over 99.999%')
    >>> percent(0.9952, 0), percent(0.937, 0), percent(-4e-17, 0)
    ('99.5%', '94%', '0%')
    """
    share = round(share, 12)  # smaller is what rounding leaves of a sum
    if math.isnan(share) or share in (0, 1):
        return "" if math.isnan(share) else f"{abs(share):.0%}"
    near = min(abs(share), abs(1 - share)) < 0.01
    texts = (f"{share:.{places}%}" for places in range(max(decimals, near), 4))
    ends = "over 99.999%" if share > 0.5 else "under 0.001%"
    return next((text for text in texts if float(text[:-1]) not in (0, 100)), ends)


def counted(n: int, noun: str) -> str:
    """A number with its noun.

    >>> counted(1, "run"), counted(2000, "run")
    ('1 run', '2,000 runs')
    """
    return f"{n:,} {plural(noun, n)}"


def plural(noun: str, n: int = 2) -> str:
    """A noun for `n`; what comes after "of" or stands in parentheses stays as it is.

    >>> plural("study"), plural("preset of listops"), plural("weight (for x)"), plural("class", 1)
    ('studies', 'presets of listops', 'weights (for x)', 'class')
    """
    if n == 1:
        return noun
    head = min((noun.partition(mark)[0] for mark in (" of ", " (")), key=len)
    if head.endswith("y") and head[-2:-1] not in "aeiou":
        ending = f"{head[:-1]}ies"
    else:
        ending = f"{head}es" if head.endswith(("s", "x", "ch", "sh")) else f"{head}s"
    return ending + noun[len(head) :]


def in_words(seconds: float) -> str:
    """A duration in the unit that suits it.

    >>> in_words(30), in_words(600), in_words(7200)
    ('30 s', '10 min', '2.0 h')
    """
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def per_time(rate: float) -> str:
    """A rate, given per second, in the unit that suits it.

    >>> per_time(1234.0), per_time(0.5), per_time(0.002)
    ('1,234 per second', '30 per minute', '7.2 per hour')
    """
    units = {"second": 1, "minute": 60, "hour": 3600}
    unit = next((name for name, seconds in units.items() if rate * seconds >= 1), "hour")
    number = rate * units[unit]
    return f"{number:,.0f} per {unit}" if number >= 10 else f"{number:.2g} per {unit}"


def first_line(error: object, limit: int) -> str:
    """The first line of what an error of another library says, or its type where it says nothing.

    >>> first_line(ValueError("no such file\\nat line 3"), 200), first_line(KeyError(), 200)
    ('no such file', 'KeyError')
    """
    return next(iter(str(error).strip().splitlines()), type(error).__name__)[:limit]


def one_line(text: str, limit: int = MAX_MESSAGE) -> str:
    r"""`text` as one line of at most `limit` printable characters.

    Messages quote names from files of others: control characters, which a terminal would obey, and
    characters that change the direction of writing are spelled out.

    >>> print(one_line("\x1b[31mname"))
    \x1b[31mname
    """
    spelled = spell(" ".join(text.split()))
    if len(spelled) <= limit:
        return spelled
    tail = limit // 3
    return f"{spelled[: limit - tail - 3]} … {spelled[-tail:]}"


def spell(text: str) -> str:
    r"""`text` with the characters that nobody sees spelled out.

    >>> print(spell("name\x07"))
    name\x07
    """
    return "".join(
        ascii(character)[1:-1] if unicodedata.category(character) in _UNPRINTABLE else character
        for character in text
    )


_UNPRINTABLE = ("Cc", "Cf", "Cs", "Co", "Zl", "Zp")


class MechintError(ValueError):
    """Base of all errors that a user can mend; its message is one printable line."""

    def __init__(self, message: object = "") -> None:
        super().__init__(one_line(str(message)))


class UnknownNameError(MechintError):
    """No such name; the message suggests the nearest ones.

    >>> print(UnknownNameError.of("probe", "furier", ["fourier", "das"]))
    unknown probe 'furier'; did you mean 'fourier'? (probes: das, fourier)
    >>> print(UnknownNameError.of("parameter", "learning_rate", ["attention_rate", "lr"]))
    unknown parameter 'learning_rate'; did you mean 'lr'? (parameters: attention_rate, lr)
    """

    @classmethod
    def of(cls, kind: str, name: str, known: Iterable[str], limit: int = 24) -> UnknownNameError:
        """Build the error for `name`, which is no `kind`; `known` are the names there are."""
        names = sorted(known)
        meant = SYNONYMS.get(name.rpartition(".")[2], "")
        close = [one for one in names if one.rpartition(".")[2] == meant]
        close = close or difflib.get_close_matches(name, names, n=1, cutoff=0.5)
        hint = f"; did you mean {close[0]!r}?" if close else ""
        shown = ", ".join(names[:limit]) + (
            f", … {len(names) - limit} more" if len(names) > limit else ""
        )
        return cls(f"unknown {kind} {name!r}{hint} ({plural(kind)}: {shown or 'none'})")


class ParameterError(MechintError):
    """A parameter of the wrong type or range."""


class DataError(MechintError):
    """A corpus, a table or a set of counterfactuals that cannot be used."""


class CheckpointError(MechintError):
    """A checkpoint that is missing, truncated, foreign, hostile or incomplete."""


class NotApplicableError(MechintError):
    """A probe that cannot ask its question of this subject, and why."""


class RunError(MechintError):
    """A run directory or an output path that cannot be used."""


class TrainingError(MechintError):
    """Training that cannot go on."""


class NonFiniteError(TrainingError):
    """The loss or a parameter stopped being finite."""
