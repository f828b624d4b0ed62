"""The pages that are made from the code, and the navigation, for the documentation's builder."""

from __future__ import annotations

import contextlib
import html
import io
import re
import sys
from pathlib import Path
from typing import Any

from latex2mathml.converter import convert
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files

sys.path[:0] = [str(Path(__file__).parents[2]), str(Path(__file__).parent)]

import pages  # noqa: E402  (beside this file)

OUTPUT = "<!-- output -->"
FORMULA = (
    r'<(?P<tag>span|div) class="arithmatex">\\(?:\(|(?P<block>\[))'
    r"(?P<tex>.*?)\\[)\]]</(?P=tag)>"
)
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
    """Lead to pages of the site where the repository has code alone; run the Python of a page whose
    blocks show their output, from top to bottom in one namespace.
    """
    text = pages.on_site(markdown)
    if OUTPUT not in text:
        return text
    names: dict[str, Any] = {"__name__": f"docs.{page.file.name}"}

    def run(block: re.Match[str]) -> str:
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile(block["code"], page.file.src_uri, "exec"), names)
        if not block["output"]:
            return block[0]
        return f"```python\n{block['code']}```\n\n```text\n{printed.getvalue().rstrip()}\n```"

    pattern = rf"```python\n(?P<code>.*?)```(?P<output>\n\n{OUTPUT})?"
    return re.sub(pattern, run, text, flags=re.DOTALL)


def on_page_content(page_html: str, page: Any, config: Any, files: Files) -> str:
    """Formulas as MathML, which browsers draw without a script, in place of their TeX."""
    return re.sub(FORMULA, _as_mathml, page_html, flags=re.DOTALL)


def _as_mathml(found: re.Match[str]) -> str:
    """One formula, of the extension arithmatex, as MathML named by its TeX.

    Raises:
        PluginError: the library does not know a command in it.
    """
    tex = html.unescape(found["tex"]).strip()
    shown = convert(tex, display="block" if found["block"] else "inline")
    if "\\" in shown:
        raise PluginError(f"formula {tex}: latex2mathml leaves a command as it is")
    return shown.replace("<math ", f'<math aria-label="{html.escape(tex, quote=True)}" ', 1)


def on_post_page(output: str, page: Any, config: Any) -> str:
    """Drop the one script that the theme would fetch from elsewhere."""
    return re.sub(FETCHED, "", output)


def on_post_template(output_content: str, template_name: str, config: Any) -> str:
    """The same for the page of a wrong address."""
    return re.sub(FETCHED, "", output_content)
