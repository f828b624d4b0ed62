"""From a path to a Checkpoint: which file, which format, which model on which device."""

from __future__ import annotations

import contextlib
import dataclasses
import re
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from mechint.checkpoints.checkpoint import Checkpoint
from mechint.checkpoints.content import read_content
from mechint.checkpoints.reader import ParsedCheckpoint, StateDict, known_split
from mechint.checkpoints.save import FORMAT
from mechint.checkpoints.weights import build_model, check_weights, choose_task, fit, override
from mechint.errors import CheckpointError, DataError, MechintError, ParameterError, counted
from mechint.models import find_device
from mechint.models.foreign.bridge import SAME
from mechint.models.foreign.local import from_the_hub, has_tokenizer, load_tokenizer
from mechint.models.foreign.untouched import evaluating
from mechint.registry import CHECKPOINT_FORMATS, TASKS
from mechint.subject import Subject
from mechint.system.files import read_json, read_yaml
from mechint.task import Task

if TYPE_CHECKING:
    from mechint.checkpoints.mapping import Mapped
    from mechint.prompts import Prompts

PRETRAINED = "model.safetensors"
"""Weights in a folder of `Subject.save_pretrained`, and in one of Hugging Face's."""
NAMES = ("ckpt.pt", "model.pt", "ckpt.safetensors")
"""Names of the checkpoint in a directory; the first that is there is read."""
MAPPING = "mapping.yaml"
"""Beside a checkpoint, a mapping of this name is used for it."""

ReadWeights = Callable[[], StateDict]
Data = str | Path | Sequence[Any] | None


def load_checkpoint(
    path: str | Path,
    task: str | Task | None = None,
    *,
    parameters: Mapping[str, Any] | None = None,
    device: str = "cpu",
    model: Mapping[str, Any] | None = None,
    data: Data = None,
    mapping: str | Path | Mapping[str, Any] | None = None,
) -> Checkpoint:
    """Open a checkpoint of any registered format, as `load` does, with what is known of it.

    Args:
        path, task, device, data, mapping: as for `load`.
        parameters: fields of the task; on their own they change the task that the file names, and
            with `data` they are settings of the prompts (`prepend_bos`).
        model: fields of the model's configuration, in place of what the file states or what was
            assumed: ``{"attention_dir": "bidirectional"}``; ``{"bridge": True}`` opens a Hugging
            Face model through TransformerLens's bridge, too.

    Raises:
        DataError, CheckpointError: as `load`. ParameterError: a device that is not there, or a
            parameter out of range. UnknownNameError: no such task, or no such parameter.
    """
    place = find_device(device)
    changes, settings = dict(model or {}), parameters or {}
    through_bridge = bool(changes.pop("bridge", False))
    file, series = _locate(Path(path))
    if data is not None and task is not None:
        raise CheckpointError(
            f"{file}: asked about a task and about prompts; leave out one of the two"
        )
    mapped = None
    if mapping is not None:
        from mechint.checkpoints.mapping import load_mapping

        mapped = load_mapping(mapping)

    @cache
    def prompts(d_vocab: int, **sizes: int) -> Prompts:
        from mechint.prompts import Prompts

        folder: Any = file if _is_dir(file) else file.parent
        given: Any = data
        return Prompts.of(given, folder, d_vocab, None, **sizes, **settings)

    # a Hugging Face reader has to know the longest prompt before it builds tables of positions;
    # other readers do not, and have no bridge
    longest = None if data is None else (lambda d_vocab: prompts(d_vocab).n_ctx)
    name, parsed = "huggingface", None
    if through_bridge or longest is not None:
        from mechint.checkpoints.formats import huggingface

        parsed = huggingface.read(file, None, through_bridge=through_bridge, longest=longest)
    if parsed is None:
        name, parsed = recognize(file, None if _is_dir(file) else read_content(file), mapped)
    parsed = override(file, parsed, changes)
    for setting, item in parsed.assumed.items():
        if item.is_asked:
            raise CheckpointError(
                f"{file}: {setting}: {item.why}; say which by --set model.{setting}=…"
            )
    if data is None:
        chosen = choose_task(file, parsed, task, settings)
    else:
        d_vocab = getattr(parsed.config, "d_vocab", None)
        if not d_vocab:
            raise CheckpointError(f"{file}: reads no tokens, so prompts do not fit it")
        classes = getattr(parsed.config, "d_vocab_out", d_vocab)
        chosen = prompts(d_vocab, **({} if classes == d_vocab else {"n_classes": classes}))
        chosen.check_lengths(getattr(parsed.config, "n_ctx", None))

    def within(weights: ReadWeights) -> StateDict:
        return _weights_in_file(file, dataclasses.replace(parsed, weights=weights()), chosen)

    fitted = fit(file, parsed, chosen)
    network = fitted.model if fitted.model is not None else build_model(file, fitted)
    if fitted.model is None and _is_dir(file) and has_tokenizer(file):
        network.tokenizer = load_tokenizer(file)
    _fit_to_prompts(network, chosen)
    if place.type != "cpu":
        # a bridge announces its moves where results go
        with contextlib.redirect_stdout(sys.stderr):
            network = network.to(place)
    network.eval()
    # weights of other steps are read when they are asked for: a run may have hundreds
    recorded = fitted.recorded() | {
        "split": known_split(fitted.split, fitted.task, fitted.parameters, chosen),
        "series": {
            step: _weights_at_step(at, chosen, changes, mapped) for step, at in series.items()
        }
        or {step: partial(within, weights) for step, weights in parsed.series.items()},
    }
    return Checkpoint(
        path=file, format=name, model=network, config=fitted.config, task=chosen, **recorded
    )


