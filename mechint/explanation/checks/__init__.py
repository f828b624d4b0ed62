"""Tests of an audit: each takes a bench and claims, and gives records.

Every edit is additive, h + (features(new) - features(old)) W, and leaves the rest of the site as it
is: projecting on a fitted subspace would accept wrong representations. Bounds are constants of
`mechint.explanation.records`.
"""
