"""Rules of the source: import layers, light commands, names. Every test lists all offenders."""

from __future__ import annotations

import ast
import graphlib
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

import mechint
from mechint.system.packages import BESIDE, package_of

ROOT = Path(__file__).parents[1]
PACKAGES = ("mechint", *BESIDE)

LAYERS = [
    ["errors"],
    ["system"],
    ["config", "registry", "data", "hermite"],
    ["decide"],
    ["groups", "figures"],
    ["task"],
    ["models"],
    ["subject", "interventions", "prompts"],
    ["checkpoints", "interventions.pyvene_bridge"],
    ["planted", "probe"],
    ["explanation"],
    ["registry.plugins", "system.parallel", "account"],
    ["training", "report", "run_table"],
    ["testing", "sweeps", "calibration", "demo", "shipped"],
    ["cli", "__main__", "__init__"],
]
"""Parts of mechint from the bottom up: each imports those of its own line and of the lines above
it in this list."""
LAYER = {part: i for i, parts in enumerate(LAYERS) for part in parts}


def part_of(name: str) -> str | None:
    """The part of mechint that the dotted `name` below it lies in; the longest that is listed."""
    inner = name.split(".")
    named = (".".join(inner[:length]) for length in range(len(inner), 0, -1))
    return next((part for part in named if part in LAYER), None)


AT_HOME = {
    "transformer_lens": ("mechint/models/", "mechint/checkpoints/"),
    "pyvene": ("mechint/interventions/",),
}
INSIDE_FUNCTIONS = {"plotly", "pandas", "ray", "datasets", "transformers"}
HEAVY = ["torch", "transformer_lens", "pyvene", "numpy", "scipy", "pandas", "plotly", "jinja2"]


