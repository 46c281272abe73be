"""FSDP2's step: what moves, what computes, and what of it overlaps.

- The gather of the root's group and of the first layer stand before forward, the reduction of
  the root's gradients after backward (`_fsdp_state.py:_root_pre_forward`,
  `_root_post_backward_final_callback`): they hide behind nothing.
- Every other gather runs one layer ahead on a stream of its own, beside its copy from the host;
  in backward a gather waits for the copy of the same layer.
- Gathers and reduce-scatters share one communicator, and take turns.
- Shards are cast and copied together beside computation, and sums of gradients are cast beside it; what is
  copied out of gathers and into sums stands in its way (`_fsdp_collectives.py`: on the current stream).
- Gradient shards are copied to the host in the stream that reduces. Where they are added to those
  of an earlier micro-step, the process waits for the copy, and so for the reduction before it, and adds on
  the CPU: nothing overlaps.
- The optimizer's pass overlaps with nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ziplan.hardware.cluster import Cluster
from ziplan.hardware.rates import ADAM_BYTES
from ziplan.laws.host import measured_gradient_bytes, temporary_bytes
from ziplan.laws.law import Derivation, maximum, where
from ziplan.plan import Plan
from ziplan.runtimes.fsdp import laws
from ziplan.runtimes.fsdp.facts import Facts
from ziplan.runtimes.fsdp.groups import Groups
from ziplan.runtimes.fsdp.swept import ADDED, clipped, joined, packed, summed, unpacked
from ziplan.runtimes.runtime import COLLECTIVE, HOST_THREAD, Demand, Segment, scaled
from ziplan.runtimes.shared.compute import forward_share, gpu_work
from ziplan.runtimes.shared.fresh import fresh_memory
from ziplan.runtimes.shared.launches import launches_by_sweep
from ziplan.runtimes.terms import GRADIENTS_DOWN, HOST_NORM, TEMPORARIES
from ziplan.workload.training import Workload


def program(
    derivation: Derivation, cluster: Cluster, workload: Workload, plan: Plan, flat: bool = False
) -> Sequence[Segment]:
    """The segments of one step, in order; `flat` of FSDP1."""
    facts = Facts(derivation, cluster, workload, plan, flat)
    return (_micro_step(facts), _optimizer_step(facts))


@dataclass(frozen=True)
class _Moves:
    """The demands of moving so many padded elements, each where it has its stream."""

    facts: Facts

    def gather(self, label: str, params: float, groups: float) -> tuple[Demand, Demand]:
        f = self.facts
        amount = f.derivation.apply(
            laws.all_gathered_bytes,
            label,
            padded_params=params,
            param_loads=1.0,
            param_bytes_per_param=f.element,
            dp_degree=f.plan.dp_degree,
        )
        return Demand("gather", "gather", amount), Demand("gather", COLLECTIVE, groups)

    def reduce(self, label: str, params: float, groups: float) -> tuple[Demand, Demand]:
        f = self.facts
        amount = f.derivation.apply(
            laws.reduce_scattered_bytes,
            label,
            padded_params=params,
            grad_bytes_per_param=f.element,
            dp_degree=f.plan.dp_degree,
        )
        return Demand("gradient reduce", "gather", amount), Demand("gradient reduce", COLLECTIVE, groups)

    def copy_in(self, label: str, params: float, trained: float, loads: float = 1.0) -> list[Demand]:
        """As it is kept what is trained, in the precision that computes what is frozen."""
        copies = self._copy("parameter copy", "read", label, trained, self.facts.master, loads)
        if self.facts.workload.model.trainable_params < self.facts.workload.model.params:
            frozen = f"{label}, frozen", params - trained, self.facts.element
            copies += self._copy("parameter copy", "read", *frozen, loads)
        return copies

    def copy_out(self, label: str, params: float, share: float) -> list[Demand]:
        return self._copy(GRADIENTS_DOWN, "write", label, params, self.facts.master, share)

    def _copy(
        self, term: str, direction: str, label: str, params: float, bytes_per_param: float, loads: float
    ) -> list[Demand]:
        f = self.facts
        if not f.host:
            return []
        amount = f.derivation.apply(
            laws.offload_copy_bytes,
            label,
            padded_params=params,
            param_loads=loads,
            state_bytes_per_param=bytes_per_param,
            dp_degree=f.plan.dp_degree,
            share=f.offloaded,
        )
        return [Demand(term, f"{f.host}.{direction}", amount)]


def _first(groups: Groups, layer_count: float) -> float:
    """Padded elements gathered before anything computes: the root's group and a layer."""
    return groups.root + groups.layers / layer_count


def _before(f: Facts, moves: _Moves, params: float, trained: float) -> list[Demand]:
    """The root's group and the first layer, gathered before anything computes."""
    return [
        *moves.copy_in("first groups copied to the GPU", params, trained),
        packed(f, "first groups", params, trained),
        *moves.gather("first groups gathered", params, 2.0),
        unpacked(f, "first groups copied out of what was gathered", params),
    ]


def _after(f: Facts, moves: _Moves, trained: float) -> list[Demand]:
    """The gradients of the root's group, when backward has ended, and what waits to be added on the host."""
    return [
        joined(f, "gradients of the root's group copied into what is reduced", trained),
        *moves.reduce("gradients of the root's group", trained, where(trained > 0, 1.0, 0.0)),
        summed(f, "gradients of the root's group divided, cast and added", trained),
        *moves.copy_out("gradients of the root's group to the host", trained, 1 - f.accumulating),
        *_added(f, moves),
    ]


