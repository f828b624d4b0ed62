"""The pages that are made from the code, and the navigation, for the documentation's builder."""

from __future__ import annotations

import contextlib
import hashlib
import html
import io
import os
import re
import sys
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

sys.path[:0] = [str(Path(__file__).parents[2]), str(Path(__file__).parent)]

import pages  # noqa: E402  (beside this file)

from mechint.report import build_gallery, find_pages  # noqa: E402

FETCHED = r'<script src="https://[^"]*iframe-worker[^"]*"></script>'


def on_config(config: Any) -> Any:
    """Put the made pages into the navigation; leave out what this checkout does not hold."""
    made = pages.made()
    docs = Path(config.docs_dir)

    def kept(entry: Any) -> Any:
        if isinstance(entry, str):
            if entry.endswith("/"):
                return [name for name in made if name.startswith(entry)]
            return entry if (docs / entry).is_file() or entry in made else None
        ((title, inside),) = entry.items()
        if isinstance(inside, str):
            found = kept(inside)
            return {title: found} if found else None
        return {title: [item for part in inside if (item := kept(part))]}

    config.nav = [item for entry in config.nav if (item := kept(entry))]
    named = set(re.findall(r"'([\w/-]+\.md)'", str(config.nav)))
    others = sorted(page.name for page in docs.glob("*.md") if page.name not in named)
    for entry in config.nav:
        if "Guides" in entry:
            entry["Guides"] += others
    return config


def on_files(files: Files, config: Any) -> Files:
    """Add the made pages, in place of the method that a probe's page holds, and their pictures."""
    for name, content in {**pages.made(), **pages.pictures()}.items():
        if (written := files.get_file_from_path(name)) is not None:
            files.remove(written)
        files.append(File.generated(config, name, content=content))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:
    """Lead to pages of the site where the repository has code alone; run what shows its output,
    and draw formulas.
    """
    text = formulas(pages.on_site(markdown))
    return re.sub(r"```python\n(.*?)```\n\n<!-- output -->", _with_output, text, flags=re.DOTALL)


def _with_output(block: re.Match[str]) -> str:
    """A block of Python, and what it prints."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(block[1], "docs", "exec"), {"__name__": "docs"})
    return f"```python\n{block[1]}```\n\n```text\n{printed.getvalue().rstrip()}\n```"


def formulas(text: str) -> str:
    """The text with formulas between dollars as drawings, outside of code."""
    parts = re.split(r"(```.*?```|`[^`]*`|^    [^\n]*$)", text, flags=re.DOTALL | re.MULTILINE)
    drawn = [re.sub(r"\$([^$\n]+)\$", _formula, part) for part in parts[::2]]
    parts[::2] = drawn
    return "".join(parts)


def _formula(found: re.Match[str]) -> str:
    """A formula in TeX as an SVG of the text's color; as code where it cannot be drawn."""
    from matplotlib import mathtext

    held = io.BytesIO()
    try:
        depth = mathtext.math_to_image(f"${found[1]}$", held, format="svg")
    except ValueError:
        return f"`{found[1]}`"
    svg = held.getvalue().decode()
    svg = svg[svg.index("<svg") :].replace("\n", " ")
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    mark = hashlib.sha256(found[1].encode()).hexdigest()[:8]
    svg = re.sub(r'(id="|#)([\w-]+)', rf"\g<1>{mark}-\2", svg)
    label = html.escape(found[1], quote=True)
    style = f'style="vertical-align:-{depth * 1.05:.1f}pt;fill:currentColor"'
    return svg.replace("<svg", f'<svg class="formula" role="img" aria-label="{label}" {style}', 1)


def on_post_build(config: Any) -> None:
    """Build the gallery's pages, which takes minutes, where GALLERY is set."""
    if os.environ.get("GALLERY"):
        build_gallery(find_pages([pages.ROOT / "results"]), Path(config.site_dir) / "gallery")


def on_post_page(output: str, page: Any, config: Any) -> str:
    """Drop the one script that the theme would fetch from elsewhere."""
    return re.sub(FETCHED, "", output)


def on_post_template(output_content: str, template_name: str, config: Any) -> str:
    """The same for the page of a wrong address."""
    return re.sub(FETCHED, "", output_content)