def load(
    source: Any,
    /,
    task: str | Task | None = None,
    *,
    device: str = "cpu",
    model: Mapping[str, Any] | None = None,
    data: Data = None,
    mapping: str | Path | Mapping[str, Any] | None = None,
    hooks: Mapping[str, Any] | None = None,
    tokenizer: Any = None,
    **parameters: Any,
) -> Subject:
    """A checkpoint, a run directory or a model in memory as a Subject.

    Args:
        source: a checkpoint of any format that `mechint.checkpoints` recognizes; a run directory
            (its last checkpoint, the others as `series`); a Hugging Face model directory; or a
            model in memory: of transformers, of TransformerLens, of mechint, or any module together
            with `hooks`.
        task: name of the task, where the file does not say; or the task itself, as one written in
            a notebook has to be given. `parameters` are the task's, whatever they are called: the
            `path` of a corpus, too.
        device: "cpu" or "cuda".
        model: fields of the model's configuration, in place of what was assumed.
        data: prompts for a language model without a task: a file, or a list of texts, lists of
            token ids or mappings (`mechint.prompts`); `parameters` are then theirs.
        mapping: a mapping file (`mechint.checkpoints.mapping`), or its content, that says how the
            file's names become mechint's; a ``mapping.yaml`` beside the file when None.
        hooks: of a module in memory, as for `mechint.wrap`.
        tokenizer: of a model in memory; its own where it has one.
        parameters: of the task or of `data`; d_vocab, the number of tokens that a model in memory
            reads, where it does not say.

    Raises:
        DataError: prompts that cannot be used.
        CheckpointError: missing, truncated, foreign or hostile file, or one that does not fit the
            task.
        ParameterError: a module without hooks, or hooks of a file.

    Example:
        >>> from mechint.planted import modular_addition
        >>> load(modular_addition(5, (1,)).subject.model, task="modular-arithmetic", p=5).accuracy()
        {'answer': 1.0}
    """
    if isinstance(source, str | Path):
        if hooks is not None or tokenizer is not None:
            raise ParameterError("hooks and tokenizer: are for a model in memory, not for a file")
        opened = load_checkpoint(
            source,
            task=task,
            parameters=parameters,
            device=device,
            model=model,
            data=data,
            mapping=mapping,
        )
        _warn_of_answers(opened.model, opened.task)
        return opened.subject()
    if mapping is not None or model is not None:
        raise ParameterError("mapping and model: are for a file, not for a model in memory")
    longest = None
    if data is not None:
        from mechint.prompts import Prompts

        longest = lambda d_vocab: Prompts.of(data, tokenizer, d_vocab, None, **parameters).n_ctx  # noqa: E731
    given = parameters.pop("d_vocab", None) if data is not None else None
    network, its_tokenizer = hooked(source, hooks, tokenizer, longest)
    chosen: Task | None = TASKS[task].from_dict(parameters) if isinstance(task, str) else task
    if data is not None:
        shape = Subject(network, None).model_description
        tokens, length = shape.d_vocab or given, shape.n_ctx
        if not isinstance(tokens, int) or tokens < 1 or given not in (None, tokens):
            raise ParameterError(
                f"data: the model states that it reads {shape.d_vocab or 'no number of'} tokens; "
                f"got d_vocab={given!r}, expected mechint.load(model, data=…, "
                f"d_vocab={shape.d_vocab or '…'})"
            )
        encoder = tokenizer if tokenizer is not None else its_tokenizer
        classes = shape.d_vocab_out
        sizes = {} if classes in (None, tokens) else {"n_classes": classes}
        chosen = Prompts.of(data, encoder, tokens, length, **{**sizes, **parameters})
        _fit_to_prompts(network, chosen)
    network = network.to(find_device(device)) if device != "cpu" else network
    _warn_of_answers(network, chosen)
    return Subject(network, chosen)


