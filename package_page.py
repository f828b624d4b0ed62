"""README.md as the page of a package, where nothing lies beside it: a hook of the build."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

LINK = re.compile(r"\[([^\]]+)\]\((?!https?://|#)([^)\s]+)\)")
PICTURE = re.compile(
    r"(?:<picture>(?:(?!</picture>).)*?)?<img alt=\"([^\"]*)\" src=\"([^\"]*)\"[^>]*>"
    r"(?:\s*</picture>)?",
    re.DOTALL,
)


class PackagePage(MetadataHookInterface):
    """Gives the metadata its readme."""

    def update(self, metadata: dict[str, Any]) -> None:
        text = Path(self.root, "README.md").read_text(encoding="utf-8")
        urls = metadata.get("urls", {})
        metadata["readme"] = {
            "content-type": "text/markdown",
            "text": page(text, urls.get("Repository"), f"v{metadata['version']}"),
        }


def page(text: str, repository: str | None, tag: str) -> str:
    """`text` without a relative link: to the files of `repository` at `tag` where it is stated,
    and otherwise the path in words, with a picture's description in its place.

    >>> page("[nulls](docs/nulls.md), [MIT](LICENSE)", None, "v1")
    'nulls (`docs/nulls.md`), MIT (`LICENSE`)'
    >>> page("[nulls](docs/nulls.md)", "https://example.org/mechint", "v1")
    '[nulls](https://example.org/mechint/blob/v1/docs/nulls.md)'
    """
    if repository is not None:
        base = f"{repository.rstrip('/')}/raw/{tag}/"
        text = PICTURE.sub(lambda found: f"![{found[1]}]({base}{found[2]})", text)
        return LINK.sub(lambda found: f"[{found[1]}]({repository}/blob/{tag}/{found[2]})", text)
    text = PICTURE.sub(lambda found: f"*{found[1]}*", text)
    return LINK.sub(lambda found: f"{found[1]} (`{found[2]}`)", text)
