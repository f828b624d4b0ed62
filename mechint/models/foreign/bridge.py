"""TransformerLens's bridges: language models of a local Hugging Face directory, and TransformerLens
4's own models, under the field's hook names.

Weights stay as they are (no folding of layer norm), so logits are the model's own; opening holds
them against these on a few tokens. Nothing is fetched: a directory without a tokenizer gets one
that writes each token as its number. Cost: the weights in memory once.
"""

from __future__ import annotations

import copy
import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

import torch
from jaxtyping import Int
from torch import Tensor

from mechint.errors import CheckpointError
from mechint.models.foreign.local import LOCAL, has_tokenizer, one_line, opening_of, quiet
from mechint.models.foreign.untouched import evaluating, plain_arithmetic
from mechint.models.hook_points import import_transformer_lens
from mechint.models.parameters import HEAD_WEIGHTS, Capability

EAGER = {"attn_implementation": "eager"}
"""The other implementations never make the pattern that hooks read."""

LAYER = re.compile(r"(.*?)\.\d+\.")
"""One layer at the head of a weight's name, and the stack that it belongs to."""

TOKENS = ((0, 1, 0), (0, 1, 1))
"""Inputs of a model that is opened: texts that differ in their last token."""

PER_HEAD = ("attn.hook_q", "attn.hook_k", "attn.hook_v", "attn.hook_z", "attn.hook_result")
"""Hooks of a block that are (batch, pos, head, width)."""

SAME = 1e-4
"""Of the range of the logits: so far from a module's own may those of a bridge or of a
HookedTransformer of its weights be. In float32 they agree to 1e-6.
"""

SHORT_ROW, LONG_ROW, UNASKED_ROW = 16, 512, 64
"""Tokens of the two rows on which they are compared: the longer one as long as what is asked."""

Known = Sequence[tuple[Tensor, Tensor]]
"""Tokens (1, pos), and a module's own logits there."""


def load_directory(path: Path) -> Any:
    """The causal language model that transformers reads in directory `path`, on the CPU in float32.

    Raises:
        CheckpointError: the directory lacks weights, has layers that its configuration leaves out
            or weights that are not finite, or needs code of its own.
    """
    with quiet(), one_line(f"{path}: this Hugging Face model cannot be opened"):
        from transformers import AutoModelForCausalLM

        loaded: Any = AutoModelForCausalLM.from_pretrained(
            path, **EAGER, **LOCAL, use_safetensors=True, dtype="float32", output_loading_info=True
        )
    model, report = loaded
    _check_loaded(path, model, report)
    for name, weight in model.named_parameters():
        ends = weight.detach().aminmax() if weight.numel() else ()
        if not all(end.isfinite() for end in ends):
            raise CheckpointError(f"{path}: {name} holds values that are not finite")
    return model.eval()


def known_logits(model: Any, longest: int | None = None) -> Known:
    """Logits of a module of transformers on two random rows, of 16 tokens and of `longest`, or as
    many as its configuration has positions, before it becomes another model.
    """
    size = model.config.get_text_config()
    limit = getattr(size, "max_position_embeddings", None)
    longest = min(longest or UNASKED_ROW, LONG_ROW)
    lengths = {min(SHORT_ROW, longest), longest}
    if isinstance(limit, int):
        lengths = {min(length, limit) for length in lengths}
    draw, device = torch.Generator().manual_seed(0), next(model.parameters()).device
    known = []
    with one_line(f"{type(model).__name__}: this model cannot be run"), torch.no_grad():
        for length in sorted(lengths):
            tokens = torch.randint(size.vocab_size, (1, length), generator=draw).to(device)
            with evaluating(model):
                known.append((tokens, model(tokens).logits.detach()))
    return known


def differing(known: Known, run: Callable[[Tensor], Tensor]) -> str | None:
    """In words, by how much the logits of `run` are not the known ones; None where they are."""
    for tokens, logits in known:
        with torch.no_grad():
            its_logits = run(tokens)
        if its_logits.shape != logits.shape:
            return f"its logits are of shape {tuple(its_logits.shape)}, not {tuple(logits.shape)}"
        off, spread = (its_logits - logits).abs().max().item(), (logits.max() - logits.min()).item()
        if not off <= SAME * spread:
            return (
                f"its logits of {tokens.shape[1]} tokens are {off:.2g} from the model's own, whose "
                f"range is {spread:.2g}"
            )
    return None


