"""The terminal answer: how long, how wide, what it says out loud."""

import re
from dataclasses import replace

import pytest
from report.answers import answer, on_fewer

from ziplan.hardware.cluster import Price
from ziplan.laws.counts import layer_bytes
from ziplan.laws.law import Derivation
from ziplan.report.derivation import explained
from ziplan.report.limits import limits_text
from ziplan.report.lines import GLUE, coloured, in_ascii, plain
from ziplan.report.models import model_text
from ziplan.report.phrases import fewer_words, plan_words
from ziplan.report.table import Column, table
from ziplan.report.text import Written, fit_text
from ziplan.solve.problem import Baseline
from ziplan.workload.load import load_workload

VERDICTS = ("fits", "tight", "does_not_fit", "unknown")
FILES = Written(names=("ds_config.json", "plan.yaml"))


def text(made, width=100, written=FILES):
    return plain(fit_text(made, written, width))


@pytest.mark.parametrize("verdict", VERDICTS)
@pytest.mark.parametrize("width", [80, 100])
def test_few_lines_of_100_columns_or_as_much_of_fewer(verdict, width):
    lines = text(answer(verdict), width).splitlines()
    assert 12 <= len(lines) <= 22 * 100 / width
    assert max(map(len, lines)) <= width


def test_many_notes_are_cut_and_said_to_be():
    made = answer(notes=tuple(f"note number {number} " + "word " * 30 for number in range(20)))
    lines = text(made).splitlines()
    assert len(lines) == 22
    kept = [line for line in lines if line.startswith("note ")]
    assert lines[-1] == f"note      {20 - len(kept) + 1} more with --explain or --json"


def test_what_is_minor_is_cut_before_what_the_plan_is():
    """At 80 columns there are 27 lines: notes and sources give way, the plan and the drives do not."""
    made = answer(notes=tuple(f"note number {number} " + "word " * 30 for number in range(9)))
    best = replace(made.best, flash_writes=1e9, drive_lifetime=86400.0 * 50, interval_source="a source " * 30)
    lines = text(replace(made, best=best), 80).splitlines()
    said = " ".join(" ".join(lines).split())
    assert len(lines) <= 27
    assert "in 50 days of training placement" in said
    assert "full checkpointing, prefetch 1 without" in said
    assert re.search("range .* \\.\\.\\. note", said)


def test_every_tier_that_lacks_is_named():
    made = answer("does_not_fit")
    dram = replace(made.best.memory["dram"], available=200e9)
    memory = {**made.best.memory, "dram": dram}
    said = text(replace(made, best=replace(made.best, memory=memory)))
    assert "does not fit, at least 100 GB too much for dram in backward, 28 GB for hbm" in said


@pytest.mark.parametrize(
    ("published", "said"),
    [
        ((1.98, 2.47), "step      20 s (18 to 25 s; most runs of this kind took longer), "),
        ((0.61, 0.96), "step      20 s (18 to 25 s; most runs of this kind took less), "),
        ((0.97, 3.16), "step      20 s (18 to 25 s), "),
    ],
)
def test_a_prediction_outside_the_published_range_says_so(published, said):
    made = answer()
    assert said in text(replace(made, best=replace(made.best, published=published)))


@pytest.mark.parametrize(
    ("ranks", "stated", "where", "options"),
    [
        (8.0, {"global_batch_size": 128}, "1 of 2 nodes (8 GPUs)", "--set nodes=1"),
        (2.0, {}, "2 GPUs of one node", "--set nodes=1 --set gpus_per_node=2 --global-batch-size 128"),
        (
            8.0,
            {"micro_batch_size": 2, "accumulation_steps": 4},
            "1 of 2 nodes (8 GPUs)",
            "--set nodes=1 --global-batch-size 128 --accumulation-steps 8",
        ),
    ],
)
def test_faster_on_fewer_gpus_says_how_much_and_how_to_plan_it(ranks, stated, where, options):
    made = answer()
    training = made.best.workload.training.model_copy(update=stated)
    best = replace(made.best, workload=replace(made.best.workload, training=training))
    said = " ".join(text(replace(made, best=best, faster_on_fewer=on_fewer(best, ranks=ranks))).split())
    assert (
        f"advice fewer GPUs are faster: 52,429 token/s on {where}, 2 times as many for the same global batch "
        f"of 128 sequences; {options} plans it"
    ) in said
    assert "fewer GPUs" not in text(made)


