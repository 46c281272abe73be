"""`ziplan explain`: how a number comes about."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated

import typer

from ziplan.cli import options
from ziplan.cli.output import show, width, write
from ziplan.errors import BadInput

if TYPE_CHECKING:
    from ziplan.laws.law import Law

app = typer.Typer(add_completion=False, rich_markup_mode=None)
ARTICLE, EVERY_LAW = "article", "laws"


def _laws() -> dict[str, Law]:
    """Every law, those of the runtimes included."""
    import ziplan.laws
    import ziplan.runtimes  # noqa: F401 - a runtime's laws enter when it is imported
    from ziplan.laws.law import LAWS

    return LAWS


def _topics() -> Iterable[str]:
    return [ARTICLE, EVERY_LAW, *sorted(_laws())]


@app.command()
def explain(
    topic: Annotated[
        str,
        typer.Argument(
            metavar="TOPIC",
            help="'article' for its worked example figure by figure, 'laws' for a list of the laws, "
            "or the name of one.",
            autocompletion=options.completer(_topics),
        ),
    ],
    json: Annotated[bool, typer.Option("--json", help="The article's figures as ziplan.article/1.")] = False,
) -> None:
    """How a number comes about: the article's worked example, or one law."""
    if topic == ARTICLE:
        _article(json)
        return
    laws = _laws()
    if topic != EVERY_LAW and topic not in laws:
        raise BadInput.of(f"nothing is called {topic!r}", help=_remedy(topic, laws))
    if json:
        raise BadInput.of("--json is for `explain article` only")
    from ziplan.report.derivation import law_lines, law_list

    show(law_list(laws, width()) if topic == EVERY_LAW else law_lines(laws[topic], width()))


def _remedy(topic: str, laws: Iterable[str]) -> str:
    from difflib import get_close_matches

    close = get_close_matches(topic, [ARTICLE, EVERY_LAW, *laws], n=3)
    return (
        f"did you mean {' or '.join(close)}?"
        if close
        else "'article', or a law: `ziplan explain laws` lists them"
    )


def _article(as_json: bool) -> None:
    from ziplan.study import article

    if as_json:
        from ziplan.report.json import dumps

        write(dumps(article.as_json()))
        return
    from ziplan.report.article import article_text

    show(article_text(article.figures(), width()))
