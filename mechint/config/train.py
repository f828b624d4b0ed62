"""The settings of a training: the optimizer, its schedule, what is evaluated and kept."""

from __future__ import annotations

import dataclasses

from mechint.config.settings import Settings, setting

LARGEST_SEED = 2**32 - 1


@dataclasses.dataclass(frozen=True)
class TrainConfig(Settings):
    """Settings of a training.

    Grokfast (Lee et al. 2024): `ema` filters gradients with mu ← alpha mu + (1 - alpha) g, `ma`
    with a moving average over `grokfast_window` steps; the optimizer sees g + lamb mu. Muon: Jordan
    et al. 2024. StableMax (`loss`) and ⊥Grad (`orthogonal_grad`): Prieto et al. 2025.
    """

    steps: int = setting(5000, "optimizer steps", low=1, high=10**8)
    batch_size: int | None = setting(
        None, "examples per step; the whole training set when none", low=1, high=2**24
    )
    optimizer: str = setting(
        "adamw",
        (
            "adamw decouples the decay, adam adds it to the gradient; muon moves hidden matrices, "
            "and the rest by adamw"
        ),
        choices=("adamw", "adam", "sgd", "muon"),
    )
    lr: float = setting(1e-3, "learning rate", low=1e-30, high=1e30)
    betas: tuple[float, float] = setting((0.9, 0.98), "Adam's moments' decay", low=0, high=0.999999)
    eps: float = setting(1e-8, "Adam's epsilon", low=0, high=1)
    momentum: float = setting(0.0, "momentum of sgd", low=0, high=1)
    muon_lr: float = setting(0.02, "learning rate of muon's matrices", low=0, high=1e30)
    muon_momentum: float = setting(0.95, "momentum of muon's matrices", low=0, high=1)
    orthogonal_grad: bool = setting(
        False, "drop the gradient's part along the weights, of each parameter by itself"
    )
    weight_decay: float = setting(
        1.0, "decay; weights only where decay_matrices_only", low=0, high=1e6
    )
    decay_matrices_only: bool = setting(False, "no decay on biases and norm weights")
    warmup: int = setting(10, "steps of linear warm-up", low=0, high=10**8)
    schedule: str = setting(
        "constant",
        "learning rate after warm-up",
        choices=("constant", "cosine", "inverse_sqrt", "linear"),
    )
    min_lr: float = setting(0.0, "where cosine and linear end", low=0, high=1e30)
    grokfast: str | None = setting(None, "gradient filter", choices=("ema", "ma"))
    grokfast_lamb: float = setting(2.0, "weight of the slow gradient", low=0, high=1e6)
    grokfast_alpha: float = setting(0.98, "memory of the slow gradient (ema)", low=0, high=1)
    grokfast_window: int = setting(100, "steps averaged (ma)", low=1, high=10**5)
    grokfast_start: str = setting(
        "first",
        "the slow gradient starts at the first gradient, or at zero",
        choices=("first", "zero"),
    )
    clip: float | None = setting(None, "largest L2 norm of the gradient", low=0, high=1e30)
    loss: str = setting(
        "softmax", "probabilities in the cross-entropy", choices=("softmax", "stablemax")
    )
    output_weights: str = setting(
        "equal", "loss: mean over outputs, or sum of CE_q / ln(classes)", choices=("equal", "log")
    )
    evaluate_every: int = setting(100, "steps between evaluations", low=1, high=10**8)
    eval_examples: int = setting(
        2000, "examples of a generated task that are evaluated", low=1, high=2**24
    )
    checkpoints: str | None = setting(
        "thin",
        (
            "checkpoints kept besides the last, and evaluated: thin, a few, spaced "
            "logarithmically; log; linear; none"
        ),
        choices=("thin", "log", "linear", "last"),
    )
    n_checkpoints: int = setting(20, "how many of them; thin keeps at most 32", low=1, high=10**5)
    stop_accuracy: float | None = setting(
        None, "stop when test accuracy of every output is at least this", low=0, high=1
    )
    stop_patience: int | None = setting(
        None,
        "stop when so many evaluations in a row each changed the training loss by less than "
        "stop_delta",
        low=1,
        high=10**8,
    )
    stop_delta: float = setting(2.5e-4, "what counts as a change", low=0, high=1e30)
    stop_after: int = setting(0, "no early stop before this step", low=0, high=10**8)
    precision: str = setting(
        "float32", "arithmetic of the training step", choices=("float32", "tf32", "bf16", "float64")
    )
    seed: int = setting(0, "seed of weights, split, order and dropout", low=0, high=LARGEST_SEED)
    data_seed: int | None = setting(
        None, "seed of split and order in place of seed", low=0, high=LARGEST_SEED
    )

    @classmethod
    def label(cls) -> str:
        return "train"
