"""Expressions as trees, against the rewriting of text."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mechint.errors import DataError
from tasks._listops.algebra import integers
from tasks._listops.expression import Bracket, Notation, solve, with_value

NOTATIONS = [Notation(integers(n)) for n in (10, 12, 40)]


def trees(size: int) -> st.SearchStrategy[Bracket]:
    def bracket(operand: st.SearchStrategy) -> st.SearchStrategy:
        operands = st.lists(operand, min_size=1, max_size=4).map(tuple)
        return st.builds(Bracket, st.integers(0, 5), operands)

    return bracket(st.recursive(st.integers(0, size - 1), bracket, max_leaves=8))


@pytest.mark.parametrize("notation", NOTATIONS, ids=lambda n: str(n.algebra.size))
@given(data=st.data())
def test_a_tree_is_solved_as_its_text_is_rewritten(notation: Notation, data: st.DataObject) -> None:
    tree = data.draw(trees(notation.algebra.size))
    text = notation.spell(tree)
    assert notation.parse(text) == tree
    assert notation.texts(tree) == notation.rewrite(text)


@pytest.mark.full
@given(data=st.data())
def test_one_plain_value_is_changed_to_reach_what_is_wanted(data: st.DataObject) -> None:
    notation = NOTATIONS[0]
    tree, wanted = data.draw(trees(10)), data.draw(st.integers(0, 9))

    def value(tree: Bracket) -> int:
        return solve(notation.algebra, tree)[-1].value

    before = value(tree)
    changed = with_value(notation.algebra, tree, (), wanted)
    if changed is None:
        every = [value(tree.put(leaf, number)) for leaf in tree.leaves() for number in range(10)]
        assert wanted not in every or wanted == before
        return
    assert value(changed) == wanted
    differing = zip(notation.spell(tree), notation.spell(changed), strict=True)
    assert sum(a != b for a, b in differing) == 1


def test_a_value_given_by_hand_is_carried_on() -> None:
    notation = NOTATIONS[0]
    tree = notation.parse("(%12(%34))")
    for fixed, texts in (({(2,): 9}, ["(%129)", "2"]), ({(): 5}, ["(%127)", "5"])):
        steps = solve(notation.algebra, tree, fixed)
        assert notation.texts(tree, steps) == ["(%12(%34))", *texts]


@pytest.mark.parametrize("text", ["", "(%12", "%12)", "(%1a)", "7", "(%)"])
def test_what_is_not_an_expression_is_refused(text: str) -> None:
    with pytest.raises(DataError):
        NOTATIONS[0].parse(text)
