"""Names of tasks, probes, studies, checkpoint formats and what explains, resolved on use.

A distribution registers its own in entry points, mechint itself in its ``pyproject.toml``:

    [project.entry-points."mechint.tasks"]
    parity = "my_package.parity:Parity"

Listing the names imports none of the objects behind them.
"""

from __future__ import annotations

import ast
import dataclasses
import difflib
import importlib
import importlib.util
import inspect
import tomllib
import warnings
from collections.abc import Iterator
from functools import cache, cached_property
from importlib.metadata import EntryPoint, EntryPoints, distribution, entry_points
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from mechint.errors import MechintError, ParameterError, UnknownNameError
from mechint.system.packages import OWN, package_of

if TYPE_CHECKING:
    from collections.abc import Callable

    import mechint

T = TypeVar("T")
Call = TypeVar("Call", bound="Callable[..., Any]")
OTHER = "other"
"""The topic of what names none."""


def summary(docstring: str | None) -> str:
    """First paragraph of a docstring as one line.

    >>> summary("Find frequencies\\nof it.\\n\\nMore.")
    'Find frequencies of it.'
    """
    return " ".join((docstring or "").strip().partition("\n\n")[0].split())


class Registry(Generic[T]):
    """Mapping of names to objects of type T, which are imported when first asked for.

    >>> registry: Registry[type] = Registry("codec", group="example.codecs")
    >>> registry.add("json", "json:JSONDecoder")
    >>> registry.names(), registry["json"].__name__
    (['json'], 'JSONDecoder')
    """

    def __init__(self, kind: str, group: str, base: str | None = None) -> None:
        """kind: the noun in messages; group: the group of entry points; base: ``"module:Class"``,
        of which every object of a third party must be a concrete subclass.
        """
        self.kind, self.group, self.base = kind, group, base

    @cached_property
    def builtins(self) -> list[str]:
        """Names that come with mechint, sorted."""
        return sorted(_own_entry_points().get(self.group, {}))

    @cached_property
    def _entries(self) -> dict[str, tuple[str, str]]:
        """Name → (target, distribution). A malformed entry point warns; a collision raises."""
        own = _own_entry_points().get(self.group, {})
        entries = {name: (target, OWN) for name, target in own.items()}
        for point in installed_points().select(group=self.group):
            owner = point.dist.name if point.dist else "an unknown distribution"
            if owner == OWN:
                continue
            if not EntryPoint.pattern.match(point.value):
                warnings.warn(
                    f"{owner} offers the {self.kind} {point.name!r} as {point.value!r}, which is "
                    "not 'module:Object'",
                    stacklevel=2,
                )
                continue
            target, other = entries.get(point.name, (point.value, owner))
            if target != point.value:
                raise MechintError(
                    f"two {self.kind}s are named {point.name!r}: {other}'s and {owner}'s; "
                    "uninstall one"
                )
            entries[point.name] = target, other
        return entries

    def names(self) -> list[str]:
        """All names, sorted."""
        return sorted(self._entries)

    def __iter__(self) -> Iterator[str]:
        return iter(self.names())

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and name in self._entries

    def __getitem__(self, name: str) -> T:
        """Return the object behind `name`.

        Raises:
            UnknownNameError: with the nearest name.
            MechintError: the object cannot be imported, or is not of the registry's kind.
        """
        target, owner = self._entry(name)
        where = f"{self.kind} {name!r} of {owner}"
        try:
            found = _load(target)
        except Exception as error:  # a third party's module may raise anything
            plain = isinstance(error, ImportError | AttributeError)
            said = str(error) if plain else f"{type(error).__name__}: {error}"
            raise MechintError(f"{where} cannot be loaded: {said}") from error
        if self.base is not None:
            found = _class_of(found)
        if owner != OWN and (reason := self._invalid(name, found)):
            raise MechintError(f"{where}: {reason}")
        return found

    def _entry(self, name: str) -> tuple[str, str]:
        if not isinstance(name, str):  # pyright: ignore[reportUnnecessaryIsInstance]  # from users
            raise ParameterError(f"{self.kind} {name!r}: expected the name of one {self.kind}")
        if name not in self._entries:
            raise UnknownNameError.of(self.kind, name, self._entries)
        return self._entries[name]

    def _invalid(self, name: str, found: Any) -> str | None:
        """Return why a third party's object does not belong here, or None."""
        if self.base is None:
            return None
        base = _load(self.base)
        if not isinstance(found, type) or not issubclass(found, base):
            return f"it is not a subclass of {base.__name__}"
        own = getattr(found, "name", None)
        if own != name and unfinished(found) is None:
            return f"its class attribute `name` is {own!r}; register it under that name"
        return unfinished(found)

    def add(self, name: str, target: str) -> None:
        """Register `target` (``"module:Object"``) for this process, for notebooks and tests."""
        if self._entries.get(name, (target,))[0] != target:
            raise MechintError(f"a {self.kind} named {name!r} exists already")
        self._entries[name] = target, "this process"

    def remove(self, name: str) -> None:
        """Undo `add`."""
        del self._entries[name]

    def describe(self, name: str) -> str:
        """Summary of the docstring of the object behind `name`."""
        return self._read(name)[0]

    def topics(self) -> dict[str, list[str]]:
        """Topic → names, in alphabetical order."""
        topics: dict[str, list[str]] = {}
        for name in self:
            topics.setdefault(self._read(name)[1], []).append(name)
        return dict(sorted(topics.items()))

    def _read(self, name: str) -> tuple[str, str]:
        """Summary and topic of the object behind `name`, read without importing it where the module
        of its target defines it; its class attribute `topic` is a text written there.
        """
        target, owner = self._entry(name)
        module, _, attribute = target.partition(":")
        kinds = ast.ClassDef | ast.FunctionDef if self.base is None else ast.ClassDef
        try:
            for node in ast.parse(_source(module).read_text(encoding="utf-8")).body:
                if isinstance(node, kinds) and node.name == attribute:
                    return summary(ast.get_docstring(node)), _topic(node)
            found = _load(target)
            return summary(found.__doc__), getattr(found, "topic", OTHER)
        except Exception as error:  # a broken plug-in must not break the list
            warnings.warn(f"{self.kind} {name!r} of {owner} cannot be read: {error}", stacklevel=2)
            return "", OTHER