def place(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


@cache
def source(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


@cache
def modules(*packages: str) -> list[Path]:
    return sorted(path for package in packages for path in (ROOT / package).rglob("*.py"))


@cache
def imported(path: Path, *, at_import: bool = False) -> set[str]:
    """Dotted names that `path` imports outside ``if TYPE_CHECKING``; `at_import`: outside functions
    as well.
    """
    found: set[str] = set()

    def visit(node: ast.AST) -> None:
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
            return
        if at_import and isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            return
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        if isinstance(node, ast.ImportFrom):
            found.update(f"{node.module}.{alias.name}" for alias in node.names)
        for child in ast.iter_child_nodes(node):
            visit(child)

    visit(source(path))
    return found


def parts_of_mechint(path: Path) -> Iterator[str]:
    for name in imported(path):
        top, _, inner = name.partition(".")
        if top == "mechint" and (part := part_of(inner)) is not None:
            yield part


def test_mechint_imports_go_down() -> None:
    wrong = []
    for path in modules("mechint"):
        own = part_of(".".join(path.relative_to(ROOT / "mechint").with_suffix("").parts))
        assert own is not None, f"add {place(path)} to LAYERS"
        wrong += [
            f"{place(path)} imports mechint.{other}"
            for other in parts_of_mechint(path)
            if LAYER[other] > LAYER[own]
        ]
    assert not wrong


def test_packages_import_what_they_may() -> None:
    """mechint reaches tasks and probes through the registry; tasks know no model, probes no
    training and no task.
    """
    forbidden = {
        "mechint": {"tasks", "probes"},
        "tasks": {"probes", "studies"},
        "probes": {"tasks", "studies"},
        "studies": set[str](),
    }
    highest = {"mechint": "cli", "tasks": "task", "probes": "explanation", "studies": "cli"}
    wrong = []
    for package in PACKAGES:
        for path in modules(package):
            tops = {package_of(name).removeprefix("mechint.") for name in imported(path)}
            above = {
                part
                for part in parts_of_mechint(path)
                if package != "mechint" and LAYER[part] > LAYER[highest[package]]
            }
            wrong += [
                f"{place(path)} imports {name}" for name in (tops & forbidden[package]) | above
            ]
    assert not wrong


def test_no_imports_go_in_a_circle() -> None:
    """Nor those inside functions, which hide one."""
    names = {}
    for path in modules(*PACKAGES):
        name = ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
        names[name if name.startswith("mechint") else f"mechint.{name}"] = path

    def module_of(name: str) -> str:
        while name and name not in names:
            name = name.rpartition(".")[0]
        return name

    graph = {
        name: {module_of(one) for one in imported(path)} - {"", name}
        for name, path in names.items()
    }
    ordered = set(graphlib.TopologicalSorter(graph).static_order())  # CycleError shows a circle
    assert ordered == set(names)


def test_packages_are_imported_by_the_names_that_no_file_of_a_user_hides() -> None:
    wrong = [
        f"{place(path)} imports {name}; write mechint.{name}"
        for path in modules(*PACKAGES)
        for name in imported(path)
        if name.split(".")[0] in BESIDE
    ]
    assert not wrong


def test_heavy_imports_stay_where_they_belong() -> None:
    wrong = []
    for path in modules(*PACKAGES):
        tops = {name.split(".")[0] for name in imported(path)}
        eager = {name.split(".")[0] for name in imported(path, at_import=True)}
        strays = {
            library
            for library, homes in AT_HOME.items()
            if library in tops and not place(path).startswith(homes)
        }
        wrong += [f"{place(path)} imports {name}" for name in strays | (eager & INSIDE_FUNCTIONS)]
    assert not wrong


def test_light_commands_load_no_heavy_library() -> None:
    lines = [["--help"], ["tasks"], ["probes"], ["train", "--help"], ["analyze", "--help"]]
    script = (
        "import sys\n"
        "from mechint.cli import main\n"
        f"for line in {lines}:\n"
        "    try:\n        main(line)\n"
        "    except SystemExit as end:\n        assert not end.code, (line, end.code)\n"
        f"    heavy = set({HEAVY}) & set(sys.modules)\n"
        "    assert not heavy, (line, heavy)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, cwd=ROOT, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "Usage: mechint" in done.stdout


NOT_NEEDED = {
    *("transformers", "tokenizers", "datasets", "pyarrow", "pandas", "pytest", "_pytest"),
    *("plotly", "matplotlib", "jinja2", "pyvene", "wandb", "scipy"),
}
"""What no command on a native model needs for its page of text."""
HOOK_POINTS = {
    "transformer_lens",
    "transformer_lens.HookedRootModule",
    "transformer_lens.conversion_utils",
    "transformer_lens.conversion_utils.conversion_steps",
    "transformer_lens.conversion_utils.conversion_steps.base_tensor_conversion",
    "transformer_lens.hook_points",
    "transformer_lens.utilities",
    "transformer_lens.utilities.devices",
    "transformer_lens.utilities.slice",
    "transformer_lens.utilities.tensors",
}


@pytest.mark.full
@pytest.mark.parametrize(
    "line",
    [
        "train modular-arithmetic --set p=7 --set steps=2 --out run",
        "analyze clock.pt",
        "explain clock.pt",
        "compare clock.pt pizza.pt",
    ],
)
def test_commands_on_native_models_import_what_they_use(line: str, tmp_path: Path) -> None:
    for name in ("clock.pt", "pizza.pt"):
        (tmp_path / name).symlink_to(ROOT / "examples" / "models" / name)
    script = (
        "import sys\n"
        "from mechint.cli import main\n"
        f"try:\n    main({line.split()})\n"
        "except SystemExit as end:\n    assert not end.code\n"
        "print(*sys.modules, sep='\\n', file=open('modules.txt', 'w'))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, cwd=tmp_path, check=False
    )
    assert done.returncode == 0, done.stderr
    loaded = set((tmp_path / "modules.txt").read_text().split())
    assert not loaded & NOT_NEEDED
    assert {name for name in loaded if name.startswith("transformer_lens")} <= HOOK_POINTS


def test_every_module_has_a_docstring() -> None:
    silent = [place(path) for path in modules(*PACKAGES) if not ast.get_docstring(source(path))]
    assert not silent


def test_editors_see_every_public_name() -> None:
    """The names that load lazily are also imported for type checkers."""
    tree = source(ROOT / "mechint" / "__init__.py")
    seen = {
        alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test)
        for line in node.body
        if isinstance(line, ast.ImportFrom)
        for alias in line.names
    }
    public = set(mechint.__all__) - {"__version__"}
    assert seen == public
