"""The rows that the article prints, chapter by chapter."""

from __future__ import annotations

from ziplan.laws import (
    ceilings,
    counts,
    efficiency,
    intensity,
    optimizer,
    partition,
    prefetch,
    tiling,
    traffic,
)
from ziplan.study.article.book import Book, Inputs


def bars(book: Book, given: Inputs) -> None:
    """Rows 1 to 9: what each tier demands of parameter streaming."""
    apply = book.derivation.apply
    per_flop = apply(
        counts.flops_per_param_token,
        forward_flops_per_param_token=given.forward_flops,
        recompute_flops_per_param_token=given.recompute_flops,
        backward_flops_per_param_token=given.backward_flops,
    )
    book.add(
        "7",
        "FLOPs of a step for each parameter and token, with activation checkpointing",
        "8·P·T",
        note="2 forward, 2 recomputed forward, 4 backward; attention's own term is left out.",
    )
    streamed = apply(traffic.streamed_bytes_per_param, param_bytes_per_param=given.param_bytes, param_loads=2)
    book.add(
        "8",
        "Parameter bytes that climb in a micro-step, for each parameter",
        "4P",
        note="Two climbs of 2 B. Gradients are left out: see traffic_with_gradients_bytes_per_param.",
    )
    per_token = apply(
        intensity.intensity_per_token, flops_per_param_token=per_flop, streamed_bytes_per_param=streamed
    )
    book.add("9", "Intensity of parameter streaming, for each token", "2T")
    tiers = (
        ("1", "2", "HBM", given.hbm_bandwidth, "63 FLOPs/byte", "~32"),
        ("3", "4", "DRAM over PCIe 4.0 x16", given.dram_bandwidth, "3,900", "~2,000"),
        ("5", "6", "NVMe (one drive's share)", given.nvme_bandwidth, "41,700", "~20,900"),
    )
    for bar, tokens, tier, bandwidth, printed_bar, printed_tokens in tiers:
        balance = apply(
            intensity.machine_balance,
            tier,
            sustained_flops_per_s=given.sustained_flops_per_s,
            link_bandwidth=bandwidth,
        )
        book.add(bar, f"Required intensity, {tier}", printed_bar)
        apply(intensity.required_tokens, tier, machine_balance=balance, intensity_per_token=per_token)
        book.add(tokens, f"Tokens needed per link, {tier}", printed_tokens)


def tests(book: Book, given: Inputs) -> None:
    """Rows 10 to 12: which work clears the flash tier's bar."""
    apply = book.derivation.apply
    for batch, key in ((given.large_batch_size, "10"), (1, "11")):
        tokens = apply(counts.tokens_per_rank, micro_batch_size=batch, sequence_length=given.sequence_length)
        offered = apply(
            intensity.parameter_intensity, intensity_per_token=book.value("9"), tokens_per_rank=tokens
        )
        if key == "10":
            apply(intensity.hiding_margin, arithmetic_intensity=offered, machine_balance=book.value("5"))
            book.add(key, "Margin of batch 16 x sequence 2048 over the NVMe bar", "clears it")
        else:
            apply(
                intensity.intensity_shortfall, arithmetic_intensity=offered, machine_balance=book.value("5")
            )
            book.add(key, "Times that one 2048-token sequence misses the NVMe bar", "misses by 10x")
    apply(
        optimizer.optimizer_intensity,
        optimizer_flops_per_param=given.optimizer_flops,
        optimizer_bytes_per_param=given.optimizer_bytes,
    )
    book.add("12", "Intensity of the Adam update", "≈ 0.5", note="12 FLOPs on 24 B, at every batch size.")


