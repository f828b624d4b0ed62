"""Tasks whose algorithm is known; written by ``python -m mechint.stubs``."""

from collections.abc import Mapping
from typing import Any

from mechint.task import Task
from tasks.brackets import Brackets
from tasks.composition.task import Composition
from tasks.corpus.task import Corpus
from tasks.digit_sum import DigitSum
from tasks.first_unique import FirstUnique
from tasks.groups import Groups
from tasks.listops.task import ListOps
from tasks.listops.triplets import Triplets
from tasks.lists import MaxOfList
from tasks.lists import SortedList
from tasks.modular import ModularArithmetic
from tasks.ordering import Comparison
from tasks.ordering import HiddenAddition
from tasks.palindromes import Palindromes
from tasks.rasp import Rasp
from tasks.regression import RegressionMixture
from tasks.remainders import Remainders
from tasks.repeated import RepeatedTokens
from tasks.running_sign import RunningSign
from tasks.single_index import SingleIndex

def names() -> list[str]: ...
def make(name: str, **parameters: Any) -> Task: ...

def balanced_brackets(
    *,
    labels: str = ...,
    length: int = ...,
    shortest: int | None = ...,
    read_at: str = ...,
) -> Brackets:
    """Whether a string of brackets is balanced, read at its start or its end: class 1 when it is."""

def comparison(
    *,
    train_fraction: float = ...,
    validation_fraction: float = ...,
    labels: str = ...,
    label_seed: int = ...,
    equals: bool = ...,
    n: int = ...,
    bijection_seed: int = ...,
) -> Comparison:
    """Whether a comes before b in a hidden order of the tokens: class 1 when rank a < rank b, else
    0."""

def composition(
    *,
    n: int = ...,
    k: int = ...,
    hops: tuple[int, ...] = ...,
    perm_seed: int = ...,
    weights: tuple[float, ...] | None = ...,
    stages: tuple[int, ...] | None = ...,
    cumulative: bool = ...,
    labels: str = ...,
) -> Composition:
    """r-hop queries (σᵢ₊ᵣ₋₁ ∘ πᵢ₊ᵣ₋₁ ∘ … ∘ σᵢ ∘ πᵢ)(j) at every position, π hidden and fixed, σ
    fresh in each example."""

def corpus(
    *,
    n_ctx: int = ...,
    path: str | None = ...,
    dataset: str | None = ...,
    dataset_field: str = ...,
    tokenizer: str = ...,
    vocab_size: int | None = ...,
    reference_rate: float = ...,
    language_seed: int = ...,
    inject: str | None = ...,
    inject_parameters: Mapping[str, Any] | None = ...,
    frequency: float = ...,
    gap: int = ...,
    inject_seed: int = ...,
) -> Corpus:
    """A language-modeling stream into which any token task is injected at a set frequency, or in
    bursts."""

def digit_sum(
    *,
    labels: str = ...,
    digits: int = ...,
    leading: int = ...,
    extra_digit: bool = ...,
    base: int = ...,
    reversed_answer: bool = ...,
) -> DigitSum:
    """a + b of two numbers of the same number of digits, a character each: ``1234+2345=3579``."""

def first_unique(
    *,
    labels: str = ...,
    n: int = ...,
    length: int = ...,
    opening: bool = ...,
) -> FirstUnique:
    """At every position, the first of the letters so far that occurred once; ``?`` where none did."""

def groups(
    *,
    train_fraction: float = ...,
    validation_fraction: float = ...,
    labels: str = ...,
    label_seed: int = ...,
    equals: bool = ...,
    group: str = ...,
    table: tuple[tuple[int, ...], ...] | None = ...,
) -> Groups:
    """The product x·y in a finite group: cyclic, dihedral, symmetric, alternating, a direct
    product, or a given table."""

def hidden_addition(
    *,
    train_fraction: float = ...,
    validation_fraction: float = ...,
    labels: str = ...,
    label_seed: int = ...,
    equals: bool = ...,
    n: int = ...,
    bijection_seed: int = ...,
) -> HiddenAddition:
    """Addition modulo n of the hidden ranks of two tokens; class i is the rank i."""

