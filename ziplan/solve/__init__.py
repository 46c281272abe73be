"""The exact solver: the best plan, what binds it, and what would change that."""

from ziplan.solve.problem import Answer, Baseline, Binding, Change, Problem
from ziplan.solve.search import ALTERNATIVES, best_plan, solve

__all__ = ["ALTERNATIVES", "Answer", "Baseline", "Binding", "Change", "Problem", "best_plan", "solve"]
