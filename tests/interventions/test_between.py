"""The stream between attention and MLP in models of another library: what their own block passes
on, or a refusal.
"""

from __future__ import annotations

import pytest

from mechint.errors import ParameterError
from mechint.interventions.resuming import check_adds
from tests.conformance.test_edits import model_of
from tests.conformance.test_models import inputs


@pytest.mark.parametrize(
    ("kind", "adds"),
    [("gpt2", True), ("llama", True), ("gpt_neox", True), ("opt, norms behind", False)],
)
def test_only_what_is_not_a_sum_is_refused(kind: str, adds: bool) -> None:
    """With its norms behind, an OPT passes on the norm of the sum; a NeoX has no place between."""
    model, tokens = model_of(kind), inputs(kind)
    for layer in (0, 1):
        if adds:
            check_adds(model, tokens, layer)
        else:
            with pytest.raises(ParameterError, match=r"OPTForCausalLM .* is not their sum"):
                check_adds(model, tokens, layer)
