"""What a probe or a reader must never do again, each with the tests that fail when it does.

Every entry of MAP states how a right number once gave a wrong answer; its tests are named by file
and function, and this file checks that they are there.
"""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import probes
import tasks
from mechint import planted
from mechint.config import ModelConfig
from mechint.counterfactuals import choose_variable, draw
from mechint.models.transformer import HookedTransformer
from mechint.reporting import AT_CHANCE
from mechint.subject import Subject
from probes._das import SwapSite, controls

TESTS = Path(__file__).parent
HERE = Path(__file__).name

MAP: dict[str, tuple[str, ...]] = {
    # --- the wrong place
    "an answer that moves was read at the last position of the longest example": (
        f"{HERE}::test_a_model_that_ends_every_text_answers_nothing",
        "test_subject.py::test_an_answer_is_taken_at_its_own_position_in_each_example",
        "test_task.py::test_the_answer_of_listops_is_the_character_after_the_equals_sign",
        "test_counterfactuals.py::test_a_solved_listops_has_pairs_at_its_digit",
        "probes/test_answer.py::test_every_probe_can_be_asked_about_all_answers",
    ),
    "an example that lacks the answer asked about was measured at its first position": (
        "test_subject.py::test_an_example_without_the_answer_is_measured_nowhere",
        "dictionaries/test_dictionaries.py::test_an_example_without_the_answer_is_not_exported",
        "probes/test_other_examples.py::test_examples_without_the_answer_do_not_hide_it",
    ),
    "a variable without a position was exchanged with the whole input": (
        "test_counterfactuals.py::test_variables_without_positions_differ_in_little_else",
        "test_counterfactuals.py::test_an_answer_that_cannot_depend_on_the_variable_is_refused",
        "test_counterfactuals.py::test_too_few_pairs_say_which_were_missing",
    ),
    "losses of train and test were printed on a split that was not the model's": (
        f"{HERE}::test_parts_are_named_only_where_the_split_is_known",
        "checkpoints/test_splits.py::test_where_the_split_is_not_known_there_is_none",
        "checkpoints/test_splits.py::test_the_files_seed_is_its_own",
        "checkpoints/test_splits.py::test_published_rep_theory_models_have_their_losses_on_both_parts",
        "checkpoints/test_readers.py::test_published_progress_measures_model_has_its_published_losses",
    ),
    "a grid and a split were read off examples in another order, or off some of them": (
        "test_subject.py::test_data_are_a_grid_where_they_are_all_inputs_in_order",
        "probes/test_other_examples.py::test_a_probe_of_the_grid_refuses_examples_in_another_order",
        "probes/test_other_examples.py::test_no_split_is_named_on_examples_in_another_order",
    ),
    "attention was scored on neighbors in the grid, by nulls of too few orders": (
        "probes/test_attention.py::test_scores_look_at_inputs_from_the_whole_grid",
        "probes/test_attention.py::test_three_tokens_have_too_few_orders",
    ),
    "a variable was called the most decodable of those that were not looked at": (
        "probes/test_linear.py::test_a_variable_is_held_against_all_that_were_probed",
        "probes/test_linear.py::test_one_of_many_variables_is_not_called_the_most_decodable",
        "probes/test_linear.py::test_nothing_held_out_has_no_score",
    ),
    "what so few values could not have shown was denied": (
        "probes/test_linear.py::test_few_values_along_a_line_cannot_be_decided",
        "probes/test_few_arrangements.py::test_a_perfect_circle_of_few_tokens_is_not_denied",
        "probes/test_few_arrangements.py::test_five_classes_are_too_few_for_the_logits",
        "probes/test_few_arrangements.py::test_parity_of_few_tokens_is_not_denied",
    ),
    # --- the wrong order, the wrong subject
    "operands were read in the order of their tokens, which was not that of the group": (
        "probes/test_operands.py::test_representations_are_those_of_the_twin",
        "probes/test_operands.py::test_clusters_of_neurons_are_those_of_the_twin",
    ),
    "elements that are merely listed were said to lie on circles": (
        "probes/test_embedding.py::test_elements_that_are_merely_listed_have_no_parity_and_no_circle",
    ),
    "an observed order of keys beat its own ties by rounding": (
        "probes/test_attention.py::"
        "test_a_sample_in_the_order_of_the_keys_ties_with_what_is_observed",
    ),
    "an abstention did not say from what": (
        "test_finding.py::test_an_abstention_says_what_it_does_not_decide",
        "test_finding.py::test_every_sentence_of_the_probes_says_what_is_decided",
    ),
    "one removal had two numbers, by two draws of inputs": (
        "probes/test_rises.py::"
        "test_frequencies_and_representations_of_a_cyclic_group_are_worth_the_same",
    ),
    # --- the wrong sentence
    "a spectrum was taken for what the logits use": (
        "probes/test_fourier.py::"
        "test_second_harmonics_that_no_logit_shows_are_needed_in_published_models",
        "probes/test_fourier.py::test_a_removal_is_the_loss_of_a_model_with_edited_weights",
        "conformance/test_sentences.py::test_a_frequency_that_fourier_names_is_needed",
    ),
    "soft heads that beat the null were denied": (
        "probes/test_attention.py::test_three_soft_heads_are_named_beside_a_uniform_one",
        "probes/test_attention.py::test_soft_heads_are_named",
        "checkpoints/test_repeats.py::test_the_published_model_has_its_published_heads",
    ),
    "one of several components that do the same was named alone, picked by rounding": (
        "probes/test_ties.py::test_patching_names_the_first_of_those_that_recover_the_same",
        "probes/test_ties.py::test_ablation_orders_what_is_needed_by_place_where_harm_is_the_same",
    ),
    "a constant answer was held against chance over the task on examples of its own class": (
        "test_finding.py::test_on_some_examples_chance_is_their_commonest_answer",
    ),
    "sentences did not look at chance, at the sign of an effect or at its size": (
        "probes/test_lens.py::test_it_says_nothing_of_a_model_at_chance",
        "probes/test_lens.py::test_final_biases_that_give_more_than_any_component_are_named",
        "probes/test_lens.py::test_no_depth_is_named_where_few_answers_are_right",
        "probes/test_patching.py::test_an_untrained_model_carries_nothing_to_its_answer",
        "probes/test_embedding.py::test_several_circles_are_counted_and_positions_are_named",
        "probes/test_linear.py::test_an_operand_that_stands_there_is_no_finding",
        "conformance/test_sentences.py::test_what_is_found_was_shown",
        "conformance/test_sentences.py::test_nothing_is_said_about_answers_at_chance",
        "conformance/test_sentences.py::test_a_gain_is_not_called_harm",
    ),
    "a p-value at the floor of its null was printed as if it had been measured": (
        "test_finding.py::test_what_is_said",
        "test_finding.py::test_so_many_samples_reach_the_level_and_one_fewer_does_not",
        "probes/test_attention.py::test_as_many_samples_as_asked_for",
        "probes/test_das.py::test_too_few_null_samples_abstain",
    ),
    # --- the wrong null or rule
    "directions that carry the inputs were said to hold the answer": (
        "probes/test_das.py::test_inputs_that_are_carried_are_not_the_variable",
        "probes/test_das.py::test_directions_that_nothing_reads_are_split_off",
        "probes/test_das.py::test_a_failed_full_swap_is_said",
        "probes/test_das.py::test_the_search_says_where_the_variable_is",
        f"{HERE}::test_directions_that_need_no_search_by_closed_form",
        f"{HERE}::test_random_changes_have_the_norm_of_the_one_found",
    ),
    "a component that the model needs lost to rotations of its own vector": (
        "probes/test_ablation.py::test_planted_heads_are_needed_and_the_decoy_is_not",
        "checkpoints/test_repeats.py::test_the_published_model_has_its_published_heads",
    ),
    "frequencies were key in a flat spectrum": (
        "probes/test_fourier.py::test_the_flat_level_stands_above_noise",
        "probes/test_fourier.py::test_no_frequency_is_key_in_a_published_model_that_did_not_learn",
    ),
    "weak representations that the model needs were not mentioned, nor the threshold": (
        "probes/test_irreps.py::"
        "test_weak_representations_that_a_published_model_needs_are_found_by_removal",
    ),
    "a fixed ridge decided what can be decoded": (
        "probes/test_linear.py::test_the_penalty_is_the_best_on_the_validation_part",
        "probes/test_linear.py::test_a_penalty_that_hides_the_variable_is_not_chosen",
    ),
    "p-values were not uniform where nothing was learned": (
        "probes/test_null_uniformity.py::test_p_values_are_uniform_on_initial_weights",
        "probes/test_null_uniformity.py::test_p_values_are_uniform_on_200_initializations",
        "probes/test_null_uniformity.py::test_the_others_are_silent",
    ),
    "a representation of S6 was named by the order of the elements": (
        "groups/test_finite.py::test_the_table_of_s6_alone_names_no_standard_irrep",
        "groups/test_finite.py::test_names_do_not_depend_on_the_order_of_elements",
        "probes/test_irreps.py::test_the_data_is_read_once_where_the_tasks_table_fits",
    ),
    "a dictionary of one head rebuilt all of them": (
        "dictionaries/test_dictionaries.py::test_a_dictionary_of_one_head_changes_that_head_alone",
    ),
    # --- models that were not taken in
    "a wrapped module was read at the wrong axis, or where it had not answered": (
        "conformance/test_models.py::test_an_activation_whose_positions_come_first_is_refused",
        "conformance/test_models.py::"
        "test_a_module_that_answers_once_gives_that_answer_wherever_it_is_asked",
    ),
    "hooks that the user had put on a model were passed by": (
        "probes/test_attached_hooks.py::test_causal_probes_measure_the_model_with_its_hooks",
        "probes/test_attached_hooks.py::test_interchange_and_removals",
        "probes/test_attached_hooks.py::test_gradients_of_weights_pass_through_the_hooks",
        "interventions/test_recorded.py::test_a_model_with_hooks_on_it_runs_them",
    ),
    "probes raised errors of Python on causal language models": (
        "checkpoints/test_huggingface.py::test_analyze_ends_with_success",
        "checkpoints/test_huggingface.py::test_the_lens_of_the_last_layer_is_the_model",
        "conformance/test_models.py::test_a_recorded_value_is_what_passes_the_hook_point",
        "probes/test_foreign_models.py::test_a_zeroed_head_is_a_zeroed_projection",
        "probes/test_foreign_models.py::test_patching_the_whole_stream_gives_the_source",
        "probes/test_foreign_models.py::test_gradients_by_finite_differences",
    ),
    "what a file does not say was assumed in silence": (
        "checkpoints/test_assumptions.py::"
        "test_what_is_set_is_no_longer_assumed_and_the_model_is_the_one_that_was_saved",
        "checkpoints/test_assumptions.py::test_every_result_names_what_was_assumed",
        "checkpoints/test_assumptions.py::test_the_command_line_says_and_sets_them",
        "checkpoints/test_assumptions.py::"
        "test_the_published_bracket_classifier_is_right_read_as_bidirectional",
    ),
    "families of published models were not read, or taken for another": (
        "checkpoints/test_assumptions.py::test_native_models_answer_as_transformer_lens_does",
        "checkpoints/test_assumptions.py::"
        "test_a_bare_progress_measures_state_dict_is_not_taken_for_a_pizza_model",
        "checkpoints/test_assumptions.py::test_models_of_attention_alone",
        "checkpoints/test_pair_networks.py::test_one_layer_networks_compute_what_their_code_does",
        "checkpoints/test_pair_networks.py::test_linear_models_compute_what_their_code_does",
        "conformance/test_models.py::test_a_wrapped_module_answers_as_the_module_does",
    ),
}


