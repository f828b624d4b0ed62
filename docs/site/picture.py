"""Write the pictures of README.md from an account: the terminal, light and dark, its hero, and the
report where a Chromium is on the path.

python docs/site/picture.py    # answer-light.svg, answer-dark.svg, … in docs/generated/
"""

from __future__ import annotations

import io
import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

from rich._export_format import CONSOLE_SVG_FORMAT
from rich.console import Console
from rich.terminal_theme import MONOKAI, TerminalTheme

import mechint
from mechint.account.terminal import account_text
from mechint.report import page_of, write_page

ROOT = Path(__file__).parents[2]
WIDTH = 100
LIGHT = TerminalTheme(
    (255, 255, 255),
    (36, 41, 47),
    [
        (36, 41, 47),
        (207, 34, 46),
        (17, 99, 41),
        (77, 45, 0),
        (9, 105, 218),
        (130, 80, 223),
        (27, 124, 131),
        (110, 119, 129),
    ],
)
FORMAT = re.sub(r"@font-face \{\{.*?\}\}\s*", "", CONSOLE_SVG_FORMAT, flags=re.DOTALL)
"""Rich's drawing without the fonts that it would load from elsewhere."""


def main() -> None:
    """Analyze the clock of the examples and write the pictures into docs/generated/."""
    os.chdir(ROOT / "examples" / "models")
    account = mechint.analyze(mechint.load("clock.pt"))
    command = "mechint analyze clock.pt"
    for name, theme in (("light", LIGHT), ("dark", MONOKAI)):
        console = Console(record=True, width=WIDTH, file=io.StringIO(), force_terminal=True)
        console.print(account_text(account, WIDTH))
        svg = console.export_svg(title=command, theme=theme, code_format=FORMAT, unique_id=name)
        (ROOT / "docs" / "generated" / f"answer-{name}.svg").write_text(svg, encoding="utf-8")
    if account.hero is not None:
        account.hero.save(ROOT / "docs" / "generated" / "answer-hero.svg", width=7.2)
    browser = shutil.which("chromium") or shutil.which("google-chrome")
    if browser is None:
        return
    with tempfile.TemporaryDirectory() as place:
        page = write_page(page_of(account), Path(place) / "report.html")
        options = ["--headless", "--no-sandbox", "--hide-scrollbars", "--virtual-time-budget=4000"]
        shot = f"--screenshot={ROOT / 'docs' / 'generated' / 'report.png'}"
        subprocess.run([browser, *options, "--window-size=1280,780", shot, str(page)], check=True)


if __name__ == "__main__":
    main()
