"""`ziplan profiles`: shipped machines and parts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from ziplan.cli import options
from ziplan.cli.output import show, width, write
from ziplan.cli.showing import Showing
from ziplan.errors import BadInput

if TYPE_CHECKING:
    from ziplan.report.lines import Line

app = typer.Typer(
    cls=Showing,
    add_completion=False,
    rich_markup_mode=None,
    help="Shipped machines and parts: all names, or with `ziplan profiles NAME` each value of one.",
)
KINDS = ("nodes", "gpus", "links", "drives")


def _names() -> Iterable[str]:
    from ziplan.hardware.shipped import list_profiles

    return sorted({name for kind in KINDS for name in list_profiles(kind)})


@app.callback(invoke_without_command=True)
def profiles(context: typer.Context) -> None:
    """Shipped machines and parts, each value with its source. Alone it lists them; a NAME shows one."""
    if context.invoked_subcommand is None:
        list_all()


@app.command("list")
def list_all() -> None:
    """Machines and parts by kind. A machine's name is what CLUSTER takes."""
    from ziplan.hardware.shipped import list_profiles

    write("\n".join(f"{kind}\n" + "".join(f"  {name}\n" for name in list_profiles(kind)) for kind in KINDS))


@app.command("show")
def show_one(
    name: Annotated[
        str,
        typer.Argument(
            metavar="NAME",
            help="A shipped machine or part, or the path of a machine file.",
            autocompletion=options.completer(_names),
        ),
    ],
) -> None:
    """One machine or part: every value with its kind and source."""
    pages = list(_pages(name))
    if not pages:
        from ziplan.files import suggested

        hint = suggested(name.strip().lower(), _names())
        raise BadInput.of(
            f"no profile is called {name!r}{f'; {hint}' if hint else ''}", help="`ziplan profiles` lists them"
        )
    for page in pages:
        show(page)


def _pages(name: str) -> Iterator[list[Line]]:
    """A page for each profile of that name: a GPU and a machine may share one."""
    from ziplan.hardware.profiles import load_node
    from ziplan.hardware.shipped import list_profiles
    from ziplan.report.profiles import profile_text

    if name in list_profiles("nodes") or name.endswith((".yaml", ".yml", ".json")):
        node, provenance = load_node(name)
        yield profile_text(f"{name}: {node.name}", node, provenance, width())
    for kind in KINDS[1:]:
        if name in list_profiles(kind):
            yield _part(kind, name)


def _part(kind: str, name: str) -> list[Line]:
    from ziplan.files import validate
    from ziplan.hardware.parts import Drive, Gpu, Link, Part
    from ziplan.hardware.shipped import shipped
    from ziplan.hardware.tree import Origin, Tree, hold
    from ziplan.report.profiles import profile_text

    models: dict[str, type[Part]] = {"gpus": Gpu, "links": Link, "drives": Drive}
    document = shipped(kind, name)
    assert document is not None, f"{name} was listed"
    tree = Tree(hold(document.data, Origin(document, ())))
    return profile_text(f"{name} ({kind})", validate(tree, models[kind]), tree.provenance(), width())