def _topic(node: ast.ClassDef | ast.FunctionDef) -> str:
    """The text that a class body assigns to `topic`."""
    for line in node.body:
        if isinstance(line, ast.Assign | ast.AnnAssign) and line.value is not None:
            named = line.targets[0] if isinstance(line, ast.Assign) else line.target
            if ast.unparse(named) == "topic":
                return str(ast.literal_eval(line.value))
    return OTHER


@cache
def installed_points() -> EntryPoints:
    """Entry points of all distributions, which are read once."""
    found: Any = entry_points()  # in Python 3.11 of another type, which selects as well
    return found


@cache
def _own_entry_points() -> dict[str, dict[str, str]]:
    """Entry points of mechint, by group: of a checkout those in ``pyproject.toml``, so that a new
    line there works without another installation.
    """
    checkout = Path(__file__).parents[2] / "pyproject.toml"
    if checkout.is_file():
        return tomllib.loads(checkout.read_text(encoding="utf-8"))["project"]["entry-points"]
    groups: dict[str, dict[str, str]] = {}
    for point in distribution(OWN).entry_points:
        groups.setdefault(point.group, {})[point.name] = point.value
    return groups


def _load(target: str) -> Any:
    """Import the object that ``"module:Object"`` names."""
    module, _, attribute = target.partition(":")
    return getattr(importlib.import_module(module), attribute)


def _class_of(found: Any) -> Any:
    """A class as it is, and that of an object of `Task.of` or `Probe.of`."""
    return found if isinstance(found, type) else found.__class__


def _source(module: str) -> Path:
    """Source file of `module`, found without importing the packages that contain it."""
    top = package_of(module)
    inner = module.removeprefix(top).split(".")[1:]
    spec = importlib.util.find_spec(top)
    if spec is None or spec.origin is None:
        raise ImportError(f"there is no module {top!r}")
    if not inner:
        return Path(spec.origin)
    path = Path(spec.origin).parent.joinpath(*inner)
    file = path.with_suffix(".py")
    return file if file.is_file() else path / "__init__.py"


