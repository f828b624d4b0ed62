"""Names of tasks, probes, checkpoint formats and studies, resolved on use.

Built-ins are one line each below; third parties add theirs through the entry-point groups
``mechint.tasks``, ``mechint.probes`` and ``mechint.checkpoint_formats``. Listing imports none of
them.
"""

from __future__ import annotations

import ast
import dataclasses
import importlib
import importlib.util
import warnings
from collections.abc import Iterator
from functools import cached_property
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from mechint.errors import MechintError, ParameterError, UnknownNameError

if TYPE_CHECKING:
    from collections.abc import Callable

    import mechint

T = TypeVar("T")


def summary(docstring: str | None) -> str:
    """The first paragraph of a docstring as one line.

    >>> summary("Which frequencies\\ndoes it use?\\n\\nMore.")
    'Which frequencies does it use?'
    """
    return " ".join((docstring or "").strip().partition("\n\n")[0].split())


class Registry(Generic[T]):
    """A table name → ``"module:Object"``, imported when asked for; T is what the objects are.

    >>> registry: Registry[type] = Registry("codec", builtins={"json": "json:JSONDecoder"})
    >>> registry.names(), registry["json"].__name__
    (['json'], 'JSONDecoder')
    """

    def __init__(
        self,
        kind: str,
        builtins: dict[str, str],
        group: str | None = None,
        base: str | None = None,
    ) -> None:
        """base: ``"module:Class"`` of which every plug-in has to be a finished subclass."""
        self.kind, self.builtins, self.group, self.base = kind, dict(builtins), group, base

    @cached_property
    def _targets(self) -> dict[str, str]:
        """Built-ins and entry points; a broken plug-in warns, a collision is an error."""
        targets = dict(self.builtins)
        owner = dict.fromkeys(targets, "mechint")
        for point in entry_points(group=self.group) if self.group else ():
            distribution = point.dist.name if point.dist else "an unknown distribution"
            if not EntryPoint.pattern.match(point.value):
                warnings.warn(
                    (
                        f"{distribution} offers the {self.kind} {point.name!r} as "
                        f"{point.value!r}, which is not 'module:Object'"
                    ),
                    stacklevel=2,
                )
            elif targets.get(point.name, point.value) != point.value:
                raise MechintError(
                    f"two {self.kind}s are named {point.name!r}: {owner[point.name]}'s and "
                    f"{distribution}'s; uninstall one"
                )
            else:
                targets[point.name], owner[point.name] = point.value, distribution
        self._owners = owner
        return targets

    def names(self) -> list[str]:
        """All names, sorted; imports nothing."""
        return sorted(self._targets)

    def __iter__(self) -> Iterator[str]:
        return iter(self.names())

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and name in self._targets

    def __getitem__(self, name: str) -> T:
        """The object behind `name`; UnknownNameError with the nearest name, MechintError where a
        plug-in cannot be imported, whatever it raises, or is not what the registry holds.
        """
        if not isinstance(name, str):  # pyright: ignore[reportUnnecessaryIsInstance]  # from users
            raise ParameterError(f"{self.kind} {name!r}: expected the name of one {self.kind}")
        if name not in self._targets:
            raise UnknownNameError.of(self.kind, name, self._targets)
        where = f"{self.kind} {name!r} of {self._owners[name]}"
        try:
            found = _target(self._targets[name])
        except (ImportError, AttributeError) as error:
            raise MechintError(f"{where} cannot be loaded: {error}") from error
        except Exception as error:  # whatever a stranger's file raises
            said = f"{type(error).__name__}: {error}"
            raise MechintError(f"{where} cannot be loaded: {said}") from error
        reason = None if name in self.builtins else self._unfit(name, found)
        if reason is not None:
            raise MechintError(f"{where}: {reason}")
        return found

    def _unfit(self, name: str, found: Any) -> str | None:
        """Why a plug-in is not what the registry holds; None where it is."""
        if self.base is None:
            return None
        base = _target(self.base)
        if not isinstance(found, type) or not issubclass(found, base):
            return f"it is not a subclass of {base.__name__}"
        own = getattr(found, "name", None)
        if own != name and unfinished(found) is None:
            return f"its class attribute `name` is {own!r}; register it under that name"
        return unfinished(found)

    def add(self, name: str, target: str) -> None:
        """Register `target` (``"module:Object"``) for this process, for notebooks and tests."""
        if self._targets.get(name, target) != target:
            raise MechintError(f"a {self.kind} named {name!r} exists already")
        self._targets[name], self._owners[name] = target, "this process"

    def remove(self, name: str) -> None:
        """Forget what `add` registered."""
        del self._targets[name], self._owners[name]

    def describe(self, name: str) -> str:
        """Summary of the docstring of the object behind `name`, read without importing it."""
        if name not in self._targets:
            raise UnknownNameError.of(self.kind, name, self._targets)
        module, _, attribute = self._targets[name].partition(":")
        try:
            docstring = _docstring(_source(module), module, attribute)
        except Exception as error:  # whatever breaks in a plug-in must not break the list
            warnings.warn(
                f"{self.kind} {name!r} of {self._owners[name]} cannot be read: {error}",
                stacklevel=2,
            )
            return ""
        return summary(docstring)


def _target(text: str) -> Any:
    """The object that ``"module:Object"`` names."""
    module, _, attribute = text.partition(":")
    return getattr(importlib.import_module(module), attribute)


