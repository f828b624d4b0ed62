"""Measurements on trained models; written by ``python -m mechint.stubs``."""

from typing import Any

from mechint.results import ProbeResult
from mechint.subject import Subject, Which

def names() -> list[str]: ...
def run(
    name: str, subject: Subject, *, seed: int = 0, answer: Which | None = None, **settings: Any
) -> ProbeResult: ...

def ablation(
    subject: Subject,
    *,
    seed: int = ...,
    answer: Which | None = ...,
    components: tuple[str, ...] = ...,
    mode: str = ...,
    neurons: int = ...,
    directions: int = ...,
    examples: int = ...,
    least: float = ...,
    null_examples: int = ...,
    null_samples: int = ...,
    sign_flips: int = ...,
) -> ProbeResult:
    """Which ablation breaks which answer: what does every output lose without a layer, head, neuron
    or direction?"""

def attention(
    subject: Subject,
    *,
    seed: int = ...,
    answer: Which | None = ...,
    example: int = ...,
    examples: int = ...,
    target: tuple[int, ...] | None = ...,
    least: float = ...,
    alpha: float = ...,
    samples: int = ...,
    untrained: int = ...,
) -> ProbeResult:
    """Where does each head look: from the answer's position to the operands, at the previous or an
    earlier equal token, at a target?"""

def attribution(
    subject: Subject,
    *,
    seed: int = ...,
    answer: Which | None = ...,
    variable: str | None = ...,
    ablation: str | None = ...,
    examples: int = ...,
    only_correct: bool = ...,
    null_samples: int = ...,
) -> ProbeResult:
    """Which components write the answer, what is lost without each, and does a gradient tell it?"""

def circuits(
    subject: Subject,
    *,
    seed: int = ...,
    answer: Which | None = ...,
    variable: str | None = ...,
    ablation: str | None = ...,
    method: str | None = ...,
    by_position: bool | None = ...,
    threshold: float = ...,
    pairs: int = ...,
    held_out: int = ...,
    only_correct: bool = ...,
    null_samples: int = ...,
) -> ProbeResult:
    """Which edges between heads, MLPs, embedding and logits compute the answer, and do they alone?"""

def clock_pizza(
    subject: Subject,
    *,
    seed: int = ...,
    answer: Which | None = ...,
    triples: int = ...,
    permutations: int = ...,
    symmetric: float = ...,
    asymmetric: float = ...,
    irrelevant: float = ...,
    relevant: float = ...,
    effect: float = ...,
    alpha: float = ...,
) -> ProbeResult:
    """Does the model add its operands as a clock, as a pizza, as both or as neither?"""

def das(
    subject: Subject,
    *,
    seed: int = ...,
    answer: Which | None = ...,
    variable: str | None = ...,
    jointly: tuple[str, ...] = ...,
    hook: str | None = ...,
    layers: tuple[int, ...] | None = ...,
    pos: int | None = ...,
    dimensions: tuple[int, ...] = ...,
    steps: int = ...,
    batch_size: int = ...,
    lr: float = ...,
    pairs: int = ...,
    held_out: int = ...,
    only_correct: bool = ...,
    threshold: float = ...,
    most_input: float = ...,
    null_samples: int = ...,
    control_seeds: int = ...,
) -> ProbeResult:
    """Which subspace of the activations holds a causal variable, and how often does swapping it
    swap the answer?"""

def embedding(
    subject: Subject,
    *,
    seed: int = ...,
    answer: Which | None = ...,
    components: int = ...,
    positions: tuple[int, int] = ...,
    tokens: int = ...,
    permutations: int = ...,
    alpha: float = ...,
) -> ProbeResult:
    """How are the value tokens laid out in the embedding: its rank, its order by parity, residue
    and on a circle?"""

def fourier(
    subject: Subject,
    *,
    seed: int = ...,
    answer: Which | None = ...,
    factor: float = ...,
    cosine: float = ...,
    alpha: float = ...,
    permutations: int = ...,
    active_sigma: float = ...,
    neuron_fraction: float = ...,
    neuron_mixtures: int = ...,
    operand_permutations: int = ...,
    least_rise: float = ...,
    removal_samples: int = ...,
    removal_examples: int = ...,
    steps: int = ...,
) -> ProbeResult:
    """At which frequencies do embedding, neurons, residual stream and logits vary with the operands
    and the answer?"""

