"""Figure: a Plotly specification with its caption, which shows itself and saves itself."""

from __future__ import annotations

import base64
import html
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mechint.figures.markup import plain
from mechint.figures.theme import layout_of
from mechint.jsonable import to_jsonable


@dataclass(frozen=True, repr=False)
class Figure:
    """A Plotly figure as its JSON dictionary; `caption` says what to see in it."""

    spec: Mapping[str, Any]
    caption: str

    def to_dict(self) -> dict[str, Any]:
        """Specification and caption as JSON values."""
        return {"spec": to_jsonable(self.spec), "caption": self.caption}

    def show(self) -> Any:
        """The plotly Figure, for notebooks."""
        import plotly.graph_objects as go

        spec = plain(self.spec)
        frames = [
            {name: value for name, value in frame.items() if name != "caption"}
            for frame in spec.get("frames") or []
        ]
        return go.Figure({**spec, "frames": frames})

    def save(self, path: str | Path, *, width: float = 5.5, height: float | None = None) -> Path:
        """Write the figure to `path`, without a browser or a network.

        Args:
            path: its ending says how: ``.svg``, ``.pdf`` or ``.png`` for a paper, ``.html`` for a
                page that opens offline, ``.csv`` for the numbers, ``.json`` for the specification.
            width, height: of the drawing in inches; 5.5 is the text of a one-column journal, 3.25
                one of two columns. The height follows from the figure's own, and from the room
                that its texts need, when None.

        Raises:
            ParameterError: another ending, a size out of range, or one whose texts leave no room
                for the plot.
            RunError: `path` cannot be written.
        """
        from mechint.figures.export import save

        return save(self.spec, self.caption, Path(path), width, height)

    @property
    def title(self) -> str:
        """The title that stands above the figure; empty where it has none."""
        title = (self.spec.get("layout") or {}).get("title") or ""
        return str(title.get("text", "") if isinstance(title, Mapping) else title)

    def __repr__(self) -> str:
        return f"Figure({self.title or 'untitled'}: {self.caption})"

    def drawing_html(self, name: str) -> str:
        """The figure as a drawing with its caption; its name and caption where it is no drawing."""
        caption = html.escape(self.caption)
        if "view" in self.spec or not self.spec.get("data"):
            return f"<p><b>{html.escape(name)}</b>: {caption}</p>"
        from mechint.figures.export import drawn

        picture = base64.b64encode(drawn(self.spec, "svg", 5.5, None)).decode()
        image = f'<img alt="{caption}" src="data:image/svg+xml;base64,{picture}">'
        return f"<figure>{image}<figcaption>{caption}</figcaption></figure>"

    def _repr_html_(self) -> str:
        """The figure in a notebook: interactive, with the caption below it."""
        if "view" in self.spec or self.spec.get("frames"):
            from mechint.figures.export import page

            held = html.escape(page(self.spec, self.caption), quote=True)
            tall = 560 if "view" in self.spec else 140 + self.spec["layout"].get("height", 450)
            size = f'width="100%" height="{tall}" style="border:0"'
            return f'<iframe srcdoc="{held}" {size} title="{html.escape(self.caption)}"></iframe>'
        drawn = self.show().to_html(include_plotlyjs=True, full_html=False)
        return f"{drawn}<p>{html.escape(self.caption)}</p>"


def figure(
    data: Sequence[Mapping[str, Any]], title: str, caption: str, *, height: int = 380, **layout: Any
) -> Figure:
    """The Figure of traces `data` under the common layout; `caption` says what to see in it."""
    return Figure({"data": list(data), "layout": layout_of(data, title, height, **layout)}, caption)
