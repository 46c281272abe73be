"""The article's worked example, figure by figure, through the laws that plan everything else.

Each figure keeps what the article prints beside the exact value. The article uses two counts
of parameters: 1e12 for compute, 12 d_model^2 in each of 128 layers for layer bytes.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from ziplan.hardware.cluster import Cluster
from ziplan.hardware.profiles import load_cluster
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
from ziplan.laws.law import Derivation, Step


@dataclass(frozen=True)
class Inputs:
    """What the article starts from, in base units."""

    # The machine: rates of one GPU, of its links, of one drive.
    sustained_flops_per_s: float
    hbm_bandwidth: float
    dram_bandwidth: float
    nvme_bandwidth: float
    gather_bandwidth: float
    drives_per_node: float
    drive_capacity: float
    # The model and the run.
    usable_hbm_per_gpu: float = 50e9
    params: float = 1e12
    layer_count: float = 128
    d_model: float = 25600
    dp_degree: float = 64
    tokens_per_rank: float = 4096
    sequence_length: float = 2048
    large_batch_size: float = 16
    tile_count: float = 8
    node_count: float = 64
    # What a parameter costs.
    forward_flops: float = 2
    recompute_flops: float = 2
    backward_flops: float = 4
    param_bytes: float = 2
    grad_bytes: float = 2
    optimizer_state_bytes: float = 12
    optimizer_flops: float = 12
    optimizer_bytes: float = 24
    optimizer_bytes_deepspeed: float = 30
    params_per_squared_width: float = 12
    tokens_per_param: float = 20
    # The compute ceiling.
    cluster_flops_per_s: float = 1e19
    year_length: float = 31_557_600

    @classmethod
    def on(cls, cluster: Cluster) -> Inputs:
        """The article's run on this cluster's nodes: rates and capacities are the machine's."""
        node = cluster.node
        rate = {**node.gpu.peak_flops_per_s, **node.gpu.sustained_flops_per_s}
        tiers = {tier.medium: tier for tier in node.tiers.values()}
        drive = tiers["nvme"].drive
        assert drive is not None, "the flash tier is made of drives"
        assert node.fabric is not None, "the GPUs gather over a link"
        return cls(
            sustained_flops_per_s=rate["fp16"],
            hbm_bandwidth=_known(tiers["hbm"].read_bandwidth),
            dram_bandwidth=min(node.links[name].bandwidth for name in tiers["dram"].via),
            nvme_bandwidth=_known(drive.read_bandwidth),
            gather_bandwidth=node.links[node.fabric].bandwidth,
            drives_per_node=tiers["nvme"].drive_count,
            drive_capacity=drive.capacity,
        )


def _known(bandwidth: float | None) -> float:
    assert bandwidth is not None, "the profile states this bandwidth"
    return bandwidth


def given_inputs() -> Inputs:
    """The article's run on the article's machine, a shipped profile."""
    return Inputs.on(load_cluster("article"))


@dataclass(frozen=True)
class Figure:
    """One figure: its row in the article or the name of what the article leaves out.

    `printed` is what the article says, `value` the exact number in `unit`, `steps` the laws
    applied for it; the last step gave the value.
    """

    key: str
    quantity: str
    printed: str
    value: float
    unit: str
    steps: tuple[Step, ...]
    note: str = ""

    @property
    def in_article(self) -> bool:
        """Whether the article prints it; otherwise it is something that a planner must add."""
        return self.key.isdigit()


@dataclass
class _Book:
    """The figures so far, and the derivation that they share."""

    derivation: Derivation = field(default_factory=Derivation)
    figures: dict[str, Figure] = field(default_factory=dict)
    written: int = 0

    def add(self, key: str, quantity: str, printed: str = "", note: str = "") -> None:
        """Enter the last law applied as a figure, with the steps since the figure before."""
        steps = tuple(self.derivation.steps[self.written :])
        self.written = len(self.derivation.steps)
        last = steps[-1]
        unit = last.law.units["return"].symbol
        self.figures[key] = Figure(key, quantity, printed, float(last.value), unit, steps, note)

    def value(self, key: str) -> float:
        """The value of a figure entered before."""
        return self.figures[key].value


def figures(inputs: Inputs | None = None) -> list[Figure]:
    """Every figure of the article in its order, then what the article leaves out."""
    book = _Book()
    given = inputs or given_inputs()
    for chapter in (_bars, _tests, _partitioning, _prefetch, _tiling, _ceilings, _buying_gpus, _pitfalls):
        chapter(book, given)
    for chapter in (_interconnect, _gradients, _optimizer_pass, _sweeps, _bounds):
        chapter(book, given)
    rows = sorted((f for f in book.figures.values() if f.in_article), key=lambda f: int(f.key))
    return rows + [figure for figure in book.figures.values() if not figure.in_article]


def as_json(inputs: Inputs | None = None) -> dict[str, Any]:
    """The figures as a `ziplan.article/1` document: values by row, and the notes on them."""
    every = figures(inputs)
    return {
        "schema": "ziplan.article/1",
        "figures": {figure.key: figure.value for figure in every if figure.in_article},
        "units": {figure.key: figure.unit for figure in every if figure.in_article},
        "left_out": {figure.key: figure.value for figure in every if not figure.in_article},
        "notes": {figure.key: figure.note for figure in every if figure.note},
    }


def _bars(book: _Book, given: Inputs) -> None:
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


def _tests(book: _Book, given: Inputs) -> None:
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


def _partitioning(book: _Book, given: Inputs) -> None:
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


def _prefetch(book: _Book, given: Inputs) -> None:
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


def _tiling(book: _Book, given: Inputs) -> None:
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


def _ceilings(book: _Book, given: Inputs) -> None:
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


def _buying_gpus(book: _Book, given: Inputs) -> None:
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


def _pitfalls(book: _Book, given: Inputs) -> None:
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


def _interconnect(book: _Book, given: Inputs) -> None:
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


def _gradients(book: _Book, given: Inputs) -> None:
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


def _optimizer_pass(book: _Book, given: Inputs) -> None:
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


def _sweeps(book: _Book, given: Inputs) -> None:
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


def _bounds(book: _Book, given: Inputs) -> None:
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