def test_a_hundred_times_is_said_in_digits():
    made = answer()
    best = replace(made.best, step_time=110.4 * made.best.step_time)
    assert " 110 times as many " in fewer_words(made.best, best).replace(GLUE, " ")


def test_the_whole_answer():
    assert (
        text(answer())
        == """\
llama-3.1-8b (8.03 Gparam) on 2 x Test Box (16 GPUs), handmade 1.2:
  fits, 12 GB (17%) to spare on hbm in backward
step      20 s (18 to 25 s), 26,214 token/s, 78.1 TFLOP/s per GPU (6P), 100 TFLOP/s computed
          = compute 15 s + gather 4 s + optimizer 1 s
binds     compute

tier                  need    have  used     link  tokens needed  tokens here  margin
hbm per GPU    50 to 60 GB   72 GB   83%   2 TB/s             31        8,192    262x
dram per node       300 GB  900 GB   33%  25 GB/s          6,240   16 x 8,192     21x

placement params hbm, grads hbm, optimizer dram 75% + hbm 25%, checkpoints hbm
plan      ZeRO 3, dp 16, micro-batch 2 x 4,096, accumulation 4, full checkpointing, prefetch 1
without   offload (stage 3 in GPU memory): needs 4 GPUs with 72 GB usable each
change    training.micro_batch_size from 2 to 4: step time per token falls by 12 %
files     none written; --out DIR writes ds_config.json, plan.yaml
inputs    1 from data sheets, 1 assumed, 1 given by you
range     13 runs of handmade
note      a note of the solver
"""
    )


def test_what_does_not_fit_says_by_how_much_where_and_why():
    said = text(
        answer("does_not_fit"), written=Written(why_not="a plan that does not fit is not written out")
    )
    assert "does not fit, at least 28 GB too much for hbm in backward" in said
    assert "biggest   hbm in backward: activations 120 GB [micro_batch_size]" in said
    assert "files     none: a plan that does not fit is not written out" in said


def test_gpus_that_are_left_idle_are_counted_beside_those_that_train():
    assert "2 x Test Box (16 GPUs)" in text(answer())
    assert "2 x Test Box (16 of 32 GPUs)" in text(answer(gpus_there=32))
    assert "2 x Test Box (16 of 32 GPUs)" in plain(limits_text(answer(gpus_there=32), 100))


def test_tight_names_the_bytes_at_stake():
    assert "tight, up to 3 GB too much for hbm in backward" in text(answer("tight"))


def test_unknown_names_the_input():
    assert "unknown, not stated: tiers.dram.read_bandwidth" in text(answer("unknown"))


def test_do_not_offload_is_said():
    made = answer(do_not_offload=True, baseline=Baseline(4.0, 72e9, 20.0, True))
    assert "do not offload" in text(made)


def test_what_files_say_does_not_drive_the_terminal():
    made = priced(
        answer(notes=("\x1b[2Ja note",)), per_node_hour_usd=45.0, source="\x1b]0;title\x07", date=""
    )
    lines = fit_text(made, FILES, 100)
    assert not {"\x1b", "\x07"} & set(plain(lines))
    assert not re.search("\x1b[^[]|\x1b\\[2J|\x07", coloured(lines))


def test_a_narrow_terminal_gets_more_lines_and_nothing_wider_than_itself():
    lines = text(answer(), 60).splitlines()
    assert max(map(len, lines)) <= 60
    said = " ".join(" ".join(lines).split())
    assert "checkpoints hbm" in said
    assert "full checkpointing, prefetch 1" in said


def test_one_gpu_is_one():
    said = text(answer(baseline=Baseline(1.0, 72e9, 20.0, True, 1)), 200)
    assert "needs 1 GPU with 72 GB usable, 20 s for the same tokens on 1 GPU\n" in said


def test_many_gpus_can_be_read():
    made = answer(baseline=Baseline(1234567.0, 72e9, 20.0, True, 1234568))
    best = replace(made.best, plan=replace(made.best.plan, dp_degree=8e6, accumulation_steps=4096.0))
    best = replace(best, cluster=replace(best.cluster, nodes=1_000_000))
    said = " ".join(text(replace(made, best=best, gpus_there=8_000_000), 200).split())
    for words in (
        "1,000,000 x Test Box (8,000,000 GPUs)",
        "needs 1,234,567 GPUs",
        "on 1,234,568 GPUs",
        "dp 8,000,000",
        "accumulation 4,096",
        "8,000,000 x 8,192",
    ):
        assert words in said