def listops(
    *,
    algebra: str = ...,
    n: int = ...,
    operations: tuple[str, ...] | None = ...,
    weights: tuple[float, ...] | None = ...,
    operands: int = ...,
    min_operands: int | None = ...,
    depth: int = ...,
    chain_of_thought: bool = ...,
    spelling: str = ...,
    addition: str = ...,
    answers: str = ...,
    table_seed: int = ...,
    excluded: int | None = ...,
    excluded_seed: int = ...,
    loss_on: str = ...,
    context: int | None = ...,
    train_examples: int | None = ...,
    ramp_operation: str | None = ...,
    ramp_start: int = ...,
    ramp_steps: int = ...,
) -> ListOps:
    """Nested MAX, MIN, MED, ADD, PROD and NADD mod n, or products of permutations, a character at a
    time."""

def listops_triplets(
    *,
    n: int = ...,
    operations: tuple[str, ...] = ...,
    test_operation: str | None = ...,
    excluded: int | None = ...,
    per_operation: int | None = ...,
    addition: str = ...,
    answers: str = ...,
    table_seed: int = ...,
    loss_on: str = ...,
) -> Triplets:
    """ListOps on single triplets, ``s(%123)=6e``: all n³ under each operation, `excluded` triplets
    held out."""

def max_of_list(
    *,
    labels: str = ...,
    n: int = ...,
    length: int = ...,
    marker: bool = ...,
    close: float = ...,
) -> MaxOfList:
    """The largest number of a list, read at its last position."""

def modular_arithmetic(
    *,
    train_fraction: float = ...,
    validation_fraction: float = ...,
    labels: str = ...,
    label_seed: int = ...,
    equals: bool = ...,
    p: int = ...,
    operation: str = ...,
    table: tuple[tuple[int, ...], ...] | None = ...,
    separate_vocabulary: bool = ...,
) -> ModularArithmetic:
    """Addition, subtraction, multiplication, x²+y² or x²+xy+y² modulo p, or a p×p table of the
    caller's."""

def palindromes(
    *,
    labels: str = ...,
    n: int = ...,
    half_length: int = ...,
    markers: bool = ...,
) -> Palindromes:
    """Whether 2 · half_length values are the same backwards: class 1 if so, read at the end."""

def rasp(
    *,
    labels: str = ...,
    program: str = ...,
    n: int = ...,
    length: int = ...,
) -> Rasp:
    """A list of numbers after BOS: reversed, sorted, or how often each of them occurs."""

def regression_mixture(
    *,
    n: int = ...,
    n_tasks: int = ...,
    rank: int = ...,
    alpha: float = ...,
    beta: float = ...,
    beta_rarest: float | None = ...,
    gap: int = ...,
    normalization: str = ...,
    rotation: int | None = ...,
    labels: str = ...,
) -> RegressionMixture:
    """Linear regressions in orthogonal blocks, task prior and spectrum as power laws."""

def remainders(
    *,
    train_fraction: float = ...,
    validation_fraction: float = ...,
    labels: str = ...,
    label_seed: int = ...,
    equals: bool = ...,
    p: int = ...,
    masked: tuple[int, ...] = ...,
    target: str = ...,
) -> Remainders:
    """Remainders of x = x0 + x1·p by all primes q < p at once, one group of classes a prime."""

def repeated_tokens(
    *,
    labels: str = ...,
    n: int = ...,
    length: int = ...,
    copies: int = ...,
    context: int | None = ...,
    distinct: bool = ...,
    held_out: bool = ...,
) -> RepeatedTokens:
    """A random piece that occurs twice or more often: continue it from the second time on."""

def running_sign(
    *,
    labels: str = ...,
    largest: int = ...,
    length: int = ...,
) -> RunningSign:
    """At every position, whether the sum so far is negative, zero or positive: classes 0, 1, 2."""

def single_index(
    *,
    d: int = ...,
    n_directions: int = ...,
    beta: float = ...,
    hermite: tuple[float, ...] = ...,
    rotation: int | None = ...,
    labels: str = ...,
) -> SingleIndex:
    """Additive Gaussian single-index target with power-law second layer."""

def sorted_list(
    *,
    labels: str = ...,
    n: int = ...,
    length: int = ...,
    distinct: bool = ...,
) -> SortedList:
    """A list, a separator, and the list in ascending order, each number read from the one before."""
