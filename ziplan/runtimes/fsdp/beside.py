"""Set-up modules of the models beside the trained one, one a companion, and what train.py does with them."""

from __future__ import annotations

from collections.abc import Iterator

from ziplan.errors import CannotEmit
from ziplan.hardware.cluster import Cluster
from ziplan.laws.law import Derivation
from ziplan.plan import Plan
from ziplan.runtimes.fsdp.facts import Facts
from ziplan.runtimes.fsdp.snippet import setup_module
from ziplan.runtimes.fsdp.space import refusals, settle
from ziplan.runtimes.shared.companions import Engine, engines_of
from ziplan.runtimes.shared.train_py import trainable_lines
from ziplan.workload.training import Workload


def companion_modules(cluster: Cluster, workload: Workload, plan: Plan) -> dict[str, str]:
    """A set-up module for each companion, by the name of its file; without training it makes no optimizer."""
    modules = {}
    for engine in _engines(cluster, workload, plan):
        reasons = refusals(cluster, engine.workload, engine.plan)
        if reasons:
            raise CannotEmit(f"FSDP2 cannot run the {engine.companion.name}: " + "; ".join(reasons))
        facts = Facts(Derivation(record=False), cluster, engine.workload, engine.plan)
        modules[f"fsdp_setup_{_name(engine)}.py"] = setup_module(facts)
    return modules


def companion_lines(cluster: Cluster, workload: Workload, plan: Plan) -> Iterator[str]:
    """What train.py has to do for each companion, after the trained model is sharded."""
    yield "In train.py, for each other model, in this order and after the trained one:"
    for engine in _engines(cluster, workload, plan):
        name = _name(engine)
        if engine.companion.trained:
            yield from trainable_lines(engine.workload.training, name)
            yield f"{name}_optimizer = fsdp_setup_{name}.setup({name})"
        else:
            yield f"{name}.eval().requires_grad_(False); fsdp_setup_{name}.setup({name})"
    yield "A model that is not trained runs under torch.no_grad()."


def _engines(cluster: Cluster, workload: Workload, plan: Plan) -> list[Engine]:
    return engines_of(settle, cluster, workload, plan, one_home=True)


def _name(engine: Engine) -> str:
    return engine.companion.name.replace("-", "_")