def partitioning(book: Book, given: Inputs) -> None:
    """Rows 13 to 16: a layer from its owner, or striped over all ranks."""
    apply = book.derivation.apply
    apply(intensity.striped_required_tokens, required_tokens=book.value("6"), dp_degree=given.dp_degree)
    book.add("13", "Tokens needed, NVMe striped over 64 ranks", "a few hundred")
    params = apply(
        counts.layer_params, d_model=given.d_model, params_per_squared_width=given.params_per_squared_width
    )
    layer = apply(counts.layer_bytes, layer_params=params, param_bytes_per_param=given.param_bytes)
    book.add(
        "14",
        "Bytes of one layer of the 1T model",
        "15.7 GB",
        note="12·d_model² parameters a layer; 2e12/128, which the article writes, is 15.625 GB.",
    )
    apply(partition.owner_fetch_time, layer_bytes=layer, link_bandwidth=given.nvme_bandwidth)
    book.add("15", "Fetch of a layer by its owner", "5.2 s", note="5.208 s by 2e12/128 bytes.")
    apply(
        partition.striped_fetch_time,
        layer_bytes=layer,
        dp_degree=given.dp_degree,
        link_bandwidth=given.nvme_bandwidth,
    )
    book.add(
        "16",
        "Fetch of a layer striped over 64 ranks",
        "0.08 s",
        note="The allgather over the interconnect comes on top: see gather_time_s.",
    )


def prefetch_depths(book: Book, given: Inputs) -> None:
    """Rows 17 to 21: how far ahead the pipeline runs."""
    apply = book.derivation.apply
    flops = apply(
        counts.step_flops,
        params=given.params,
        tokens_per_rank=given.tokens_per_rank,
        flops_per_param_token=book.value("7"),
    )
    compute = apply(traffic.compute_time, flops=flops, sustained_flops_per_s=given.sustained_flops_per_s)
    book.add("17", "Compute of a step, 1T parameters and 4,096 tokens per GPU", "≈ 262 s")
    layer = apply(prefetch.layer_time, step_compute_time=compute, layer_count=given.layer_count)
    book.add("18", "Compute of one layer in a whole step", "≈ 2.05 s")
    owner = apply(prefetch.prefetch_depth, fetch_time=book.value("15"), layer_time=layer)
    book.add(
        "19",
        "Prefetch depth, owner-broadcast",
        "2.5 → 3",
        note="5.243/2.048 = 2.56 (2.54 by 2e12/128 bytes). Parameters climb in each sweep: "
        "see prefetch_depth_forward and prefetch_depth_backward.",
    )
    apply(prefetch.prefetch_buffer_bytes, prefetch_depth=owner, layer_bytes=book.value("14"))
    book.add("20", "Prefetch buffers, owner-broadcast", "47 GB", note="Beside the layer in use.")
    apply(prefetch.prefetch_depth, fetch_time=book.value("16"), layer_time=layer)
    book.add("21", "Prefetch depth, striped", "1", note="The buffer is one layer; it stands per sweep too.")


def tiles(book: Book, given: Inputs) -> None:
    """Rows 22 to 24: an operator run in tiles."""
    apply = book.derivation.apply
    matrix = apply(
        counts.operator_params,
        input_width=given.d_model,
        output_width=4 * given.d_model,
        params_per_weight=1,
    )
    book.add("22", "Parameters of the FFN's first matrix", "2.6e9 parameters, 5.2 GB")
    size = apply(counts.operator_bytes, operator_params=matrix, param_bytes_per_param=given.param_bytes)
    book.add("operator_bytes", "Bytes of the FFN's first matrix", "5.2 GB")
    apply(tiling.tile_bytes, operator_bytes=size, tile_count=given.tile_count)
    book.add("23", "Working set of one tile of 8", "655 MB")
    apply(tiling.tiled_working_bytes, operator_bytes=size, tile_count=given.tile_count, tile_buffer_count=2)
    book.add("24", "Working set with a tile in flight", "1.3 GB")


