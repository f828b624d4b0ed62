"""Sparse autoencoders: latents of an activation, their reconstruction, and that as intervention.

With s = n(x) - b_dec (b_dec only where it is subtracted from the input) the latents are

    standard   relu(h), h = s W_enc + b_enc                       (Bricken et al. 2023)
    jumprelu   relu(h) where h exceeds the threshold, else 0      (Rajamanoharan et al. 2024b)
    topk       relu of the k largest entries of h, else 0         (Gao et al. 2024)
    gated      relu(exp(r_mag) s W_enc + b_mag) where h > 0       (Rajamanoharan et al. 2024a)

and the reconstruction n⁻¹(latents W_dec + b_dec); n is the identity, a layer norm or a rescaling to
length √d_in. With `rescale` a latent is in units of what it writes: h, and the magnitude of gated,
are taken times ‖W_dec‖, and latents are divided by it before they are decoded. Batch top-k
dictionaries, Matryoshka ones included, are jumprelu at inference. Conventions are those of
SAELens 6. Cost: two products of (rows, d_in, d_sae).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NoReturn

import torch
from jaxtyping import Float
from torch import Tensor

from mechint.errors import ParameterError
from mechint.interventions import Intervention, Site, Zero, asked, loss_under
from mechint.subject import Subject
from mechint.task import IGNORE

ARCHITECTURES = ("standard", "jumprelu", "topk", "gated")
NORMALIZATIONS = ("none", "layer_norm", "constant_norm_rescale")
EPS = 1e-5
"""Added by SAELens to the standard deviation of a layer norm."""


@dataclass(frozen=True)
class Dictionary:
    """One sparse autoencoder.

    threshold: of jumprelu; k: of topk; r_mag, b_mag: of gated, whose b_enc is the bias of its gate.
    hook: of its activations, None where its file does not tell; head: the one head of that hook,
    None for all. subtract_b_dec: whether b_dec is subtracted from the input. normalization: see
    NORMALIZATIONS. rescale: whether latents are in units of what they write (times ‖W_dec‖).

    Raises:
        ParameterError: an architecture or normalization that is not among those, no threshold or k
            where it takes one, or tensors whose shapes do not fit each other.

    >>> eye = torch.eye(2)
    >>> signs = Dictionary("standard", torch.cat([eye, -eye], 1), torch.zeros(4),
    ...     torch.cat([eye, -eye]), torch.zeros(2))
    >>> x = torch.tensor([[1.0, -2.0]])
    >>> signs.encode(x).tolist(), signs.reconstruct(x).tolist()
    ([[1.0, 0.0, 0.0, 2.0]], [[1.0, -2.0]])
    """

    architecture: str
    W_enc: Float[Tensor, "d_in d_sae"]
    b_enc: Float[Tensor, " d_sae"]
    W_dec: Float[Tensor, "d_sae d_in"]
    b_dec: Float[Tensor, " d_in"]
    threshold: Float[Tensor, " d_sae"] | None = None
    k: int | None = None
    hook: str | None = None
    subtract_b_dec: bool = True
    normalization: str = "none"
    rescale: bool = False
    head: int | None = None
    r_mag: Float[Tensor, " d_sae"] | None = None
    b_mag: Float[Tensor, " d_sae"] | None = None

    def __post_init__(self) -> None:
        for name, known in (("architecture", ARCHITECTURES), ("normalization", NORMALIZATIONS)):
            value = getattr(self, name)
            if value not in known:
                self._reject(f"{name}={value!r}: expected one of {', '.join(known)}")
        if self.W_enc.dim() != 2:
            self._reject(f"W_enc of shape {tuple(self.W_enc.shape)}: expected (d_in, d_sae)")
        shapes = {
            "b_enc": (self.d_sae,),
            "W_dec": (self.d_sae, self.d_in),
            "b_dec": (self.d_in,),
            "threshold": (self.d_sae,),
            "r_mag": (self.d_sae,),
            "b_mag": (self.d_sae,),
        }
        owner = {"threshold": "jumprelu", "r_mag": "gated", "b_mag": "gated"}
        for name, shape in shapes.items():
            value = getattr(self, name)
            if value is None and owner.get(name) != self.architecture:
                continue
            if value is None or tuple(value.shape) != shape:
                got = "None" if value is None else f"of shape {tuple(value.shape)}"
                self._reject(f"{name} {got}: expected shape {shape}")
        if self.architecture == "topk" and (self.k is None or not 1 <= self.k <= self.d_sae):
            self._reject(f"k={self.k}: expected 1 to d_sae={self.d_sae}")

    def _reject(self, what: str) -> NoReturn:
        raise ParameterError(f"dictionary: {what}")

    @property
    def d_in(self) -> int:
        """Width of the activation."""
        return self.W_enc.shape[0]

    @property
    def d_sae(self) -> int:
        """Number of latents."""
        return self.W_enc.shape[1]

    @property
    def norms(self) -> Float[Tensor, " d_sae"]:
        """‖W_dec‖ of every latent, at least 1e-8."""
        return self.W_dec.norm(dim=-1).clamp_min(1e-8)

    def folded(self) -> Dictionary:
        """The same latents and reconstructions without `rescale`: W_dec of unit rows, what comes
        before the activation scaled by its norms.
        """
        if not self.rescale:
            return self
        norms = self.norms
        return replace(
            self,
            W_enc=self.W_enc * norms,
            b_enc=self.b_enc * norms,
            b_mag=None if self.b_mag is None else self.b_mag * norms,
            W_dec=self.W_dec / norms[:, None],
            rescale=False,
        )

    @property
    def site(self) -> Site:
        """The activation it was trained on, of its head alone where it has one, at every position.

        Raises:
            ParameterError: its file does not name one.
        """
        if self.hook is None:
            raise ParameterError(
                "dictionary: its file names no hook; expected hook=..., e.g. "
                "load_dictionary(path, hook='blocks.0.hook_resid_post')"
            )
        return Site(self.hook, units=() if self.head is None else (self.head,))

    def encode(self, x: Float[Tensor, "*rows d_in"]) -> Float[Tensor, "*rows d_sae"]:
        """The latents of activations x.

        Raises:
            ParameterError: x has another width.
        """
        return self._encode(x)[0]

    def reconstruct(
        self, x: Float[Tensor, "*rows d_in"], without: tuple[int, ...] = ()
    ) -> Float[Tensor, "*rows d_in"]:
        """Return the reconstruction from the latents of x without those in `without`.

        Raises:
            ParameterError: x has another width, or there is no such latent.
        """
        wrong = [index for index in without if not -self.d_sae <= index < self.d_sae]
        if wrong:
            raise ParameterError(f"latent {wrong[0]}: expected 0 … {self.d_sae - 1}")
        latents, undo = self._encode(x)
        if without:
            latents = latents.clone()
            latents[..., list(without)] = 0
        if self.rescale:
            latents = latents / self.norms.to(latents)
        return undo(latents @ self.W_dec.to(x) + self.b_dec.to(x))

    def _encode(self, x: Tensor) -> tuple[Tensor, Callable[[Tensor], Tensor]]:
        """The latents, and what undoes the normalization."""
        if x.shape[-1] != self.d_in:
            raise ParameterError(
                f"dictionary: activations of width {x.shape[-1]}, expected d_in={self.d_in}"
            )
        normed, undo = _normalize(self.normalization, x)
        inputs = normed - self.b_dec.to(x) if self.subtract_b_dec else normed
        raw = inputs @ self.W_enc.to(x)
        pre = raw + self.b_enc.to(x)
        scale = self.norms.to(x) if self.rescale else 1.0
        if self.architecture == "gated":
            assert self.r_mag is not None and self.b_mag is not None
            magnitude = raw * self.r_mag.to(x).exp() + self.b_mag.to(x)
            return magnitude.relu() * (pre > 0) * scale, undo
        pre = pre * scale
        if self.architecture == "topk":
            assert self.k is not None
            top = pre.topk(self.k, -1)
            return torch.zeros_like(pre).scatter(-1, top.indices, top.values.relu()), undo
        if self.architecture == "jumprelu":
            assert self.threshold is not None
            return pre.relu() * (pre > self.threshold.to(pre)), undo
        return pre.relu(), undo


def _normalize(kind: str, x: Tensor) -> tuple[Tensor, Callable[[Tensor], Tensor]]:
    if kind == "layer_norm":
        mean = x.mean(-1, keepdim=True)
        spread = (x - mean).std(-1, keepdim=True)
        return (x - mean) / (spread + EPS), lambda y: y * spread + mean
    if kind == "constant_norm_rescale":
        factor = x.shape[-1] ** 0.5 / x.norm(dim=-1, keepdim=True)
        return x * factor, lambda y: y / factor
    return x, lambda y: y


@dataclass(frozen=True)
class Reconstruct(Intervention):
    """Set to the reconstruction by `dictionary`, without the latents `without`.

    keep_error: what the dictionary does not rebuild is added back, so that only the ablated latents
    change the activation. An activation with heads, (…, head, d_head), is taken as one vector where
    the dictionary is as wide as all heads.
    """

    dictionary: Dictionary
    without: tuple[int, ...] = ()
    keep_error: bool = False

    def replacement(self, part: Tensor) -> Tensor:
        flat = part
        if part.shape[-1] != self.dictionary.d_in and part.dim() > 2:
            flat = part.flatten(-2)
        new = self.dictionary.reconstruct(flat, self.without)
        if self.keep_error:
            new = new + flat - self.dictionary.reconstruct(flat)
        return new.reshape(part.shape)


# --- the loss that one keeps ---------------------------------------------------------------------
ROUNDING = 1e-12
"""Share of the squares of an activation below which its variance is rounding of the sums."""


@dataclass(frozen=True)
class Recovery:
    """Share of the loss that a dictionary keeps when its reconstruction replaces the activation.

    loss, reconstructed, zeroed: cross-entropy at the answer in nats, mean over the outputs that are
    asked, with the activation as it is (L), rebuilt (L_rec), and set to zero (L₀); recovered:
    (L₀ − L_rec) / (L₀ − L), 1 where the reconstruction does as well as the activation itself, 0
    where it does as badly as zeros (Bricken et al. 2023, Towards Monosemanticity; SAELens's
    ce_loss_score), NaN where zeros cost nothing. l0: latents above zero per row, mean; explained:
    share of the activation's variance that the reconstruction explains, ≤ 1, NaN where it does not
    vary; both over the positions that the examples have, without padding.
    """

    loss: float
    reconstructed: float
    zeroed: float
    recovered: float
    l0: float
    explained: float


def recovery(subject: Subject, dictionary: Dictionary, site: Site | None = None) -> Recovery:
    """Return what the dictionary keeps of the subject's loss on its data. Cost: three forwards.

    site: where the reconstruction is put; the dictionary's own hook at every position when None.

    Raises:
        ParameterError: the subject has no task, the dictionary names no hook, or another width.
    """
    if subject.task is None or not len(subject.answers):
        raise ParameterError(f"{subject.describe()}: no answer, so there is no loss to recover")
    site = dictionary.site if site is None else site
    loss, rebuilt, zeroed = (
        _mean(subject, loss_under(subject, edits))
        for edits in ([], [Reconstruct(site, dictionary)], [Zero(site)])
    )
    l0, explained = _fit(subject, dictionary, site)
    span = zeroed - loss
    recovered = (zeroed - rebuilt) / span if span > 1e-9 else float("nan")
    return Recovery(loss, rebuilt, zeroed, recovered, l0, explained)


def _fit(subject: Subject, dictionary: Dictionary, site: Site) -> tuple[float, float]:
    """Mean latents above zero, and the share of variance explained."""
    active = count = 0.0
    error = total = torch.zeros((), dtype=torch.float64)
    sums = torch.zeros(dictionary.d_in, dtype=torch.float64)
    every, _ = asked(subject, subject.data)
    own = subject.data.own_positions(site.pos)
    for start in range(0, len(subject.data), subject.chunk):
        rows = slice(start, start + subject.chunk)
        found = subject.activation(site.hook, data=subject.data[rows])
        x = site.select(found, every[rows])
        x = (x if own is None else x[own[rows]]).reshape(-1, dictionary.d_in)
        latents, rebuilt = dictionary.encode(x), dictionary.reconstruct(x)
        active += float((latents > 0).sum())
        count += len(x)
        x, rebuilt = x.double().cpu(), rebuilt.double().cpu()
        error = error + (x - rebuilt).square().sum()
        total = total + x.square().sum()
        sums = sums + x.sum(0)
    variance = float(total - sums.square().sum() / count)
    varies = variance > ROUNDING * float(total)
    return active / count, 1 - float(error) / variance if varies else float("nan")


def _mean(subject: Subject, losses: dict[str, float]) -> float:
    """Over the outputs with an answer; the others have no loss."""
    answered = (subject.targets != IGNORE).any(0).tolist()
    asked_of = [loss for loss, some in zip(losses.values(), answered, strict=True) if some]
    return sum(asked_of) / len(asked_of)