def bridge_of(
    model: Any, path: Path | None = None, tokenizer: Any = None, known: Known | None = None
) -> Any:
    """A bridge to the causal language model `model` of transformers, whose weights it shares.

    Its attention becomes eager, so that hooks can read the pattern, and its mode evaluation.

    path: of its directory, whose tokenizer it then has; else it has a copy of `tokenizer`, or
    writes tokens as numbers. known: logits that the bridge must have.

    Raises:
        CheckpointError: it reads later tokens, or TransformerLens has no bridge for it, or one
            that gives other logits.
    """
    kind = type(model).__name__
    name = kind if path is None else str(path.absolute())
    with quiet(), one_line(f"{path or kind}: this model cannot be bridged"):
        model.set_attn_implementation("eager")
        if tokenizer is not None:
            tokenizer = copy.deepcopy(tokenizer)  # TransformerLens adds tokens to it
        elif path is None or not has_tokenizer(path):
            tokenizer = _numbers(model.config.get_text_config())
        return _bridge_to(model, name, tokenizer, known_logits(model) if known is None else known)


def _check_loaded(path: Path, model: Any, report: Mapping[str, Any]) -> None:
    """CheckpointError where transformers drew weights at random because the files lack them, or
    left out a layer or a bias that they have; its own warning of either is silenced here.

    report: the loading information of ``from_pretrained``.
    """
    missing = sorted(report["missing_keys"])
    if missing:
        more = f" and {len(missing) - 1:,} more" if len(missing) > 1 else ""
        raise CheckpointError(f"{path}: its weights lack {missing[0]}{more}")
    base = f"{model.base_model_prefix}."  # which the file of a model without a head leaves out
    names = [name for key in model.state_dict() for name in (key, key.removeprefix(base))]
    matches = [match for name in names if (match := LAYER.match(name))]
    stacks, layers = {match[1] for match in matches}, {match[0] for match in matches}
    modules = {name.rpartition(".")[0] for name in names}
    for name in sorted(report["unexpected_keys"]):
        module, _, kind = name.rpartition(".")
        if kind in ("weight", "bias") and module in modules:
            raise CheckpointError(
                f"{path}: its weights hold {name}, a {kind} that its configuration leaves out"
            )
        layer = LAYER.match(name)
        if layer and layer[1] in stacks and layer[0] not in layers:
            raise CheckpointError(
                f"{path}: its weights hold {name}, a layer that its configuration leaves out"
            )


def boot_native(config: Any, seed: int | None = None) -> Any:
    """One of TransformerLens 4's own models with the initial weights of `seed`, on the CPU.

    config: TransformerLens's TransformerBridgeConfig, or its fields; its own seed when None.
    """
    with quiet():
        from transformer_lens.config import TransformerBridgeConfig
        from transformer_lens.model_bridge import TransformerBridge

        settings = (
            TransformerBridgeConfig.from_dict(dict(config))
            if isinstance(config, Mapping)
            else copy.deepcopy(config)
        )
        if seed is not None:
            settings.seed = seed
        return TransformerBridge.boot_native(settings).eval()  # type: ignore[attr-defined]


def _bridge_to(model: Any, name: str, tokenizer: Any, known: Known = ()) -> Any:
    """A bridge to `model`, whose modules become the bridge's.

    Raises:
        CheckpointError: the model reads later tokens, TransformerLens has no bridge for it, or one
            that gives other logits than `known`, where TransformerLens computes a part of the
            model itself and does not know what this configuration asks for.
    """
    import_transformer_lens()
    from transformer_lens.factories.architecture_adapter_factory import SUPPORTED_ARCHITECTURES
    from transformer_lens.model_bridge import TransformerBridge

    kind = type(model).__name__
    with torch.no_grad():
        logits = model.eval()(torch.tensor(TOKENS, device=model.device)).logits
    # logits decide, since a bridge describes a BERT as bidirectional where its mask is causal too
    first, other = logits[:, :-1]
    if float((first - other).abs().max()) > 1e-4 * float(first.abs().max()):
        raise CheckpointError(
            f"{name}: {kind} is not a causal language model: it reads later tokens"
        )
    if not model.config.architectures:  # as of a model that never was on the disk
        model.config.architectures = [kind]
    if not {kind, *model.config.architectures} & SUPPORTED_ARCHITECTURES.keys():
        raise CheckpointError(f"{name}: TransformerLens has no bridge for a {kind}")
    with torch.no_grad():
        bridge = TransformerBridge.boot_transformers(
            name, device="cpu", hf_model=model, tokenizer=tokenizer
        ).eval()
    if (said := differing(known, bridge)) is not None:
        raise CheckpointError(
            f"{name}: TransformerLens's bridge does not compute this {kind}: {said}"
        )
    reader = bridge.tokenizer
    if reader is not None and (reader.pad_token_id or 0) >= bridge.cfg.d_vocab:
        # TransformerLens adds one that has no weights
        reader.pad_token = reader.convert_ids_to_tokens(0)
    if reader is not None:
        bridge.cfg.default_prepend_bos = bool(opening_of(reader))
    _cut_at_the_heads(bridge)
    return bridge