def hooked(
    source: Any,
    hooks: Mapping[str, Any] | None,
    tokenizer: Any = None,
    longest: Callable[[int], int] | None = None,
) -> tuple[Any, Any]:
    """`source` as a hooked model, and its tokenizer, None where it has none.

    tokenizer, longest: of a model of transformers (`mechint.checkpoints.formats.huggingface`).

    A GPT-2, Llama, Mistral or Qwen of transformers becomes a HookedTransformer with a copy of its
    weights; any other of its causal language models is bridged, and keeps its weights.

    Raises:
        ParameterError: no module, or a module of one's own without `hooks`.
        CheckpointError: TransformerLens has no bridge for the model.
    """
    if not isinstance(source, nn.Module):
        raise ParameterError(
            f"load: got a {type(source).__name__}; expected a path, or a model: an nn.Module"
        )
    if hooks is not None:
        from mechint.models.foreign.wrapped import wrap

        return wrap(source, hooks), None
    if hasattr(source, "run_with_hooks"):
        return source.eval(), getattr(source, "tokenizer", None)
    config: Any = getattr(source, "config", None)
    if getattr(config, "model_type", None) is None:
        raise ParameterError(
            f"load: a {type(source).__name__} needs hooks: mechint.load(module, task, hooks="
            "{'blocks.0.hook_resid_post': 'layers.0'}), hook name → submodule; mechint.wrap takes "
            "weights and sizes, too"
        )
    from mechint.checkpoints.formats import huggingface

    parsed = huggingface.of_module(source, None, longest=longest, tokenizer=tokenizer)
    if parsed.model is not None:
        return parsed.model, None
    network = build_model(Path(config.model_type), parsed).eval()
    network.tokenizer = tokenizer
    return network, None


def _fit_to_prompts(network: Any, task: Task | None) -> None:
    """Let `network` put BOS before a text where prompts do, so that positions agree; DataError for
    prompts of several lengths that it cannot take.
    """
    if (prompts := _as_prompts(task)) is not None:
        config: Any = getattr(network, "cfg", None)
        if hasattr(config, "default_prepend_bos") and prompts.has_tokenizer:
            with contextlib.suppress(dataclasses.FrozenInstanceError):
                config.default_prepend_bos = prompts.begins_with_bos
        prompts.take_answers(network)
        check_padding(network, prompts)


