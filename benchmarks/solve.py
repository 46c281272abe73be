"""How fast the solver is: plans per second on one core, the time and memory of a solve, a cold `fit`.

python benchmarks/solve.py
"""

from __future__ import annotations

import resource
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from ziplan.hardware.profiles import load_cluster
from ziplan.runtimes import RUNTIMES
from ziplan.runtimes.runtime import Axis
from ziplan.solve import Problem, solve
from ziplan.solve.enumerate import best_by_placement, search_grid
from ziplan.workload.load import load_workload

LEAST_PLANS = 600_000
LEAST_PLANS_PER_S = 1_000_000
MOST_FIT_BYTES = 200e6
EXAMPLE = Path(__file__).parent.parent / "examples" / "quickstart"

BATCHES = range(1, 321)

MODULES = ("numpy", "pydantic", "yaml", "ziplan")


def problem(model: str, cluster: str, **training: object) -> Problem:
    machine = load_cluster(cluster, [])
    workload = load_workload(model, training, tuple(machine.node.gpu.peak_flops_per_s))
    return Problem(machine, workload, RUNTIMES["deepspeed"])


def cpu_seconds(call: Callable[[], object], repeats: int = 3) -> float:
    """The least CPU time of a few calls."""
    spent = []
    for _ in range(repeats):
        start = time.process_time()
        call()
        spent.append(time.process_time() - start)
    return min(spent)


def enumeration() -> bool:
    """A grid larger than any that is searched: code changes allowed, every micro-batch up to a bound."""
    asked = problem("llama-3.1-8b", "dgx-a100-80g", sequence_length=512)
    grid = search_grid(asked, code_changes=True)
    batches = Axis("batch", tuple({"micro_batch_size": float(n), "accumulation_steps": 8.0} for n in BATCHES))
    grid = grid._replace(axes=(*grid.axes[:-1], batches))
    first = cpu_seconds(lambda: best_by_placement(asked, grid), repeats=1)
    again = cpu_seconds(lambda: best_by_placement(asked, grid))
    rate = grid.size / again
    print(f"grid        {grid.size:,} plans: {' x '.join(map(str, grid.shape))}")
    print(f"enumerate   {again * 1e3:,.0f} ms, {rate:,.0f} plans/s on one core")
    print(f"first time  {first * 1e3:,.0f} ms, {grid.size / first:,.0f} plans/s")
    return grid.size >= LEAST_PLANS and rate >= LEAST_PLANS_PER_S


def solving() -> None:
    """Whole answers: baseline, alternatives, binding and changes, for plans that fit and that do not."""
    for model, cluster, training in (
        ("llama-3.1-8b", "dgx-a100-80g", {"sequence_length": 4096, "global_batch_size": 64}),
        ("llama-3.1-70b", "4x dgx-a100-80g", {"sequence_length": 4096}),
        ("llama-3.1-70b", "rtx-4090-desktop", {"sequence_length": 4096, "global_batch_size": 8}),
    ):
        asked = problem(model, cluster, **training)
        seconds = cpu_seconds(lambda asked=asked: solve(asked))
        answer = solve(replace(asked))
        print(
            f"solve       {seconds * 1e3:4.0f} ms  {model} on {cluster}: {answer.best.verdict}, "
            f"{answer.plans_evaluated:,} plans, {len(answer.changes)} changes"
        )


def fit() -> bool:
    """A cold `ziplan fit` of the example: wall time, what the imports take, peak memory."""
    arguments = ["fit", str(EXAMPLE / "model.yaml"), str(EXAMPLE / "cluster.yaml"), "--json"]
    program = f"import sys; from ziplan.cli.main import main; sys.argv = {['ziplan', *arguments]!r}; main()"
    walls = []
    for _ in range(3):
        start = time.perf_counter()
        run = subprocess.run(  # noqa: S603 - our own program
            [sys.executable, "-X", "importtime", "-c", program], capture_output=True, text=True, check=False
        )
        walls.append(time.perf_counter() - start)
    used = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024
    print(f"fit, cold   {min(walls) * 1e3:,.0f} ms with import timing, {used / 1e6:.0f} MB at the peak")
    for name, seconds in imports(run.stderr).items():
        print(f"  import    {seconds * 1e3:4.0f} ms  {name}")
    return run.returncode == 0 and used < MOST_FIT_BYTES


def imports(report: str) -> dict[str, float]:
    """Seconds that each package's own modules took, from -X importtime; the rest under "others"."""
    seconds: dict[str, float] = {}
    for line in report.splitlines():
        if not line.startswith("import time:") or "self [us]" in line:
            continue
        own, _, module = (part.strip() for part in line.removeprefix("import time:").split("|"))
        package = module.partition(".")[0]
        package = {"pydantic_core": "pydantic", "annotated_types": "pydantic"}.get(package, package)
        package = package if package in MODULES else "others"
        seconds[package] = seconds.get(package, 0.0) + int(own) * 1e-6
    return dict(sorted(seconds.items(), key=lambda item: -item[1]))


def main() -> int:
    enough = enumeration()
    solving()
    small = fit()
    if not enough:
        print(f"too slow: wanted {LEAST_PLANS:,} plans at {LEAST_PLANS_PER_S:,} plans/s")
    if not small:
        print(f"fit failed, or took more than {MOST_FIT_BYTES / 1e6:.0f} MB")
    return 0 if enough and small else 1


if __name__ == "__main__":
    sys.exit(main())