@cache
def functions(path: Path) -> set[str]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}


@pytest.mark.parametrize("entry", MAP)
def test_every_test_that_is_named_is_there(entry: str) -> None:
    for name in MAP[entry]:
        file, _, function = name.partition("::")
        assert function.startswith("test_") and function in functions(TESTS / file), name


def test_a_model_that_ends_every_text_answers_nothing() -> None:
    """Its next character is always the end: right behind the digit, and never the digit."""
    task: Any = tasks.make("listops", depth=2, operations=["MAX", "MED"], chain_of_thought=False)
    shape = {"n_ctx": task.n_ctx, "d_vocab": task.d_vocab, "d_vocab_out": task.d_vocab_out}
    model = HookedTransformer(ModelConfig(d_model=8, n_heads=1, **shape), seed=0)
    with torch.no_grad():
        model.unembed.b_U[task.vocabulary.ids[task.notation.end]] = 50.0
    subject = Subject(model, task, n_examples=64)
    lens = probes.lens(subject, permutations=19)
    assert lens.metrics["lens.final_accuracy"] == 0
    ablation = probes.ablation(subject, neurons=0, null_samples=9)
    assert ablation.metrics["accuracy"] == 0
    for result in (lens, ablation):
        assert result.status == "unclear" and AT_CHANCE in result.finding


