"""What the article leaves out and a planner must add."""

from __future__ import annotations

from ziplan.laws import ceilings, efficiency, intensity, optimizer, partition, prefetch, traffic
from ziplan.study.article.book import Book, Inputs


def interconnect(book: Book, given: Inputs) -> None:
    """Left out: the allgather crosses the interconnect, a tier with a bar of its own."""
    apply = book.derivation.apply
    apply(
        partition.gather_time,
        gathered_bytes=book.value("14"),
        dp_degree=given.dp_degree,
        gather_bandwidth=given.gather_bandwidth,
    )
    book.add(
        "gather_time_s",
        "Allgather of one layer at 25 GB/s per GPU",
        note="Each rank receives 63/64 of every layer in each sweep: about eight striped flash reads.",
    )
    balance = apply(
        intensity.machine_balance,
        "interconnect",
        sustained_flops_per_s=given.sustained_flops_per_s,
        link_bandwidth=given.gather_bandwidth,
    )
    apply(intensity.required_tokens, machine_balance=balance, intensity_per_token=book.value("9"))
    book.add("interconnect_required_tokens", "Tokens that hide two gathers a micro-step at 25 GB/s")


def gradients(book: Book, given: Inputs) -> None:
    """Left out: gradients travel down once in each micro-step."""
    apply = book.derivation.apply
    for loads, prefix, whose in (
        (2, "", "the article's two loads"),
        (3, "paper_", "the paper's three loads"),
    ):
        streamed = apply(
            traffic.streamed_bytes_per_param_with_gradients,
            param_bytes_per_param=given.param_bytes,
            param_loads=loads,
            grad_bytes_per_param=given.grad_bytes,
            grad_stores=1,
        )
        book.add(
            f"{prefix}traffic_with_gradients_bytes_per_param", f"Bytes per parameter, gradients and {whose}"
        )
        apply(
            intensity.intensity_per_token,
            flops_per_param_token=book.value("7"),
            streamed_bytes_per_param=streamed,
        )
        book.add(
            f"{prefix}intensity_with_gradients_flops_per_byte_token",
            f"Intensity for each token, gradients and {whose}",
        )


def optimizer_pass(book: Book, given: Inputs) -> None:
    """Left out: the optimizer's pass over flash is not small next to 262 s of compute."""
    for size, key, whose in (
        (given.optimizer_bytes, "optimizer_flash_time_s", "24 B per parameter"),
        (given.optimizer_bytes_deepspeed, "optimizer_flash_time_deepspeed_s", "DeepSpeed's 30 B"),
    ):
        book.derivation.apply(
            optimizer.optimizer_flash_time,
            params=given.params,
            optimizer_bytes_per_param=size,
            drive_count=given.dp_degree,
            drive_bandwidth=given.nvme_bandwidth,
        )
        book.add(
            key,
            f"Optimizer pass over 64 drives, {whose}",
            note="Gradient accumulation amortises it; nothing else does.",
        )


def sweeps(book: Book, given: Inputs) -> None:
    """Left out: parameters climb once in each sweep, and a sweep has less compute to hide behind."""
    apply = book.derivation.apply
    forward = apply(
        prefetch.layer_forward_time,
        params=given.params,
        tokens_per_rank=given.tokens_per_rank,
        forward_flops_per_param_token=given.forward_flops,
        layer_count=given.layer_count,
        sustained_flops_per_s=given.sustained_flops_per_s,
    )
    book.add("layer_forward_time_s", "Compute of one layer in the forward sweep")
    backward = apply(
        prefetch.layer_backward_time,
        params=given.params,
        tokens_per_rank=given.tokens_per_rank,
        recompute_flops_per_param_token=given.recompute_flops,
        backward_flops_per_param_token=given.backward_flops,
        layer_count=given.layer_count,
        sustained_flops_per_s=given.sustained_flops_per_s,
    )
    book.add("layer_backward_time_s", "Compute of one layer in the backward sweep, recomputation included")
    for name, time in (("forward", forward), ("backward", backward)):
        depth = apply(prefetch.prefetch_depth, fetch_time=book.value("15"), layer_time=time)
        book.add(f"prefetch_depth_{name}", f"Prefetch depth in the {name} sweep, owner-broadcast")
        apply(prefetch.resident_layer_bytes, prefetch_depth=depth, layer_bytes=book.value("14"))
        book.add(
            f"resident_layer_{name}_bytes",
            f"Buffers of the {name} sweep and the layer in use, owner-broadcast",
        )
    apply(prefetch.prefetch_depth, fetch_time=book.value("16"), layer_time=forward)
    book.add("prefetch_depth_forward_striped", "Prefetch depth in the forward sweep, striped")


def bounds(book: Book, given: Inputs) -> None:
    """Left out: the other end of the efficiency bound, and the other measure of the ceilings."""
    apply = book.derivation.apply
    offered = apply(
        intensity.parameter_intensity,
        intensity_per_token=book.value("9"),
        tokens_per_rank=given.tokens_per_rank,
    )
    apply(efficiency.serial_efficiency, arithmetic_intensity=offered, machine_balance=book.value("5"))
    book.add(
        "serial_efficiency",
        "Efficiency against all-HBM without overlap, 4,096 tokens over one drive's share",
        note="The truth lies between this and row 31.",
    )
    trained = apply(
        ceilings.max_params_by_compute,
        training_time=given.year_length,
        cluster_flops_per_s=given.cluster_flops_per_s,
        flops_per_param_token=book.value("7"),
        tokens_per_param=given.tokens_per_param,
    )
    book.add("max_params_by_compute_params", "Parameters that a year at 10 EFLOP/s trains")
    apply(ceilings.ceiling_gap, max_params_by_capacity=book.value("26"), max_params_by_compute=trained)
    book.add("ceiling_gap", "Capacity ceiling over compute ceiling, in parameters")
