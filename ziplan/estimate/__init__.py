"""The one evaluator: (cluster, workload, runtime, plan) to memory, time and what binds."""

from ziplan.estimate.evaluate import elsewhere, estimate
from ziplan.estimate.result import Assumption, Estimate, Limits, TierMemory, TierTest, Verdict

__all__ = ["Assumption", "Estimate", "Limits", "TierMemory", "TierTest", "Verdict", "elsewhere", "estimate"]