def test_parts_are_named_only_where_the_split_is_known() -> None:
    plant = planted.modular_addition(11, (2, 5), noise=0.1).subject
    split, none = Subject(plant.model, plant.task), Subject(plant.model, plant.task, split=None)
    named = [probes.progress(one, steps=0, samples=9).metrics for one in (split, none)]
    assert {"loss.train", "loss.test", "loss.all"} <= set(named[0])
    assert not [name for name in named[1] if name.endswith((".train", ".test"))]
    assert named[1]["loss.all"] == pytest.approx(named[0]["loss.all"])

    part, whole, every = (
        probes.gradients(one, **settings).metrics["gradients.total"]
        for one, settings in ((split, {}), (none, {}), (split, {"split": "all"}))
    )
    assert whole == every != part


@pytest.fixture(scope="module")
def site() -> tuple[Subject, SwapSite]:
    subject = planted.comparison(n=12).subject
    pairs = draw(subject, choose_variable(subject.task, "rank of a"), 48, 0)
    return subject, SwapSite(subject, pairs, "hook_embed", 0)


def test_directions_that_need_no_search_by_closed_form(site: tuple[Subject, SwapSite]) -> None:
    """Of two values the mean difference is the difference of means, and the ridge regression's
    weights lie along (S + shift)⁻¹ of it, with S the scatter of all activations (Hoerl and Kennard
    1970), for one of the penalties.
    """
    x = site[1].base.double().numpy()
    values = torch.arange(len(x)) % 2
    odd = values.numpy() == 1
    difference = x[odd].mean(0) - x[~odd].mean(0)
    found = controls.mean_difference_subspace(site[1], values, 1).double().numpy()[:, 0]
    assert abs(found @ difference) == pytest.approx(np.linalg.norm(difference), rel=1e-5)

    centered = x - x.mean(0)
    scatter = centered.T @ centered
    found = controls.linear_probe_subspace(site[1], values, 1).double().numpy()[:, 0]
    cosines = []
    for penalty in controls.PENALTIES:
        shift = penalty * np.trace(scatter) / len(scatter) + 1e-12
        weights = np.linalg.solve(scatter + shift * np.eye(len(scatter)), difference)
        cosines.append(abs(found @ weights) / np.linalg.norm(weights))
    assert max(cosines) == pytest.approx(1, abs=1e-5)


def test_random_changes_have_the_norm_of_the_one_found(
    site: tuple[Subject, SwapSite], monkeypatch: pytest.MonkeyPatch
) -> None:
    subject, swapped = site
    seen: list[torch.Tensor] = []
    monkeypatch.setattr(controls, "mean_accuracies", lambda *rest: seen.extend(rest[2]) or [])
    found = torch.linalg.qr(torch.randn(swapped.width, 2, generator=torch.manual_seed(1)))[0]
    controls.norm_matched_accuracies(subject, swapped, found, 5, 0)
    wanted = ((swapped.source - swapped.base) @ found).norm(dim=1)
    assert len(seen) == 5 and float(wanted.max()) > 0.1
    for replacement in seen:
        assert (replacement - swapped.base).norm(dim=1).numpy() == pytest.approx(
            wanted.numpy(), rel=1e-4, abs=1e-6
        )