def _as_prompts(task: Task | None) -> Prompts | None:
    """`task` where it is prompts, which are imported for tasks whose inputs are a sample alone."""
    if not getattr(task, "is_sample", False):
        return None
    from mechint.prompts import Prompts

    return task if isinstance(task, Prompts) else None


def check_padding(network: Any, prompts: Prompts) -> None:
    """Refuse prompts of several lengths for a model to which it matters what fills the shorter ones
    up, such as one whose rotations depend on how much it is given. Two forwards on the shortest.

    Raises:
        DataError: the logits at its end are others, by more than rounding, than of it alone.
    """
    data = prompts.examples()
    shortest = 0 if data.lengths is None else int(data.lengths.argmin())
    length = len(prompts.prompts[shortest].tokens)
    filled = data.tokens[shortest, None]  # (1, pos)
    if length == filled.shape[1]:
        return
    with torch.no_grad(), evaluating(network):
        alone, within = network(filled[:, :length])[:, -1], network(filled)[:, length - 1]
    off, largest = float((alone - within).abs().max()), float(alone.abs().max())
    if not off <= SAME * largest:
        raise DataError(
            f"{prompts.place(prompts.prompts[shortest])}: what fills this prompt up to the length "
            f"of the longest changes the model's logits by {off:.2g} of {largest:.2g}; give "
            "prompts of one length"
        )


def _warn_of_answers(network: Any, task: Task | None) -> None:
    """Warn of answers without the space that belongs to the token, with the model's own choice."""
    asked = _as_prompts(task)
    batch = None if asked is None else asked.unspaced()
    if batch is None or asked is None:
        return
    subject = Subject(network, asked, data=batch)
    best = subject.logits().argmax(-1).tolist()
    prompts = [asked.prompts[index] for index in asked.index_of(batch.tokens).tolist()]
    names = asked.vocabulary.tokens
    for prompt, first in zip(prompts, best, strict=True):
        if first == prompt.spaced != prompt.answer:
            answer = names[prompt.answer or 0]
            warnings.warn(
                f"{asked.place(prompt)}: answer {answer!r}: the model's first choice "
                f"is {names[first]!r}; give the answer with its space",
                stacklevel=3,
            )


# --- which file -----------------------------------------------------------------------------------
def _locate(path: Path) -> tuple[Path, dict[int, Path]]:
    """The file (or model directory) to read, and step → file of the checkpoints in a run
    directory.
    """
    if not _is_dir(path):
        if not path.exists() and (hint := from_the_hub(path)):
            raise CheckpointError(f"{path}: there is no such file{hint}")
        if path.suffix == ".json" and path.is_file():
            raise CheckpointError(
                f"{path}: a file that describes a checkpoint; give the file of its weights, or for "
                f"a Hugging Face model the directory {path.parent}"
            )
        return path, {}
    steps = {
        int(match[1]): file
        for file in (path / "checkpoints").glob("step-*.pt")
        if (match := re.fullmatch(r"step-(\d+)", file.stem))
    }
    steps = dict(sorted(steps.items()))
    for name in NAMES:
        if (path / name).is_file():
            return path / name, steps
    if steps:
        return list(steps.values())[-1], steps
    if (pretrained := in_pretrained(path)) is not None:
        return pretrained, {}
    runs = sorted(entry.name for entry in path.glob("seed-*") if entry.is_dir())
    if runs:
        raise CheckpointError(
            f"{path}: holds {counted(len(runs), 'run')}; choose one of "
            f"{', '.join(runs[:12])}{', …' if len(runs) > 12 else ''}"
        )
    return path, {}


def in_pretrained(path: Path) -> Path | None:
    """The file of weights in a folder of `Subject.save_pretrained`; None where it is none."""
    file = path / PRETRAINED
    return file if file.is_file() and _stated(path).get("format") == FORMAT else None


def _stated(path: Path) -> Mapping[str, Any]:
    """The configuration in a directory; empty where there is none, or it is damaged."""
    try:
        given = read_json(path / "config.json", CheckpointError)
    except CheckpointError:
        return {}
    return given if isinstance(given, Mapping) else {}


