"""Figure: plots of marks with a title and a caption, which draws and saves itself.

A figure is data. `mechint.figures.interactive` draws it with Plotly for pages and notebooks,
`mechint.figures.static` with Matplotlib for everything else.
"""

from __future__ import annotations

import dataclasses
import html
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from mechint.errors import ParameterError
from mechint.figures.interactive import page_of, specification
from mechint.figures.parts import Plot
from mechint.figures.static import drawing, inline_svg
from mechint.system.files import write_bytes, write_text
from mechint.system.jsonable import from_jsonable, to_jsonable

Kind = Literal[
    "lines", "bars", "dots", "histogram", "matrix", "panels", "attention", "graph", "sentence"
]


@dataclass(frozen=True, repr=False)
class Figure:
    """A figure of one of eight kinds, or a sentence where there is nothing to draw.

    caption: what to see in it; captions: verdict of the finding ("no", "unclear") → the caption
    that stands in its place. plots: panels, in lines of `columns`; with one column they share the
    x axis. view: of attention, whose example, head and query are chosen in a page. steps: name of a
    step → the figure there; the figure itself is that of the last. size: pixels of a panel's or of
    the figure's height, where the kind's own does not fit.
    """

    kind: Kind
    title: str
    caption: str
    plots: Sequence[Plot] = ()
    columns: int = 1
    captions: Mapping[str, str] = field(default_factory=dict)
    view: Mapping[str, Any] | None = None
    steps: Mapping[str, Figure] = field(default_factory=dict)
    size: int | None = None

    def to_dict(self) -> dict[str, Any]:
        """JSON values; `from_dict` gives an equal figure."""
        return to_jsonable(dataclasses.asdict(self))

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Figure:
        """The figure that `to_dict` wrote."""
        return from_jsonable(cls, data)

    def for_verdict(self, verdict: str) -> Figure:
        """The figure with the caption that stands where the finding's verdict is `verdict`."""
        caption = self.captions.get(verdict, self.caption)
        return dataclasses.replace(self, caption=caption, captions={})

    @property
    def spec(self) -> dict[str, Any]:
        """The specification that plotly.js draws: "data", "layout", and "frames" of its steps."""
        return specification(self)

    def save(self, path: str | Path, *, width: float = 5.5, height: float | None = None) -> Path:
        """Write the figure to `path`, without a browser or a network.

        Args:
            path: ``.svg``, ``.pdf`` or ``.png`` for a paper, ``.html`` for a page that opens
                offline, ``.json`` for the figure as data.
            width, height: of the drawing in inches: 5.5 is the text of a one-column journal, 3.25
                one of two columns. The height follows from the figure when None.

        Raises:
            ParameterError: another ending, or a size out of range.
            RunError: `path` cannot be written.
        """
        path = Path(path)
        endings = (".svg", ".pdf", ".png", ".html", ".json")
        if path.suffix not in endings:
            raise ParameterError(
                f"{path}: ending {path.suffix!r}: expected one of {', '.join(endings)}"
            )
        if not 1 <= width <= 40 or (height is not None and not 1 <= height <= 40):
            raise ParameterError(f"{path}: width={width}, height={height}: expected 1 to 40 inches")
        if path.suffix == ".json":
            write_text(path, json.dumps(self.to_dict()))
        elif path.suffix == ".html":
            write_text(path, page_of(self))
        else:
            write_bytes(path, drawing(self, path.suffix[1:], width, height))
        return path

    @property
    def wide(self) -> bool:
        """True if the figure needs the whole width of a page."""
        if self.kind in ("panels", "attention", "graph") or self.columns > 1:
            return True
        layers = [layer for panel in self.plots for layer in panel.layers]
        many = any(max((len(row) for row in one.z or ()), default=0) > 150 for one in layers)
        return many or any(layer.lying for layer in layers)

    def __repr__(self) -> str:
        return f"Figure({self.title}: {self.caption})"

    def drawing_html(self, name: str = "") -> str:
        """The figure as a static drawing with its caption."""
        if not self.plots:
            return f"<p>{html.escape(self.caption)}</p>"
        caption = html.escape(self.caption)
        picture = inline_svg(self, name or self.title)
        most = 900 if self.wide else 520  # pixels, so that texts keep their size
        style = f"max-width:{most}px;margin:8px 0"
        return f'<figure style="{style}">{picture}<figcaption>{caption}</figcaption></figure>'

    def _repr_html_(self) -> str:
        """The figure in a notebook: the page that `save` writes."""
        if not self.plots:
            return self.drawing_html()
        held = html.escape(page_of(self), quote=True)
        size = 'width="100%" height="560" style="border:0"'
        return f'<iframe srcdoc="{held}" {size} title="{html.escape(self.caption)}"></iframe>'
