"""The exact solver: the best plan, what binds it, and what would change that."""

from ziplan.solve.problem import Answer, Baseline, Binding, Change, Problem
from ziplan.solve.search import solve

__all__ = ["Answer", "Baseline", "Binding", "Change", "Problem", "solve"]