def _is_dir(path: Path) -> bool:
    try:
        return path.is_dir()
    except (OSError, ValueError):  # reading it will say what is wrong
        return False


def _weights_at_step(
    file: Path, task: Task | None, changes: Mapping[str, Any], mapping: Mapped | None
) -> ReadWeights:
    """A function that reads the weights in `file` when they are wanted."""

    def weights() -> StateDict:
        parsed = override(file, recognize(file, read_content(file), mapping)[1], changes)
        return _weights_in_file(file, parsed, task)

    return weights


def _weights_in_file(file: Path, parsed: ParsedCheckpoint, task: Task | None) -> StateDict:
    """The weights of `parsed` as `task` needs them, checked."""
    fitted = fit(file, parsed, task)
    check_weights(file, fitted.config, fitted.weights)
    return fitted.weights


# --- which format ---------------------------------------------------------------------------------
def recognize(
    path: Path, content: Any, mapping: Mapped | None = None
) -> tuple[str, ParsedCheckpoint]:
    """Name of the format of `content` and the result of its reader.

    mapping: read by it, in place of all formats; else by a mapping.yaml beside the file.

    Raises:
        CheckpointError: no reader knows the content, or it is damaged.
    """
    mapping = mapping or (None if content is None else _mapping_beside(path))
    if mapping is not None:
        return mapping.name, mapping.read(path, content)
    foreign = [name for name in CHECKPOINT_FORMATS if name not in CHECKPOINT_FORMATS.builtins]
    # a Hugging Face directory last: its reader imports the most
    for name in [*foreign, *sorted(CHECKPOINT_FORMATS.builtins, key="huggingface".__eq__)]:
        try:
            reader = CHECKPOINT_FORMATS[name]
        except MechintError as error:  # a broken plug-in must not stop the others
            warnings.warn(str(error), stacklevel=2)
            continue
        try:
            parsed = reader(path, content)
        except MechintError:
            raise
        except (
            ArithmeticError,
            AttributeError,
            LookupError,
            RuntimeError,
            TypeError,
            ValueError,
        ) as error:  # foreign data break in many ways
            raise CheckpointError(
                f"{path}: taken for {name}, but damaged: {type(error).__name__}: {error}"
            ) from error
        if parsed is not None:
            return parsed.format or name, parsed
    if content is None:
        raise CheckpointError(
            f"{path}: a directory without a model: expected {', '.join(NAMES)}, "
            "checkpoints/step-*.pt, or a Hugging Face config.json in it; of other files give one, "
            f"or several by a pattern ({path}/*.pt)"
        )
    if "model_type" in _stated(path.parent):
        raise CheckpointError(
            f"{path}: part of a Hugging Face model; give its directory, {path.parent}"
        )
    raise CheckpointError(
        f"{path}: {_summary(content)}; no format knows it (formats: {', '.join(format_names())}); "
        "say how its names become mechint's in a mapping file, --mapping FILE"
    )


def _mapping_beside(path: Path) -> Mapped | None:
    """The mapping.yaml in the folder of `path`; None where there is none that names weights."""
    place = (path if path.is_dir() else path.parent) / MAPPING
    given = read_yaml(place, CheckpointError)
    if not isinstance(given, Mapping) or "weights" not in given:
        return None
    from mechint.checkpoints.mapping import load_mapping

    return load_mapping(given, place)


def format_names() -> list[str]:
    """Every format that is recognized: those of other packages and the built-in ones."""
    from mechint.checkpoints.formats.published import FORMATS

    names = (name for name in CHECKPOINT_FORMATS if name != "published")
    return [*names, *dict.fromkeys(FORMATS.values())]


def _summary(content: Any) -> str:
    if not isinstance(content, Mapping):
        return f"holds a {type(content).__name__}, not a state dict"
    names = [str(name)[:40] for name in content]
    more = f" and {len(names) - 4} more" if len(names) > 4 else ""
    return f"holds {', '.join(names[:4])}{more}" if names else "holds an empty mapping"