def _cut_at_the_heads(bridge: Any) -> None:
    """Let hook_z have the heads that hook_pattern has. TransformerLens cuts it into pieces of the
    width of a query, which in latent attention values do not have.
    """
    shapes = _shapes(bridge, two_tokens(bridge))
    for name, shape in shapes.items():
        pattern = shapes.get(f"{name.removesuffix('hook_z')}hook_pattern")
        if not name.endswith("attn.hook_z") or pattern is None:
            continue
        heads, width = pattern[1], shape[2:].numel()
        cut = bridge.hook_dict[name].hook_conversion
        if width % heads == 0 and hasattr(cut, "n_heads") and hasattr(cut, "d_head"):
            cut.n_heads, cut.d_head = heads, width // heads


# --- what a bridge can do -------------------------------------------------------------------------
def capabilities(model: Any) -> frozenset[Capability]:
    """Weights can be edited; initial ones can be drawn where the architecture is known to
    TransformerLens or to transformers, heads' weights shown where it cuts them apart.
    """
    known = _is_native(model) or hasattr(getattr(model, "original_model", None), "config")
    drawn = {Capability.REINITIALIZE} if known else set()
    heads = {Capability.HEAD_WEIGHTS} if _cuts_heads(model) else set()
    return frozenset({Capability.EDIT_WEIGHTS} | drawn | heads)


def _cuts_heads(model: Any) -> bool:
    try:
        return all(getattr(model, name).dim() == 4 for name in HEAD_WEIGHTS)
    except (AttributeError, RuntimeError, ValueError, TypeError):  # an architecture without them
        return False


def reinitialized(model: Any, seed: int) -> Any:
    """The same architecture with the initial weights that its library draws for `seed`."""
    if _is_native(model):
        return boot_native(model.cfg, seed)
    with quiet(), torch.random.fork_rng(devices=[]):
        from transformers import AutoModelForCausalLM

        torch.manual_seed(seed)
        config = copy.deepcopy(model.original_model.config)
        fresh = AutoModelForCausalLM.from_config(config, **EAGER, dtype=torch.float32)
        return _bridge_to(fresh, "untrained", _numbers(config.get_text_config()))


def hook_names(model: Any) -> frozenset[str]:
    """The hooks that fire in a forward on a few tokens and are what they are named after. A bridge
    lists others too, which its architecture never reaches or which are off; what a mixture of
    experts writes, as its neurons; and queries with another axis than the third for their heads.
    """
    points = model.hook_dict
    heads = {getattr(model.cfg, name, None) for name in ("n_heads", "n_key_value_heads")}
    n_tokens = next(n for n in range(2, 5) if n not in heads)  # told from heads by their number
    tokens = two_tokens(model)[:, :1].expand(1, n_tokens)
    shapes = _shapes(model, tokens)

    def is_so(name: str) -> bool:
        if name.endswith("mlp.hook_post"):
            return not str(points[name].name).endswith("mlp.hook_out")
        if not name.endswith(PER_HEAD):
            return True
        pattern = shapes.get(f"{name.rpartition('.')[0]}.hook_pattern")
        shape, grouped = shapes[name], name.endswith(("hook_k", "hook_v"))
        n_heads = heads if pattern is None else {pattern[1], *(heads if grouped else ())}
        return len(shape) == 4 and shape[1] == n_tokens and shape[2] in n_heads

    return frozenset(name for name in shapes if is_so(name))


