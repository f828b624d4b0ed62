"""The pages that are made from the code, and the navigation, for the documentation's builder."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

sys.path[:0] = [str(Path(__file__).parents[2]), str(Path(__file__).parent)]

import pages  # noqa: E402  (beside this file)

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
    return config


def on_files(files: Files, config: Any) -> Files:
    """Add the made pages."""
    for name, text in pages.made().items():
        files.append(File.generated(config, name, content=text))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:
    """Lead to pages of the site where the repository has code alone."""
    return pages.on_site(markdown)


def on_post_page(output: str, page: Any, config: Any) -> str:
    """Drop the one script that the theme would fetch from elsewhere."""
    return re.sub(FETCHED, "", output)


def on_post_template(output_content: str, template_name: str, config: Any) -> str:
    """The same for the page of a wrong address."""
    return re.sub(FETCHED, "", output_content)