def gradients(
    subject: Subject,
    *,
    seed: int = ...,
    answer: Which | None = ...,
    split: str = ...,
    weights: str = ...,
    permutations: int = ...,
    checkpoints: int = ...,
) -> ProbeResult:
    """How large is the gradient of the loss at every weight, now and at the run's other
    checkpoints?"""

def interference(
    subject: Subject,
    *,
    seed: int = ...,
    answer: Which | None = ...,
    neurons: int | None = ...,
    layer: int | None = ...,
    examples: int = ...,
    batches: int = ...,
    batch_size: int = ...,
    series: int = ...,
    null_samples: int = ...,
) -> ProbeResult:
    """Do batch gradients move the model along its task's reference direction, against it, or past
    it?"""

def irreps(
    subject: Subject,
    *,
    seed: int = ...,
    answer: Which | None = ...,
    table: str = ...,
    cosine: float = ...,
    factor: float = ...,
    alpha: float = ...,
    permutations: int = ...,
    named: int = ...,
    examples: int = ...,
    removal_samples: int = ...,
    removal_examples: int = ...,
    least_rise: float = ...,
) -> ProbeResult:
    """In which irreducible representations of the group do embedding, hidden layer, unembedding and
    logits live?"""

def lens(
    subject: Subject,
    *,
    seed: int = ...,
    answer: Which | None = ...,
    permutations: int = ...,
) -> ProbeResult:
    """What does the residual stream already answer after every layer, and which heads and layers
    wrote the answer?"""

def linear(
    subject: Subject,
    *,
    seed: int = ...,
    answer: Which | None = ...,
    variable: str | None = ...,
    variables: int = ...,
    hook: str | None = ...,
    pos: int | None = ...,
    kind: str = ...,
    ridge: float | None = ...,
    examples: int = ...,
    permutations: int = ...,
) -> ProbeResult:
    """Which causal variables can be read off the residual stream linearly, and from which layer on?"""

def llc(
    subject: Subject,
    *,
    seed: int = ...,
    answer: Which | None = ...,
    chains: int = ...,
    draws: int = ...,
    burn_in: int = ...,
    batch_size: int = ...,
    step_size: float | None = ...,
    localization: float = ...,
    temperature: float | None = ...,
    tolerance: float = ...,
    split: str = ...,
) -> ProbeResult:
    """What is the model's local learning coefficient, and is it below the d/2 of a regular model?"""

def neurons(
    subject: Subject,
    *,
    seed: int = ...,
    answer: Which | None = ...,
    own: float = ...,
    sample: int = ...,
    permutations: int = ...,
    examples: int = ...,
    most: int = ...,
) -> ProbeResult:
    """Into which clusters, one per frequency or representation, do the last layer's neurons fall?"""

def norms(
    subject: Subject,
    *,
    seed: int = ...,
    answer: Which | None = ...,
    other: str | None = ...,
    bins: int = ...,
    bootstrap: int = ...,
    null_models: int = ...,
    null_examples: int = ...,
) -> ProbeResult:
    """How large is what each sublayer adds, relative to what it is given, and is that different in
    another model?"""

def patching(
    subject: Subject,
    *,
    seed: int = ...,
    answer: Which | None = ...,
    variable: str | None = ...,
    components: tuple[str, ...] = ...,
    layers: tuple[int, ...] | None = ...,
    pairs: int = ...,
    only_correct: bool = ...,
    null_samples: int = ...,
) -> ProbeResult:
    """Which layers, positions and heads carry the information that turns one answer into another?"""

def progress(
    subject: Subject,
    *,
    seed: int = ...,
    answer: Which | None = ...,
    keys: tuple[int, ...] | None = ...,
    output: str | None = ...,
    keep_bias: bool = ...,
    samples: int = ...,
    steps: int = ...,
) -> ProbeResult:
    """How much of the loss do the key frequencies carry: restricted and excluded loss, Gini,
    weights, trigonometric share?"""

def subspace(
    subject: Subject,
    *,
    seed: int = ...,
    answer: Which | None = ...,
    mass: float = ...,
    samples: int = ...,
) -> ProbeResult:
    """Which tasks' features does the encoder hold, and how much of the frequent tasks' signal is
    left out?"""

def weights(
    subject: Subject,
    *,
    seed: int = ...,
    answer: Which | None = ...,
    draws: int = ...,
    directions: int = ...,
    removals: int = ...,
    examples: int = ...,
    rise: float = ...,
    tokens: int = ...,
    most: int = ...,
) -> ProbeResult:
    """Which heads copy tokens, which read what another wrote, and which of their singular
    directions is the loss sensitive to?"""