def _shapes(model: Any, tokens: Int[Tensor, "batch pos"]) -> dict[str, torch.Size]:
    """Hook → the shape of what it gives in a forward on `tokens`; () of what is no tensor."""
    shapes: dict[int, torch.Size] = {}
    points = model.hook_dict

    def keep(point: Any, _: Any, activation: Any) -> None:
        cut = point.hook_conversion
        shown = activation if cut is None else cut.convert(activation)
        shapes[id(point)] = shown.shape if isinstance(shown, Tensor) else torch.Size()

    handles = [point.register_forward_hook(keep) for point in set(points.values())]
    try:
        with torch.no_grad(), evaluating(model):
            model(tokens)
    finally:
        for handle in handles:
            handle.remove()
    return {name: shapes[id(point)] for name, point in points.items() if id(point) in shapes}


def two_tokens(model: Any) -> Int[Tensor, "1 2"]:
    """The shortest input on which everything runs, where the model's weights are."""
    return torch.zeros(1, 2, dtype=torch.int64, device=next(model.parameters()).device)


def _is_native(model: Any) -> bool:
    return getattr(model.cfg, "architecture", None) == "TransformerLensNative"


def _numbers(config: Any) -> Any:
    """A tokenizer that writes token i as the text "i"."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    tokenizer = Tokenizer(
        models.WordLevel({str(index): index for index in range(config.vocab_size)}, unk_token="0")
    )
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, eos_token="0", pad_token="0", unk_token="0"
    )


# --- hooks that can be read and not edited --------------------------------------------------------
# A bridge runs the modules of another library and shows more than it can change: attention patterns
# that the library has used already, and, as hook_resid_mid, the copy of the residual stream that
# the MLP is given. An intervention there would have no effect, or another one than it is named for.
BLOCK = re.compile(r"^blocks\.\d+\.")
ONLY_SHOWN = "TransformerLens can only show it: an edit there does not reach the logits"
BESIDE_THE_STREAM = (
    "an edit there changes what the MLP reads and not the residual stream; edit hook_attn_out of "
    "the same block, which is added to the stream there"
)

_known: WeakKeyDictionary[Any, Mapping[str, str]] = WeakKeyDictionary()


def read_only_hooks(model: Any) -> Mapping[str, str]:
    """Hook of the bridge `model` → why it cannot be edited. Cost, once per model: two forwards and
    one backward on two tokens; where TransformerLens fails at an edit, one of each per kind of
    hook.
    """
    if model not in _known:
        _known[model] = _find(model)
    return _known[model]


def _find(model: Any) -> dict[str, str]:
    points, fired = model.hook_dict, hook_names(model)
    one_each = {id(points[name]): name for name in sorted(fired)}.values()  # of a point's names
    try:
        shown = _unreached(model, set(one_each))
    except Exception:  # what TransformerLens cannot put back, e.g. a norm without weights, by kind
        shown = set()
        for kind in {BLOCK.sub("", name) for name in one_each}:
            alike = {name for name in one_each if BLOCK.sub("", name) == kind}
            try:
                shown |= _unreached(model, alike)
            except Exception:  # nor by kind: none of these can be edited
                shown |= alike
    unreached = {id(points[name]) for name in shown}
    unedited = {name: ONLY_SHOWN for name in fired if id(points[name]) in unreached}
    # of its own it has none: it stands for the input of the norm or of the MLP that reads it
    beside = {
        name: BESIDE_THE_STREAM
        for name in fired
        if name.endswith(".hook_resid_mid") and str(points[name].name).endswith(".hook_in")
    }
    return beside | unedited


def _unreached(model: Any, names: set[str]) -> set[str]:
    """Those of `names` to whose edits the logits are not connected by autograd."""
    added: dict[str, list[Tensor]] = {name: [] for name in names}

    def adding_nothing(name: str) -> Callable[..., Tensor | None]:
        def add(activation: Any, hook: Any) -> Tensor | None:
            if not isinstance(activation, Tensor) or not activation.is_floating_point():
                return None
            zeros = torch.zeros_like(activation, requires_grad=True)
            added[name].append(zeros)
            return activation + zeros

        return add

    tokens = two_tokens(model)
    hooks = [(name, adding_nothing(name)) for name in sorted(names)]
    with (
        plain_arithmetic(tokens.device),
        torch.enable_grad(),
        evaluating(model),
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("ignore")  # norms are computed in another way, to the same values
        logits = model.run_with_hooks(tokens, fwd_hooks=hooks)
        flat = [(name, zeros) for name, several in added.items() for zeros in several]
        if not flat:
            return set()
        gradients = torch.autograd.grad(
            logits.sum(), [zeros for _, zeros in flat], allow_unused=True
        )
    reached = {
        name for (name, _), gradient in zip(flat, gradients, strict=True) if gradient is not None
    }
    return {name for name, _ in flat} - reached
