"""The terminal answer: how long, how wide, what it says out loud."""

import re
from dataclasses import replace

import pytest
from report.answers import answer

from ziplan.report.derivation import explained
from ziplan.report.lines import coloured, in_ascii, plain
from ziplan.report.text import Written, fit_text
from ziplan.solve.problem import Baseline

VERDICTS = ("fits", "tight", "does_not_fit", "unknown")
FILES = Written(names=("ds_config.json", "plan.yaml"))


def text(made, width=100, written=FILES):
    return plain(fit_text(made, written, width))


@pytest.mark.parametrize("verdict", VERDICTS)
@pytest.mark.parametrize("width", [80, 100])
def test_twelve_to_twenty_lines_that_fit_the_width(verdict, width):
    lines = text(answer(verdict), width).splitlines()
    assert 12 <= len(lines) <= 20
    assert max(map(len, lines)) <= width


def test_many_notes_are_cut_and_said_to_be():
    made = answer(notes=tuple(f"note number {number} " + "word " * 30 for number in range(20)))
    lines = text(made).splitlines()
    assert len(lines) == 20
    kept = [line for line in lines if line.startswith("note ")]
    assert lines[-1] == f"note      {20 - len(kept) + 1} more with --explain or --json"


def test_every_tier_that_lacks_is_named():
    made = answer("does_not_fit")
    dram = replace(made.best.memory["dram"], available=200e9)
    memory = {**made.best.memory, "dram": dram}
    said = text(replace(made, best=replace(made.best, memory=memory)))
    assert "does not fit, at least 100 GB too much for dram in backward (hbm lacks too)" in said


def test_the_whole_answer():
    assert (
        text(answer())
        == """\
llama-3.1-8b (8.03 Gparam) on 2 x Test Box (16 GPUs), handmade 1.2:
  fits, 12 GB (17%) to spare on hbm in backward
step      20 s (18 to 25 s), 26,214 token/s, 78.1 TFLOP/s per GPU (6P), 100 TFLOP/s computed
          = compute 15 s + gather 4 s + optimizer 1 s
binds     compute (gpu)

tier                  need    have  used     link  tokens needed  tokens here  margin
hbm per GPU    50 to 60 GB   72 GB   83%   2 TB/s             31        8,192    262x
dram per node       300 GB  900 GB   33%  25 GB/s          6,240   16 x 8,192     21x

placement params hbm, grads hbm, optimizer dram 75% + hbm 25%, checkpoints hbm
plan      ZeRO 3, dp 16, micro-batch 2 x 4,096, accumulation 4, full checkpointing, prefetch 1
without   offload (stage 3 in GPU memory): needs 4 GPUs at 72 GB usable each
change    training.micro_batch_size from 2 to 4: step time per token falls by 12 %
files     none written; --out DIR writes ds_config.json, plan.yaml
inputs    1 from data sheets, 1 assumed, 1 given by you; interval: 13 runs of handmade
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


def test_tight_names_the_bytes_at_stake():
    assert "tight, up to 3 GB too much for hbm in backward" in text(answer("tight"))


def test_unknown_names_the_input():
    assert "unknown, not stated: tiers.dram.read_bandwidth" in text(answer("unknown"))


def test_do_not_offload_is_said():
    made = answer(do_not_offload=True, baseline=Baseline(4.0, 72e9, 20.0, True))
    assert "do not offload" in text(made)


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
