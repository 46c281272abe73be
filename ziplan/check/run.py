"""Running the rules over a case: findings in order, each once, less those that are lived with."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from ziplan.check.case import Case
from ziplan.check.finding import SEVERITIES, Finding, Hit, Rule, Severity
from ziplan.check.rules import RULES
from ziplan.estimate import Verdict

if TYPE_CHECKING:
    from ziplan.check.policy import Ignore

GENERAL, OF_KEYS = "ZP302", "ZP3"
"""The rule that says of any ignored key what another rule of keys may say better, and how those begin."""


class Checked(NamedTuple):
    """The judgement of one config.

    `suppressed` are findings that somebody lives with, each with its entry; `unused` are entries
    that no finding needs.
    """

    case: Case
    findings: tuple[Finding, ...]
    suppressed: tuple[tuple[Finding, Ignore], ...] = ()
    unused: tuple[Ignore, ...] = ()

    @property
    def verdict(self) -> Verdict:
        """Whether it fits; unknown where the config comes to no plan, or what nobody stated decides."""
        estimate, other = self.case.estimate, self.case.other
        if estimate is None or (other is not None and other.verdict != estimate.verdict):
            return "unknown"
        return estimate.verdict

    def count(self, severity: Severity) -> int:
        """How many findings are of a severity."""
        return sum(each.severity == severity for each in self.findings)

    def fails_on(self, least: Severity) -> bool:
        """Whether there is a finding of this severity or a worse one."""
        worst = SEVERITIES[: SEVERITIES.index(least) + 1]
        return any(each.severity in worst for each in self.findings)


def check(case: Case, ignores: Sequence[Ignore] = ()) -> Checked:
    """Every rule's findings, sorted into those that count and those that are lived with."""
    kept, suppressed = [], []
    used: set[Ignore] = set()
    for finding in findings(case):
        entry = next((each for each in ignores if each.covers(finding)), None)
        if entry is None:
            kept.append(finding)
        else:
            used.add(entry)
            suppressed.append((finding, entry))
    unused = tuple(each for each in dict.fromkeys(ignores) if each not in used)
    return Checked(case, tuple(kept), tuple(suppressed), unused)


def findings(case: Case, rules: Iterable[Rule] = tuple(RULES.values())) -> list[Finding]:
    """Everything that the rules find, worst first, then by place."""
    found = [_finding(case, rule, hit) for rule in rules for hit in rule.find(case)]
    # A number's law has no hash; the same words at the same place are the same finding.
    once = {each._replace(number=None): each for each in reversed(found)}
    kept = _without_echoes(list(once.values()))
    return sorted(kept, key=lambda each: (SEVERITIES.index(each.severity), each.line, each.column, each.code))


def _finding(case: Case, rule: Rule, hit: Hit) -> Finding:
    file, path, line, column = case.place(hit.key, hit.field)
    if hit.file:
        file, path, line, column = hit.file, hit.key, hit.line, hit.column
    return Finding(
        code=rule.code,
        severity=rule.severity,
        title=rule.title,
        message=hit.message,
        file=file,
        path=path,
        line=line,
        column=column,
        fix=hit.fix,
        number=hit.number,
    )


def _without_echoes(found: list[Finding]) -> list[Finding]:
    """An ignored key goes untold where a rule of its own has a finding of the same weight there.

    What is rejected never does, and what memory or time has to say of a key is something else.
    """
    told = {
        (each.path, each.severity) for each in found if each.code.startswith(OF_KEYS) and each.code != GENERAL
    }
    return [each for each in found if each.code != GENERAL or (each.path, each.severity) not in told]
