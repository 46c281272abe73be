"""`ziplan explain`: how a number comes about."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated

import typer

from ziplan.cli import options
from ziplan.cli.given import SETTLED_BY_A_CONFIG, Given, given_options
from ziplan.cli.output import show, width, write
from ziplan.errors import BadInput

if TYPE_CHECKING:
    from ziplan.check.finding import Rule
    from ziplan.laws.law import Law

app = typer.Typer(add_completion=False, rich_markup_mode=None)
ARTICLE, EVERY_LAW, EVERY_RULE = "article", "laws", "rules"
CODE = re.compile(r"[Zz][Pp][0-9]{3}")


def _laws() -> dict[str, Law]:
    """Every law, those of the runtimes included."""
    from ziplan.report.laws_page import every_law

    return {law.name: law for law in every_law()}


def _rules() -> dict[str, Rule]:
    """Every rule of `check`."""
    from ziplan.check.rules import RULES

    return RULES


def _topics() -> Iterable[str]:
    return [ARTICLE, EVERY_LAW, EVERY_RULE, *sorted(_laws()), *_rules()]


@app.command()
@given_options(*SETTLED_BY_A_CONFIG)
def explain(
    topics: Annotated[
        list[str],
        typer.Argument(
            metavar="TOPIC",
            help="'article' for its worked example figure by figure, 'laws' and 'rules' for lists of them, "
            "or the name of one. With --error: MODEL CLUSTER CONFIG.",
            autocompletion=options.completer(_topics),
        ),
    ],
    given: Given,
    error: Annotated[
        str | None,
        typer.Option(
            "--error",
            metavar="TEXT",
            help="A message of memory that ran out, read back to what asked for it.",
            show_default=False,
        ),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="The article's figures as ziplan.article/1.")] = False,
) -> None:
    """How a number comes about: the article's worked example, one law or rule, a failed allocation."""
    if error is not None:
        from ziplan.cli.explain_error import explained

        show(explained(error, topics, given))
        return
    if given != Given():
        raise BadInput.of("flags about a run go with --error")
    if len(topics) != 1:
        raise BadInput.of(
            f"one topic at a time, not {len(topics)}", help="MODEL CLUSTER CONFIG go with --error"
        )
    (topic,) = topics
    if topic == ARTICLE:
        _article(json)
        return
    if topic == EVERY_RULE or CODE.fullmatch(topic):
        _rule(topic)
        return
    laws = _laws()
    if topic != EVERY_LAW and topic not in laws:
        raise BadInput.of(f"nothing is called {topic!r}", help=_remedy(topic, laws))
    if json:
        raise BadInput.of("--json is for `explain article` only")
    from ziplan.report.derivation import law_lines, law_list

    show(law_list(laws, width()) if topic == EVERY_LAW else law_lines(laws[topic], width()))


def _rule(topic: str) -> None:
    """The page of one rule, or the list of them."""
    from ziplan.report.rules_page import rule_lines, rule_list

    rules = _rules()
    if topic == EVERY_RULE:
        show(rule_list(rules.values(), width()))
    elif topic.upper() in rules:
        show(rule_lines(rules[topic.upper()], width()))
    else:
        raise BadInput.of(f"no rule is called {topic!r}", help="`ziplan explain rules` lists them")


def _remedy(topic: str, laws: Iterable[str]) -> str:
    from difflib import get_close_matches

    close = get_close_matches(topic, [ARTICLE, EVERY_LAW, *laws], n=3)
    return (
        f"did you mean {' or '.join(close)}?"
        if close
        else "'article', a law or a rule: `ziplan explain laws` and `ziplan explain rules` list them"
    )


def _article(as_json: bool) -> None:
    from ziplan.study import article

    if as_json:
        from ziplan.report.json import dumps

        write(dumps(article.as_json()))
        return
    from ziplan.report.article import article_text

    show(article_text(article.figures(), width()))
