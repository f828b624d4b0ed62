"""The import layers: who may import whom, read from the source, and what the light commands
load.
"""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

# Rooms from the ground up: a module may import rooms of its own floor and of the floors below it.
# CONTRIBUTING.md prints this list; `test_contributing_prints_the_floors` holds the two together.
FLOORS = [
    ["errors"],
    ["registry", "config", "files", "locks", "namespace", "schema", "stubs"],
    ["durations", "groups", "hermite", "intervals", "jsonable", "notebook", "progress", "threads"],
    ["task"],
    ["figures", "pairs"],
    ["results", "null", "claim"],
    ["models"],
    ["activations", "cache", "transitions", "similarity", "prompts"],
    ["subject", "checkpoints", "planted", "interventions", "counterfactuals", "dictionaries"],
    ["probe", "finding", "plugins"],
    ["training", "report", "run_table"],
    ["testing", "sweeps", "studies", "calibration", "demo", "gallery"],
    ["cli", "__main__"],
]
FLOOR = {room: floor for floor, rooms in enumerate(FLOORS) for room in rooms}


def modules(package: str) -> list[Path]:
    return sorted((ROOT / package).rglob("*.py"))


def imported(path: Path, *, at_import: bool = False, types: bool = False) -> set[str]:
    """Dotted names that `path` imports outside ``if TYPE_CHECKING``, or there too (`types`);
    `at_import`: those outside functions only.
    """
    found: set[str] = set()

    def visit(node: ast.AST) -> None:
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test) and not types:
            return
        if at_import and isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            return
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            found.update(f"{node.module}.{alias.name}" for alias in node.names)
        for child in ast.iter_child_nodes(node):
            visit(child)

    visit(ast.parse(path.read_text(encoding="utf-8")))
    return found


def room(path: Path) -> str:
    return path.relative_to(ROOT / "mechint").parts[0].removesuffix(".py")


def test_contributing_prints_the_floors() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    printed = text.partition("<!-- floors -->")[2].partition("<!-- end of floors -->")[0]
    drawn = "\n".join("    " + ", ".join(rooms) for rooms in reversed(FLOORS))
    assert printed.strip("\n") == drawn, f"write these lines between its marks:\n{drawn}"


def import_graph() -> dict[str, set[str]]:
    """Module → the modules of ours that it imports, also inside functions and for types alone."""
    paths = modules("mechint") + modules("tasks") + modules("probes")
    names = {
        ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path
        for path in paths
    }

    def module_of(name: str) -> str:
        while name and name not in names:
            name = name.rpartition(".")[0]
        return name

    return {
        name: {module_of(one) for one in imported(path, types=True)} - {"", name}
        for name, path in names.items()
    }


def circles(graph: dict[str, set[str]]) -> list[list[str]]:
    """The strongly connected components of more than one node, by Tarjan's algorithm."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(node: str) -> None:
        index[node] = low[node] = len(index)
        stack.append(node)
        for after in graph[node]:
            if after not in index:
                visit(after)
                low[node] = min(low[node], low[after])
            elif after in stack:
                low[node] = min(low[node], index[after])
        if low[node] == index[node]:
            component = [stack.pop()]
            while component[-1] != node:
                component.append(stack.pop())
            if len(component) > 1:
                found.append(sorted(component))

    for node in graph:
        if node not in index:
            visit(node)
    return found


def test_no_imports_go_in_a_circle() -> None:
    assert circles(import_graph()) == []


def test_circles_are_found() -> None:
    graph = {"a": {"b"}, "b": {"c"}, "c": {"b", "d"}, "d": set(), "e": {"a", "e"}}
    assert circles(graph) == [["b", "c"]]
    assert circles({"a": {"b"}, "b": {"a"}, "c": {"d"}, "d": {"c"}}) == [["a", "b"], ["c", "d"]]


@pytest.mark.parametrize("path", modules("mechint"), ids=lambda path: str(path.relative_to(ROOT)))
def test_imports_go_down(path: Path) -> None:
    own = room(path)
    if own == "__init__":
        return
    assert own in FLOOR, f"{own} has no floor: add it to FLOORS"
    for name in imported(path):
        parts = name.split(".")
        if parts[0] == "mechint" and len(parts) > 1 and (other := parts[1]) in FLOOR:
            assert FLOOR[other] <= FLOOR[own], (
                f"{path.relative_to(ROOT)} imports {name}, which lies above it"
            )


@pytest.mark.parametrize("path", modules("mechint"), ids=lambda path: str(path.relative_to(ROOT)))
def test_mechint_knows_no_task_and_no_probe(path: Path) -> None:
    assert not {name for name in imported(path) if name.split(".")[0] in ("tasks", "probes")}, (
        "reach tasks and probes through the registry"
    )


@pytest.mark.parametrize("path", modules("tasks"), ids=lambda path: path.name)
def test_tasks_import_neither_models_nor_training(path: Path) -> None:
    allowed = FLOOR["task"]
    for name in imported(path):
        parts = name.split(".")
        assert parts[0] != "probes"
        if parts[0] == "mechint" and len(parts) > 1 and parts[1] in FLOOR:
            assert FLOOR[parts[1]] <= allowed, f"{path.name} imports {name}"


@pytest.mark.parametrize("path", modules("probes"), ids=lambda path: path.name)
def test_probes_do_not_import_training(path: Path) -> None:
    for name in imported(path):
        parts = name.split(".")
        assert parts[0] != "tasks", f"{path.name} imports {name}"
        if parts[0] == "mechint" and len(parts) > 1 and parts[1] in FLOOR:
            assert FLOOR[parts[1]] <= FLOOR["probe"], f"{path.name} imports {name}"


HOMES = {
    "transformer_lens": ("mechint/models/", "mechint/checkpoints/"),
    "pyvene": ("probes/das/",),
}
INSIDE_FUNCTIONS = {"plotly", "pandas", "ray", "datasets", "transformers"}


@pytest.mark.parametrize(
    "path",
    modules("mechint") + modules("tasks") + modules("probes"),
    ids=lambda path: str(path.relative_to(ROOT)),
)
def test_heavy_imports_stay_at_home(path: Path) -> None:
    place = path.relative_to(ROOT).as_posix()
    for library, homes in HOMES.items():
        if not place.startswith(homes):
            assert library not in {name.split(".")[0] for name in imported(path)}, (
                f"{library} belongs in {homes}"
            )
    eager = {name.split(".")[0] for name in imported(path, at_import=True)}
    assert not eager & INSIDE_FUNCTIONS, "import it inside the function that needs it"


@pytest.mark.parametrize(
    "arguments",
    [["--help"], ["tasks"], ["probes"], ["train", "--help"], ["analyze", "--help"]],
    ids=" ".join,
)
def test_light_commands_load_no_heavy_library(arguments: list[str]) -> None:
    script = (
        "import json, sys\n"
        "from mechint.cli import main\n"
        "try:\n    main(json.loads(sys.argv[1]))\n"
        "except SystemExit as end:\n    assert not end.code, end.code\n"
        "heavy = {'torch', 'transformer_lens', 'pyvene', 'numpy', 'scipy', 'pandas', "
        "'plotly', 'jinja2'} & set(sys.modules)\n"
        "sys.exit(f'loaded {sorted(heavy)}' if heavy else 0)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, json.dumps(arguments)],
        capture_output=True,
        text=True,
        cwd=ROOT,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout
