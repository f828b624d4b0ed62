"""The spelling of components, and which of them a model gives."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

import mechint
import tasks
from mechint.errors import NotApplicableError, ParameterError, UnknownNameError
from mechint.interventions import Site
from mechint.interventions.sites import HOOKS
from mechint.models import build
from mechint.subject.components import list_components, site_of

POSITIONS = st.none() | st.integers(-3, 5) | st.just("answer")


@given(
    kind=st.sampled_from([*HOOKS, "attn.hook_q", "attn.hook_result", "mlp.hook_pre"]),
    layer=st.integers(0, 11),
    units=st.lists(st.integers(0, 40), max_size=3, unique=True),
    pos=POSITIONS,
)
def test_what_is_spelled_is_read_back(kind, layer, units, pos):
    site = Site(f"blocks.{layer}.{HOOKS.get(kind, kind)}", pos, tuple(units))
    assert site_of(str(site)) == site


@given(st.sampled_from(["hook_embed", "hook_pos_embed", "ln_final.hook_scale"]), POSITIONS)
def test_what_stands_outside_the_blocks_is_read_back(hook, pos):
    assert site_of(str(Site(hook, pos))) == Site(hook, pos)


@pytest.mark.parametrize(
    ("site", "text"),
    [
        (Site.head(0, 1), "L0H1"),
        (Site.mlp(0), "L0 MLP"),
        (Site.neurons(0, [37]), "L0 MLP[37]"),
        (Site.attention(2), "L2 attention"),
        (Site.of("resid_post", 0, "answer"), "L0 resid_post @ answer"),
        (Site("hook_embed", 2), "embed @ 2"),
    ],
)
def test_the_spelling(site, text):
    assert str(site) == text and site_of(text) == site


@pytest.mark.parametrize("text", ["head 0.1", "L0", "H3", "L0H", "L0 nothing", "L0H1 @ end"])
def test_other_spellings_are_refused(text):
    with pytest.raises(ParameterError):
        site_of(text)


@pytest.fixture(scope="module")
def attention_only():
    task = tasks.make("modular-arithmetic", p=5)
    config = mechint.ModelConfig(
        n_layers=2, d_model=8, n_heads=2, attn_only=True, d_vocab=6, d_vocab_out=5, n_ctx=3
    )
    return mechint.Subject(build(config), task)


def test_components_stand_layer_by_layer(attention_only):
    found = list_components(attention_only)
    assert [str(one) for one in found.sites] == [
        *("L0 attention", "L0H0", "L0H1", "L1 attention", "L1H0", "L1H1")
    ]
    assert not found.left_out  # there is no MLP to leave out


def test_a_kind_that_was_asked_for_is_refused_by_name(attention_only):
    with pytest.raises(NotApplicableError, match="MLPs"):
        list_components(attention_only, ["mlp"])
    with pytest.raises(UnknownNameError):
        list_components(attention_only, ["heads"])


def test_a_kind_without_a_hook_is_named(attention_only):
    """As of architectures that multiply what a layer writes: there is a layer, and no hook."""
    model = attention_only.model
    wrapped = mechint.wrap(
        model,
        hooks={"hook_embed": "hook_embed", "blocks.0.attn.hook_z": "blocks.0.attn.hook_z"},
        d_vocab_out=5,
        n_heads=2,
    )
    subject = attention_only.with_model(wrapped)
    found = list_components(subject)
    assert [str(one) for one in found.sites] == ["L0H0", "L0H1"]
    assert found.left_out == ("attention layers",) and "attention layers" in found.caveat