def _micro_step(f: Facts) -> Segment:
    moves, whole, trained = _Moves(f), f.groups, f.trained_groups
    first, first_trained = (_first(each, float(f.workload.model.layer_count)) for each in (whole, trained))
    before, after = _before(f, moves, first, first_trained), _after(f, moves, trained.root)
    others, others_trained = whole.all - first, trained.all - first_trained
    # A layer that backward does not reach is not gathered again, but the last one is: ahead, for the root.
    last = 1 / f.workload.model.layer_count if f.trained else 0.0
    reached = maximum(f.by_reach(lambda swept: swept.layers), last)
    again = reached * whole.layers, reached * trained.layers
    copies = moves.copy_in("layers copied to the GPU in forward", others, others_trained)
    copies_again = moves.copy_in("layers copied to the GPU again in backward", *again)
    packs = packed(f, "layers in forward", others, others_trained)
    packs_again = packed(f, "layers again in backward", *again)
    layers = float(f.workload.model.layer_count)
    gathered = moves.gather("layers gathered in forward", others, layers - 1)
    gathered_again = moves.gather("layers gathered again in backward", again[0], reached * layers)
    reducing = moves.reduce("gradients of the layers", trained.layers, reached * layers)
    summing = [summed(f, "gradients of the layers divided, cast and added", trained.layers)]
    in_turn = f.accumulating * f.offloaded
    reduced, sums = (scaled(each, 1 - in_turn) for each in (reducing, summing))
    awaited = scaled([*reducing, *summing], in_turn)
    down = moves.copy_out("gradients of the layers to the host", trained.layers, 1 - f.accumulating)
    work, share, launched = gpu_work(f), forward_share(f), launches_by_sweep(f)
    forward = [unpacked(f, "layers copied out of what was gathered", others), *scaled(work, share)]
    backward = [
        unpacked(f, "layers copied out again in backward", again[0]),
        *scaled(work, 1 - share),
        joined(f, "gradients of the layers copied into what is reduced", trained.layers),
    ]
    beside = (packs, packs_again, *sums)
    chains = (
        [*forward, *backward],
        # Each sweep waits for its own gathers: those of backward begin when forward has ended.
        [*gathered, *backward],
        [*forward, *gathered_again],
        # What passes through the GPU's memory takes turns there, whatever stream it is on.
        [each for each in (*forward, *backward, *beside) if each.resource == f"{f.gpu}.read"],
        [*copies, packs, *copies_again, packs_again, *gathered_again],
        [*gathered, *gathered_again, *reduced],
        [*reduced, *sums, *down],
    )
    return Segment(
        "micro-step",
        f.plan.accumulation_steps,
        (*((*before, *chain, *awaited, *after) for chain in chains), launched, (launched[0], *backward)),
    )


def _added(f: Facts, moves: _Moves) -> list[Demand]:
    """Gradients copied and added on the host while everything waits, in every micro-step but the first."""
    if not f.host:
        return []
    added = f.derivation.apply(
        laws.accumulated_params,
        "gradients added on the host",
        padded_params=f.trained_groups.all,
        dp_degree=f.plan.dp_degree,
        accumulation_steps=f.plan.accumulation_steps,
        added_bytes_per_param=ADDED * f.master,
        optimizer_bytes_per_param=ADAM_BYTES,
        share=f.offloaded,
        ranks_per_instance=f.ranks,
    )
    copied = moves.copy_out("gradients copied before they are added", f.trained_groups.all, f.accumulating)
    return [*copied, Demand("gradient accumulation", "cpu_optimizer", added)]


def _optimizer_step(f: Facts) -> Segment:
    on_gpu = f.derivation.apply(
        laws.adam_pass_bytes,
        "update on the GPU",
        padded_params=f.trained_groups.all,
        optimizer_bytes_per_param=f.update,
        dp_degree=f.plan.dp_degree,
        share=1 - f.offloaded,
    )
    # Host memory limits the update: one that moves fewer bytes than Adam's counts as fewer parameters.
    pace = (f.update + f.scaled) / ADAM_BYTES
    updated = pace * f.offloaded * f.trained_groups.all / f.plan.dp_degree * f.ranks
    demands = (
        clipped(f),
        Demand("GPU optimizer", f"{f.gpu}.read", on_gpu),
        *_on_the_host(f),
        Demand("CPU optimizer", "cpu_optimizer", updated),
    )
    return Segment("optimizer step", 1.0, (demands,))


def _on_the_host(f: Facts) -> tuple[Demand, ...]:
    """What an update on the host takes beside its operators' bytes.

    The norm of a tensor is taken by one thread, however many there are: `norm_kernel_tensor_iterator_impl`
    has a path of its own for the 2-norm of fp32 and bf16, which divides what it keeps and not what it
    reduces. One and two threads took as long (torch 2.13; https://github.com/pytorch/pytorch/issues/120229).
    """
    if not f.host:
        return ()
    norm = f.derivation.apply(
        measured_gradient_bytes,
        "gradients on the host whose norm is taken",
        params=f.trained_groups.all,
        grad_bytes_per_param=f.master,
        dp_degree=f.plan.dp_degree,
        share=f.offloaded * f.clipped,
    )
    made = f.derivation.apply(
        temporary_bytes,
        "tensors that the update makes on the host",
        params=f.trained_groups.all,
        bytes_per_param=f.master,
        temporary_count=f.temporaries,
        dp_degree=f.plan.dp_degree,
        share=f.offloaded * f.made_anew,
    )
    pages = fresh_memory(f, TEMPORARIES, "memory of tensors that the update makes", made)
    return (Demand(HOST_NORM, HOST_THREAD, norm), *pages)