def unfinished(kind: type, settings: bool = True) -> str | None:
    """Return why a class cannot be instantiated (a missing member or, of one with `settings`, a
    decorator), in one line, or None.

    >>> class Own:
    ...     size = dataclasses.field(default=3)
    >>> unfinished(Own)
    'Own declares size and is no dataclass of its own; decorate it with @dataclass(frozen=True)'
    """
    title = kind.__name__
    declared = [name for name, value in vars(kind).items() if isinstance(value, dataclasses.Field)]
    if settings and (declared or not dataclasses.is_dataclass(kind)):
        what = f"declares {', '.join(declared)} and " if declared else ""
        return f"{title} {what}is no dataclass of its own; decorate it with @dataclass(frozen=True)"
    missing = sorted(getattr(kind, "__abstractmethods__", ()))
    return f"{title} does not define {', '.join(missing)}" if missing else None


TASKS: Registry[type[mechint.Task]] = Registry("task", "mechint.tasks", "mechint.task:Task")
PROBES: Registry[type[mechint.Probe]] = Registry("probe", "mechint.probes", "mechint.probe:Probe")
STUDIES: Registry[mechint.Study] = Registry("study", "mechint.studies")
EXPLANATIONS: Registry[type] = Registry("explanation", "mechint.explanations")
RULES: Registry[Callable[..., Any]] = Registry("rule", "mechint.rules")
FUNCTIONS: Registry[Callable[..., Any]] = Registry("function", "mechint.functions")
CHECKPOINT_FORMATS: Registry[Callable[..., Any]] = Registry(
    "checkpoint format", "mechint.checkpoint_formats"
)


# --- in another process ---------------------------------------------------------------------------
def reduced(registry: Registry[Any], made: Any) -> tuple[Any, ...] | None:
    """The pickled form of an object whose class a function made: its name in the registry and its
    fields; None where the registry has no such entry.
    """
    there = made.name in registry and registry[made.name] is type(made)
    return (_again, (registry.kind, made.name, made.to_dict())) if there else None


def _again(kind: str, name: str, fields: dict[str, Any]) -> Any:
    return {"task": TASKS, "probe": PROBES}[kind][name].from_dict(fields)  # pyright: ignore


# --- functions named after entries: probes.fourier(subject, factor=3) -----------------------------
# `probes` and `tasks` define __getattr__ with these. Their own modules that would have the name of
# an entry begin with an underscore (probes/_fourier).
def attribute(name: str) -> str:
    """Spell the name of an entry as a Python name.

    >>> attribute("modular-arithmetic")
    'modular_arithmetic'
    """
    return name.replace("-", "_").replace(".", "_")


def entry_named(registry: Registry[Any], python_name: str, package: str) -> str:
    """Return the entry whose Python name is `python_name`; AttributeError with the nearest name."""
    names = {attribute(name): name for name in registry}
    if python_name not in names:
        close = difflib.get_close_matches(python_name, names, n=1)
        hint = f"; did you mean {close[0]!r}?" if close and python_name[0] != "_" else ""
        raise AttributeError(f"module {package!r} has no attribute {python_name!r}{hint}")
    return names[python_name]


def documented(call: Call, kind: type, returns: str) -> Call:
    """Give `call` the docstring of `kind` and a signature that lists its fields as keywords."""
    leading = [
        parameter
        for parameter in inspect.signature(call).parameters.values()
        if parameter.kind is not parameter.VAR_KEYWORD
    ]
    settings = [
        inspect.Parameter(
            field.name, inspect.Parameter.KEYWORD_ONLY, default=field.default, annotation=field.type
        )
        for field in dataclasses.fields(kind)
    ]
    signature = inspect.Signature([*leading, *settings], return_annotation=returns)
    vars(call).update(__signature__=signature)
    call.__name__ = call.__qualname__ = attribute(getattr(kind, "name", kind.__name__))
    call.__doc__ = kind.__doc__
    return call
