"""``mechint completion``: the script that teaches a shell to complete mechint's words."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from mechint.cli.common import examples

SHELLS = ("bash", "zsh", "fish")
VARIABLE = "_MECHINT_COMPLETE"


@click.command(
    short_help="Print the script that completes words in a shell.",
    epilog=examples(
        'eval "$(mechint completion bash)"        # in ~/.bashrc',
        'eval "$(mechint completion zsh)"         # in ~/.zshrc',
        "mechint completion fish > ~/.config/fish/completions/mechint.fish",
    ),
)
@click.argument("shell", type=click.Choice(SHELLS))
def completion(shell: str) -> None:
    """Print the script that completes tasks, probes, studies, settings and paths in SHELL."""
    main = click.get_current_context().find_root().command
    kind = get_completion_class(shell)
    assert kind is not None
    # click's own way asks the installed bash for its version first; the script is the same
    made = kind(main, {}, "mechint", VARIABLE)
    template = made.source_template
    if shell == "fish":  # a word may hold commas: a list of probes
        template = template.replace('string split "," $', 'string split --max 1 "," $')
    click.echo(template % made.source_vars())