def unfinished(kind: type) -> str | None:
    """Why a task or probe cannot be made, in one line, where its author forgot a member or the
    decorator; None where nothing is missing.

    >>> class Own:
    ...     size = dataclasses.field(default=3)
    >>> unfinished(Own)
    'Own declares size and is no dataclass of its own; decorate it with @dataclass(frozen=True)'
    """
    title = kind.__name__
    declared = [name for name, value in vars(kind).items() if isinstance(value, dataclasses.Field)]
    if declared or not dataclasses.is_dataclass(kind):
        what = f"declares {', '.join(declared)} and " if declared else ""
        return f"{title} {what}is no dataclass of its own; decorate it with @dataclass(frozen=True)"
    missing = sorted(getattr(kind, "__abstractmethods__", ()))
    return f"{title} does not define {', '.join(missing)}" if missing else None


def _source(module: str) -> Path:
    """The source file of `module`, found without importing the packages that it lies in."""
    top, *inner = module.split(".")
    spec = importlib.util.find_spec(top)
    if spec is None or spec.origin is None:
        raise ImportError(f"there is no module {top!r}")
    if not inner:
        return Path(spec.origin)
    place = Path(spec.origin).parent.joinpath(*inner)
    file = place.with_suffix(".py")
    return file if file.is_file() else place / "__init__.py"


def _docstring(file: Path, module: str, attribute: str) -> str | None:
    """The docstring of `attribute` in the source `file` of `module`, or in the module of the same
    package that it is taken from; imports nothing.
    """
    for node in ast.parse(file.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef) and node.name == attribute:
            return ast.get_docstring(node)
        if (
            isinstance(node, ast.ImportFrom)
            and (node.module or "").startswith(f"{module}.")
            and attribute in [alias.name for alias in node.names]
        ):
            assert node.module is not None
            parts = node.module.removeprefix(f"{module}.").split(".")
            return _docstring(
                file.parent.joinpath(*parts).with_suffix(".py"), node.module, attribute
            )
    return None


TASKS: Registry[type[mechint.Task]] = Registry(
    "task",
    {
        "modular-arithmetic": "tasks.modular:ModularArithmetic",
        "remainders": "tasks.remainders:Remainders",
        "listops": "tasks.listops.task:ListOps",
        "listops-triplets": "tasks.listops.triplets:Triplets",
        "groups": "tasks.groups:Groups",
        "composition": "tasks.composition.task:Composition",
        "comparison": "tasks.ordering:Comparison",
        "hidden-addition": "tasks.ordering:HiddenAddition",
        "corpus": "tasks.corpus.task:Corpus",
        "regression-mixture": "tasks.regression:RegressionMixture",
        "single-index": "tasks.single_index:SingleIndex",
        "digit-sum": "tasks.digit_sum:DigitSum",
        "balanced-brackets": "tasks.brackets:Brackets",
        "max-of-list": "tasks.lists:MaxOfList",
        "sorted-list": "tasks.lists:SortedList",
        "palindromes": "tasks.palindromes:Palindromes",
        "first-unique": "tasks.first_unique:FirstUnique",
        "running-sign": "tasks.running_sign:RunningSign",
        "repeated-tokens": "tasks.repeated:RepeatedTokens",
        "rasp": "tasks.rasp:Rasp",
    },
    group="mechint.tasks",
    base="mechint.task:Task",
)

PROBES: Registry[type[mechint.Probe]] = Registry(
    "probe",
    {
        "fourier": "probes.fourier.probe:Fourier",
        "llc": "probes.llc.probe:LLC",
        "neurons": "probes.neurons.probe:Neurons",
        "clock-pizza": "probes.clock_pizza.probe:ClockPizza",
        "progress": "probes.progress.probe:Progress",
        "irreps": "probes.irreps.probe:Irreps",
        "das": "probes.das:DAS",
        "ablation": "probes.ablation:Ablation",
        "patching": "probes.patching:Patching",
        "circuits": "probes.circuits:Circuits",
        "attribution": "probes.attribution:Attribution",
        "interference": "probes.interference:Interference",
        "attention": "probes.attention:Attention",
        "embedding": "probes.embedding.probe:Embedding",
        "norms": "probes.norms.probe:Norms",
        "gradients": "probes.gradients:Gradients",
        "lens": "probes.lens:Lens",
        "linear": "probes.linear:Linear",
        "subspace": "probes.subspace:Subspace",
        "weights": "probes.weights.probe:Weights",
    },
    group="mechint.probes",
    base="mechint.probe:Probe",
)

CHECKPOINT_FORMATS: Registry[Callable[..., Any]] = Registry(
    "checkpoint format",
    {
        "mechint": "mechint.checkpoints.formats.native:read",
        "safetensors": "mechint.checkpoints.formats.native:read_safetensors",
        "rep-theory": "mechint.checkpoints.formats.rep_theory:read",
        "pizza": "mechint.checkpoints.formats.pizza:read",
        "progress-measures": "mechint.checkpoints.formats.progress_measures:read",
        "nanogpt": "mechint.checkpoints.formats.nanogpt:read",
        "transformer-lens": "mechint.checkpoints.formats.transformer_lens:read",
        "transformer-lens-native": "mechint.checkpoints.formats.transformer_lens_native:read",
        "huggingface": "mechint.checkpoints.formats.huggingface:read",
    },
    group="mechint.checkpoint_formats",
)

STUDIES: Registry[type[mechint.Study]] = Registry(
    "study",
    {
        "joint-training": "mechint.studies.joint_training.runs:JointTraining",
        "remainders": "mechint.studies.remainders.runs:RemaindersStudy",
        "capacity": "mechint.studies.capacity.runs:Capacity",
        "emergence": "mechint.studies.emergence.runs:Emergence",
        "composition": "mechint.studies.composition.runs:CompositionStudy",
    },
)