def priced(made, **price):
    best = replace(made.best, step_cost=0.5, cluster=replace(made.best.cluster, price=Price(**price)))
    return replace(made, best=best)


def test_a_stated_price_makes_a_cost_with_its_source():
    """524,288 tokens for half a dollar; 16 GPUs for 20 s are 0.0889 GPU-hours."""
    said = " ".join(
        text(priced(answer(), per_node_hour_usd=45.0, source="a contract", date="2026-01-01")).split()
    )
    assert (
        "cost 0.5 USD a step, 0.954 USD per million tokens (0.17 GPU-hours), "
        "at 45 USD per node and hour (a contract, 2026-01-01)"
    ) in said
    assert "(source not stated)" in text(priced(answer(), per_node_hour_usd=45.0, source="", date=""), 200)


def test_without_a_price_gpu_hours_stand_in_where_cost_was_asked_for():
    assert "cost " not in text(answer())
    made = answer()
    asked = replace(made, problem=replace(made.problem, objective="cost"))
    assert "cost      0.17 GPU-hours per million tokens stand in for it: no price is stated" in text(asked)


def test_a_model_that_is_not_all_at_work_says_so():
    workload = load_workload("mixtral-8x7b", {"sequence_length": 4096})
    made = answer()
    made = replace(made, best=replace(made.best, workload=workload))
    assert "mixtral-8x7b (46.7 Gparam, 12.9 Gparam active per token) on" in text(made)
    assert "12.9 Gparam active per token" in plain(limits_text(made, 100))
    assert "46.7 Gparam (12.88 Gparam active per token)" in plain(model_text(workload.model, 100))
    assert "active" not in plain(limits_text(answer(), 100))


def test_the_other_models_of_a_job_are_named_and_rollouts_said_to_come_on_top():
    others = ["reference=llama-3.1-8b", "critic=gpt2"]
    workload = load_workload("llama-3.1-8b", {"sequence_length": 1024}, companions=others)
    made = answer()
    made = replace(made, best=replace(made.best, workload=workload))
    told = " ".join(text(made).split())
    assert (
        "llama-3.1-8b (8.03 Gparam) + reference llama-3.1-8b (8.03 Gparam, frozen) + critic gpt2 "
        "(124 Mparam, trained) on" in told
    )
    assert "without rollouts: the time of generating text is not modelled" in told
    assert "reference llama-3.1-8b" in plain(limits_text(made, 100))
    assert "rollouts" not in text(answer())


def test_work_hidden_behind_the_step_is_told_where_it_is_close():
    assert "hidden" not in text(answer())
    busy = {"compute": 15.0, "gather": 18.0, "optimizer": 1.0}
    made = answer()
    said = text(replace(made, best=replace(made.best, busy=busy)))
    assert "hidden    behind these: gather 14 s" in said
    explanation = plain(explained(replace(made, best=replace(made.best, busy=busy)), 100))
    assert re.search(r"^  gather +4 s +14 s$", explanation, re.M)
    assert re.search(r"^  compute +15 s +-$", explanation, re.M)
    terms = explanation.partition("time of a step\n")[2].partition("\n\n")[0].splitlines()[1:]
    assert [line.split()[0] for line in terms] == ["compute", "gather", "optimizer", "dram"]


def test_wear_is_told_where_a_step_writes_to_flash():
    assert "drives" not in text(answer())
    made = answer()
    worn = replace(made.best, flash_writes=2e9, drive_lifetime=86400.0 * 50)
    said = " ".join(text(replace(made, best=worn)).split())
    assert "16 GB written to flash on each node in a step" in said
    assert "endurance in 50 days of training" in said
    unrated = replace(worn, drive_lifetime=None)
    assert "nobody stated their endurance" in " ".join(text(replace(made, best=unrated)).split())


