"""JSON Schema of the documents that ziplan writes. Keys are only ever added within a major version."""

from __future__ import annotations

from typing import Any

from ziplan.runtimes.runtime import PHASES

Schema = dict[str, Any]

TEXT: Schema = {"type": "string"}
NUMBER: Schema = {"type": "number"}
COUNT: Schema = {"type": "integer", "minimum": 0}
TRUTH: Schema = {"type": "boolean"}
UNKNOWABLE: Schema = {"type": ["number", "null"], "description": "null: see notes"}
NAME: Schema = {"type": ["string", "null"], "description": "null: see notes"}
VERDICT: Schema = {"enum": ["fits", "tight", "does_not_fit", "unknown"]}


def record(**keys: Schema) -> Schema:
    """An object that always has these keys."""
    return {"type": "object", "properties": keys, "required": list(keys)}


def each(schema: Schema) -> Schema:
    """An object with free keys, each value alike."""
    return {"type": "object", "additionalProperties": schema}


def some(schema: Schema) -> Schema:
    """A list of values alike."""
    return {"type": "array", "items": schema}


def document(name: str, /, **keys: Schema) -> Schema:
    """A whole document."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": name,
        **record(schema={"const": name}, **keys),
    }


def _numbers(*names: str) -> dict[str, Schema]:
    return dict.fromkeys(names, UNKNOWABLE)


FRACTIONS = each({"type": "number", "minimum": 0, "maximum": 1})
PLAN = record(
    zero_stage=COUNT,
    placement=record(params=FRACTIONS, grads=FRACTIONS, optimizer=FRACTIONS, checkpoints=FRACTIONS),
    dp_degree=COUNT,
    tp_degree=COUNT,
    pp_degree=COUNT,
    vpp_degree=COUNT,
    micro_batch_size=COUNT,
    accumulation_steps=COUNT,
    activation_checkpointing={"enum": ["none", "selective", "full"]},
    prefetch_depth=COUNT,
    tile_count=COUNT,
    sub_group_params=NUMBER,
    param_buffer_count=COUNT,
    optimizer_buffer_count=COUNT,
)
COMPANION = record(
    role=TEXT,
    model=TEXT,
    params=COUNT,
    active_params=COUNT,
    trainable_params=COUNT,
    offload={"enum": ["auto", "none", "cpu"]},
)
PLANNED: Schema = {**COUNT, "description": "GPUs that the plan trains on"}
THERE: Schema = {**COUNT, "description": "GPUs of the cluster that was asked about"}
PROBLEM = record(
    model=TEXT,
    params=COUNT,
    active_params=COUNT,
    trainable_params=COUNT,
    companions=some(COMPANION),
    cluster=TEXT,
    gpu_count=PLANNED,
    cluster_gpu_count=THERE,
    runtime=TEXT,
    runtime_version=TEXT,
    objective={"enum": ["time", "gpus", "cost", "wear"]},
    sequence_length_tokens=COUNT,
    precision={"enum": ["fp32", "fp16", "bf16"]},
)
ESTIMATE = record(
    **_numbers(
        "step_time_s",
        "step_time_low_s",
        "step_time_high_s",
        "tokens_per_step_tokens",
        "tokens_per_s",
        "model_flops_per_s_per_gpu",
        "hardware_flops_per_s_per_gpu",
        "drive_lifetime_s",
    ),
    terms_s=each(UNKNOWABLE),
    busy_s=each(UNKNOWABLE),
    bytes_per_step=each(record(read_bytes=NUMBER, write_bytes=NUMBER)),
    interval_source=TEXT,
    unknown=some(TEXT),
)
LINE = record(
    name=TEXT, low_bytes=NUMBER, high_bytes=NUMBER, pinned=TRUTH, formula=TEXT, source=TEXT, knob=TEXT
)
PHASE = record(needed_low_bytes=NUMBER, needed_high_bytes=NUMBER, lines=some(LINE))
MEMORY = record(
    **_numbers("capacity_bytes", "available_bytes", "reserve_bytes", "needed_low_bytes", "needed_high_bytes"),
    short_bytes={**UNKNOWABLE, "description": "what is surely missing: the low end beyond what is available"},
    phases=record(**dict.fromkeys(PHASES, PHASE)),
)
TIER = record(
    **_numbers(
        "bandwidth_bytes_per_s",
        "machine_balance_flops_per_byte",
        "arithmetic_intensity_flops_per_byte",
        "required_tokens",
        "hiding_margin",
        "owner_fetch_time_s",
        "striped_fetch_time_s",
        "prefetch_depth_owner",
        "prefetch_depth_striped",
    )
)
LIMITS = record(
    **_numbers(
        "max_params_by_capacity_params",
        "max_d_model_by_width",
        "max_d_model_untiled",
        "max_params_by_compute_params",
        "training_time_s",
        "greatest_tile_count",
        "time_budget_s",
        "tokens_per_param",
    ),
    capacity_tier={"type": ["string", "null"], "description": "the tier of the ceiling by capacity"},
)
STATED: Schema = {"type": ["number", "null"], "description": "null: not stated"}
ASSUMPTION = record(name=TEXT, value=STATED, unit=TEXT, kind=TEXT, source=TEXT, low=STATED, high=STATED)

IF_TIMED: Schema = {"type": ["number", "null"], "description": "null: no time was measured"}
PUBLISHED = record(title=TEXT, url=TEXT, locator=TEXT)
MEDIUM: Schema = {"enum": ["hbm", "dram", "nvme", None], "description": "null: none, or not said which"}
IF_TOLD: Schema = {"type": ["boolean", "null"], "description": "null: no hit, or its source does not say"}
PART = record(count=COUNT, of=COUNT)

VALIDATE = document(
    "ziplan.validate/1",
    records=some(
        record(
            id=TEXT,
            source=PUBLISHED,
            published=TEXT,
            runtime=TEXT,
            kind=TEXT,
            quality={"enum": ["exact", "read_off_plot"]},
            calibration=TRUTH,
            scored=TRUTH,
            predicted_step_time_s=UNKNOWABLE,
            measured_step_time_s=IF_TIMED,
            error=IF_TIMED,
            binding=TEXT,
            terms_s=each(NUMBER),
            verdict=VERDICT,
            outcome={"enum": ["fits", "oom"]},
            hit={"type": ["boolean", "null"], "description": "null: the verdict abstained"},
            ran_out=record(tier=MEDIUM, phases=some(TEXT)),
            runs_out=record(tier=MEDIUM, phase=NAME),
            same_tier=IF_TOLD,
            same_phase=IF_TOLD,
            peaks=some(
                record(
                    tier=TEXT,
                    measured_bytes=NUMBER,
                    predicted_low_bytes=NUMBER,
                    predicted_high_bytes=NUMBER,
                    inside=TRUTH,
                )
            ),
            assumed=some(TEXT),
            note=TEXT,
        )
    ),
    scores=some(
        record(
            runtime=TEXT,
            kind=TEXT,
            count=COUNT,
            median_absolute_error=NUMBER,
            p90_absolute_error=NUMBER,
            bias=NUMBER,
            worst=record(id=TEXT, error=NUMBER),
            measured_over_predicted_low=NUMBER,
            measured_over_predicted_high=NUMBER,
        )
    ),
    outcomes=record(hits=COUNT, misses=COUNT, abstained=COUNT, missed=some(TEXT)),
    endings=some(
        record(
            ending=TEXT,
            runs=COUNT,
            hits=COUNT,
            misses=COUNT,
            abstained=COUNT,
            same_tier=PART,
            same_phase=PART,
            unpredicted=COUNT,
        )
    ),
    unpredicted=some(record(id=TEXT, source=PUBLISHED, outcome=TEXT, tier=MEDIUM, reason=TEXT)),
    notes=some(TEXT),
)

SIMULATION = record(
    **_numbers("makespan_s", "compute_s", "stall_s", "stall_fraction"),
    stalls_s=each(NUMBER),
    waits=some(record(module=TEXT, cause=TEXT, stall_s=NUMBER)),
    busy_s=each(NUMBER),
    utilisation=each(NUMBER),
    bytes_per_step=each(record(read_bytes=NUMBER, write_bytes=NUMBER)),
    buffers=each(record(high_water=NUMBER, capacity=NUMBER)),
    memory=each(record(high_water_bytes=NUMBER, capacity_bytes=NUMBER)),
    stages=some(record(name=TEXT, repeats=COUNT, played=COUNT, makespan_s=NUMBER, stall_s=NUMBER)),
)

OTHER_PLAN = record(verdict=VERDICT, plan=PLAN, estimate=ESTIMATE)
FEWER = record(cluster=TEXT, gpu_count=COUNT, verdict=VERDICT, plan=PLAN, estimate=ESTIMATE)

DOCUMENTS: dict[str, Schema] = {
    "fit": document(
        "ziplan.fit/1",
        verdict=VERDICT,
        problem=PROBLEM,
        plan=PLAN,
        estimate=ESTIMATE,
        memory=each(MEMORY),
        tiers=each(TIER),
        limits=LIMITS,
        cost=record(
            **_numbers("step_usd", "million_tokens_usd", "node_hour_usd", "gpu_time_per_million_tokens_s"),
            price_source=TEXT,
            price_date=TEXT,
        ),
        baseline=record(
            **_numbers("gpu_count", "usable_per_gpu_bytes", "step_time_s", "step_time_gpu_count"),
            fits_here=TRUTH,
        ),
        alternatives={
            **some(OTHER_PLAN),
            "description": "Other placements: those that surely fit, then those that may; in each the least "
            "time per token first, or the least wear where that is the objective",
        },
        faster_if_it_fits={
            "anyOf": [OTHER_PLAN, {"type": "null"}],
            "description": "A faster plan that may fit, less surely than the best; null: see notes",
        },
        faster_on_fewer={
            "anyOf": [FEWER, {"type": "null"}],
            "description": "A plan on 1, 2, 4, ... of the nodes, or of one node's GPUs, that takes less time "
            "for the same global batch; null: see notes",
        },
        binding=record(kind={"enum": ["capacity", "time"]}, tier=NAME, link=NAME, what=TEXT),
        do_not_offload=TRUTH,
        changes=some(record(path=TEXT, before=TEXT, after=TEXT, effect=TEXT)),
        assumptions=some(ASSUMPTION),
        search=record(plans_evaluated=COUNT, space=TEXT),
        files=each(TEXT),
        notes=some(TEXT),
    ),
    "model": document(
        "ziplan.model/1",
        name=TEXT,
        family=TEXT,
        params=COUNT,
        trainable_params=COUNT,
        active_params=COUNT,
        layer_count=COUNT,
        d_model=COUNT,
        operators=some(record(**{"name": TEXT, "in": COUNT, "out": COUNT, "params": COUNT, "count": COUNT})),
        source=TEXT,
        notes=some(TEXT),
    ),
    "simulate": document(
        "ziplan.simulate/1",
        problem=record(
            model=TEXT,
            params=COUNT,
            cluster=TEXT,
            gpu_count=PLANNED,
            cluster_gpu_count=THERE,
            runtime=TEXT,
            runtime_version=TEXT,
            sequence_length_tokens=COUNT,
            precision={"enum": ["fp32", "fp16", "bf16"]},
        ),
        plan=PLAN,
        simulation=SIMULATION,
        estimate=record(verdict=VERDICT, **_numbers("step_time_s")),
        straggler=record(slow=each(NUMBER), **_numbers("undisturbed_makespan_s", "slowdown")),
        conventions=some(TEXT),
        assumptions=some(ASSUMPTION),
        unknown=some(TEXT),
        notes=some(TEXT),
    ),
    "limits": document(
        "ziplan.limits/1",
        verdict=VERDICT,
        problem=PROBLEM,
        plan=PLAN,
        limits=LIMITS,
        notes=some(TEXT),
    ),
    "article": document(
        "ziplan.article/1",
        figures=each(NUMBER),
        units=each(TEXT),
        left_out=each(NUMBER),
        notes=each(TEXT),
    ),
    "validate": VALIDATE,
}
"""Name on the command line to the schema of the document."""

DOCUMENTS["limits"]["properties"]["map"] = {
    **record(
        tier=TEXT,
        dp_degrees=some(COUNT),
        tokens_per_rank_tokens=some(COUNT),
        cells=some(some(record(verdict={"enum": [*VERDICT["enum"], "refused"]}, hiding_margin=UNKNOWABLE))),
    ),
    "description": "with --map only: a row for each number of tokens, a cell for each number of ranks",
}