def size_ceilings(book: Book, given: Inputs) -> None:
    """Rows 25 to 29: capacity against compute."""
    apply = book.derivation.apply
    state = apply(
        counts.state_bytes_per_param,
        param_bytes_per_param=given.param_bytes,
        grad_bytes_per_param=given.grad_bytes,
        optimizer_state_bytes_per_param=given.optimizer_state_bytes,
    )
    book.add(
        "29",
        "Persistent bytes of a parameter",
        "16",
        note="2 + 2 + 12; a runtime may keep more: the paper counts 20, with fp32 gradients.",
    )
    for nodes, key, printed in ((1, "25", "4e12"), (given.node_count, "26", "256 T")):
        capacity = apply(
            ceilings.tier_capacity,
            node_count=nodes,
            instances_per_node=given.drives_per_node,
            instance_capacity=given.drive_capacity,
        )
        apply(ceilings.max_params_by_capacity, capacity=capacity, state_bytes_per_param=state)
        book.add(key, f"Largest model by flash capacity, nodes: {nodes:g}", printed)
    tokens = apply(ceilings.training_tokens, params=book.value("26"), tokens_per_param=given.tokens_per_param)
    apply(
        ceilings.training_flops,
        params=book.value("26"),
        training_tokens=tokens,
        flops_per_param_token=book.value("7"),
    )
    book.add("27", "FLOPs to train the 256T model on 20 tokens per parameter", "≈ 1e31")
    seconds = apply(
        ceilings.training_time,
        params=book.value("26"),
        training_tokens=tokens,
        flops_per_param_token=book.value("7"),
        cluster_flops_per_s=given.cluster_flops_per_s,
    )
    apply(ceilings.training_years, training_time=seconds, year_length=given.year_length)
    book.add(
        "28",
        "Years of 365.25 days at a sustained 10 EFLOP/s",
        "about 33,000",
        note="The ceilings are four orders apart in time against one year, but a factor of 182 in "
        "parameters: see ceiling_gap.",
    )


def buying_gpus(book: Book, given: Inputs) -> None:
    """Rows 30 and 31: what offload costs, and what it replaces."""
    apply = book.derivation.apply
    state = apply(counts.state_bytes, params=given.params, state_bytes_per_param=book.value("29"))
    apply(efficiency.gpus_for_plain_stage3, state_bytes=state, usable_hbm_per_gpu=given.usable_hbm_per_gpu)
    book.add(
        "30",
        "GPUs that plain stage 3 needs for the 1T model, 50 GB usable of each",
        "320 to 500",
        note="500 when only 32 GB of a card are usable.",
    )
    offered = apply(
        intensity.parameter_intensity,
        intensity_per_token=book.value("9"),
        tokens_per_rank=given.tokens_per_rank,
    )
    apply(efficiency.overlap_efficiency, arithmetic_intensity=offered, machine_balance=book.value("5"))
    book.add(
        "31",
        "Efficiency against all-HBM, 4,096 tokens over one drive's share",
        "min(1, ait / (R/BW))",
        note="A bound that takes overlap as perfect: see serial_efficiency.",
    )


def pitfalls(book: Book, given: Inputs) -> None:
    """Rows 32 and 33: headroom, and decoding."""
    apply = book.derivation.apply
    offered = apply(
        intensity.parameter_intensity,
        intensity_per_token=book.value("9"),
        tokens_per_rank=given.tokens_per_rank,
    )
    apply(
        intensity.striped_hiding_margin,
        arithmetic_intensity=offered,
        machine_balance=book.value("5"),
        dp_degree=given.dp_degree,
    )
    book.add(
        "32",
        "Headroom over flash, 64 ranks and 4,096 tokens",
        "dp · 2T against R/BW",
        note="Halving the ranks costs what halving the tokens costs.",
    )
    decoding = apply(
        intensity.decoding_intensity,
        forward_flops_per_param_token=given.forward_flops,
        param_bytes_per_param=given.param_bytes,
        decoded_tokens=1,
    )
    apply(intensity.intensity_shortfall, arithmetic_intensity=decoding, machine_balance=book.value("5"))
    book.add(
        "33",
        "Times that autoregressive decoding misses the NVMe bar",
        "ait ≈ 1, four orders short",
        note="2P FLOPs on 2P bytes of weights: an intensity of 1.",
    )
