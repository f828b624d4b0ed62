"""The figures of the composition study."""

from __future__ import annotations

from mechint import figures
from mechint.probe.results import Figure
from mechint.studies.rows import NoRunsError, Rows


def draw(rows: Rows) -> dict[str, Figure]:
    """Accuracy on every hop over the steps, and with and without easier data, where curves are
    kept.
    """
    kept = Rows([row for row in rows if "curve" in row])
    drawn = {}
    for arm, title in (
        ("mixture-last", "Mixture, read after the last layer"),
        ("mixture", "Mixture, hop 2^(l-1) read after layer l"),
        ("curriculum", "Curriculum, hop 2^(l-1) read after layer l"),
    ):
        try:
            runs = kept.where(arm=arm)
        except NoRunsError:
            continue
        hops = [hop for hop in runs[0]["curve"] if hop != "step"]
        drawn[title] = curves(runs, {f"{hop}-hop": hop for hop in hops}, title)
    if {"direct", "mixture-last"} <= set(kept.values_of("arm")):
        hop = list(kept.where(arm="direct")[0]["curve"])[-1]
        compared = Rows([row for row in kept if row["arm"] in ("direct", "mixture-last")])
        drawn["With and without easier data"] = curves(
            compared, {}, f"{hop}-hop with and without easier data", hop
        )
    return drawn


def curves(rows: Rows, hops: dict[str, str], title: str, hop: str = "") -> Figure:
    """Test accuracy over the steps, a curve for every run and hop, or every run of every arm."""
    x, y, of = {}, {}, {}
    for row in rows:
        for name, key in (hops or {row["arm"]: hop}).items():
            curve = f"{name}, seed {row['seed']}"
            x[curve], y[curve], of[curve] = row["curve"]["step"], row["curve"][key], name
    return figures.lines(
        x,
        y,
        groups=of,
        title=title,
        x_title="step",
        y_title="test accuracy (0–1)",
        y_range=(0, 1),
        levels={"chance": rows[0]["chance"]},
        caption="Test accuracy over the steps of training, one curve a run.",
    )
