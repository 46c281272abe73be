"""Who applies which law, read from the package's own source."""

from __future__ import annotations

import ast
from collections import defaultdict
from pathlib import Path

import ziplan
from ziplan.laws.law import Law
from ziplan.report.laws_page import every_law

ROOT = Path(ziplan.__file__).parent


def users() -> dict[str, set[str]]:
    """Law to the modules that name it; those of `ziplan.laws` only define them, and laws call no laws."""
    laws = {(law.module, law.name): law for law in every_law()}
    found: dict[str, set[str]] = defaultdict(set)
    for path in sorted({*ROOT.rglob("*.py")} - {*(ROOT / "laws").rglob("*.py")}):
        module = ".".join(("ziplan", *path.relative_to(ROOT).with_suffix("").parts)).removesuffix(".__init__")
        for law in _named(ast.parse(path.read_text(encoding="utf-8")), module, laws):
            found[law.name].add(module)
    return found


def _named(tree: ast.Module, module: str, laws: dict[tuple[str, str], Law]) -> set[Law]:
    """Laws that a module names: imported by name, by their module, or its own."""
    alias: dict[str, str] = {}
    names: dict[str, tuple[str, str]] = {law: (module, law) for where, law in laws if where == module}
    for node in (each for each in ast.walk(tree) if isinstance(each, ast.ImportFrom)):
        for each in node.names:
            alias[each.asname or each.name] = f"{node.module}.{each.name}"
            names[each.asname or each.name] = (str(node.module), each.name)
    keys = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and node.id in names:
            keys.add(names[node.id])
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            keys.add((alias.get(node.value.id, ""), node.attr))
    return {laws[key] for key in keys if key in laws}