@pytest.mark.parametrize(
    ("runtime", "checkpoints", "told"),
    [
        ("deepspeed", {"hbm": 1.0}, False),
        ("deepspeed", {"dram": 1.0}, True),
        ("deepspeed", {"hbm": 0.5, "dram": 0.5}, True),
        ("ideal", {"dram": 1.0}, False),
    ],
)
def test_checkpoints_on_the_host_are_told_on_the_line_of_the_plan(runtime, checkpoints, told):
    """Beside tiles, which are another change of the model's code."""
    made = answer()
    best = made.best
    placed = replace(best.plan, placement=replace(best.plan.placement, checkpoints=checkpoints))
    said = plan_words(replace(best, runtime=runtime, plan=placed))
    assert ("deepspeed.checkpointing (a change of the model's code)" in said) is told


def test_the_width_without_tiles_comes_before_the_change_of_code():
    said = plain(limits_text(answer(), 100))
    assert re.search(r"width d_model, by memory +12,000 ", said)
    assert re.search(r"with tiled operators +40,960 ", said)
    assert "a change of the model's code" in " ".join(said.split())


@pytest.mark.parametrize("width", [60, 100])
def test_ceilings_fit_the_width_with_all_that_they_mean(width):
    said = plain(limits_text(answer(), width))
    assert max(map(len, said.splitlines())) <= width
    assert "within 365 days" in " ".join(said.split())


def test_a_law_that_gives_nothing_is_not_told():
    made = answer()
    derivation = Derivation()
    derivation.apply(layer_bytes, "something", layer_params=1e8, param_bytes_per_param=2.0)
    derivation.apply(layer_bytes, "nothing at all", layer_params=0.0, param_bytes_per_param=2.0)
    said = plain(explained(replace(made, best=replace(made.best, derivation=derivation)), 100))
    assert "layer_bytes (something)" in said
    assert "nothing at all" not in said
    assert "= 0 B" not in said


def test_other_placements_say_what_choosing_needs():
    heading = "other placements: what surely fits, then what may; the fastest first in each\n"
    said = plain(explained(answer(), 100)).partition(heading)[2]
    assert said.startswith(
        "  fits, 20,972 token/s, 25 s a step: params hbm, grads hbm, optimizer dram 75% + hbm 25%,\n"
    )
    assert "ZeRO 3, dp 16, micro-batch 2 x 4,096, accumulation 4, full checkpointing" in said
    made = answer()
    buffered = replace(made.best, plan=replace(made.best.plan, optimizer_buffer_count=12.0))
    made = replace(made, alternatives=(buffered,), problem=replace(made.problem, objective="wear"))
    assert "what may; the least wear first in each" in plain(explained(made, 100))
    assert "12 optimizer swap buffers" in " ".join(plain(explained(made, 100)).split())
    assert "none that may fit" in plain(explained(answer(alternatives=()), 100))


def test_no_change_is_said_where_nothing_fits():
    assert "no single change" in text(answer("does_not_fit", changes=()))


def test_an_unknown_step_time_is_said():
    made = answer("unknown")
    said = text(replace(made, best=replace(made.best, step_time=float("nan"))))
    assert "step      unknown: nobody stated tiers.dram.read_bandwidth" in said


def test_colour_changes_nothing_but_colour():
    lines = fit_text(answer(), FILES, 100)
    assert re.sub(r"\x1b\[[0-9;]*m", "", coloured(lines)).split() == plain(lines).split()
    assert "\x1b[" in coloured(lines)


def test_ascii_keeps_every_line_readable():
    assert in_ascii("8\u00b7P \u2192 \u00e9") == "8*P -> \\xe9"


def test_explained_shows_symbols_numbers_and_value():
    said = plain(explained(answer(), 100))
    assert "striped_fetch_time (dram)" in said
    assert "= layer_bytes / (dp_degree * link_bandwidth)" in said
    assert "= 200 MB / (16 * 25 GB/s)" in said
    assert "= 500 us" in said
    assert "stage3_max_live_parameters" in said
    assert "cuda_context = 1 GB (500 MB to 2 GB), assumed: a guess" in said
    assert max(map(len, said.splitlines())) <= 100


def test_a_table_looks_at_a_column_as_a_whole_a_few_times_however_many_rows_it_has():
    class Cells(list):
        looked = 0

        def __iter__(self):
            self.looked += 1
            return super().__iter__()

    cells = Cells(str(row) for row in range(100))
    assert len(table([Column("x", cells)], 100)) == 101
    assert cells.looked < 5
