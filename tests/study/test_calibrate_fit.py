"""Parameters that runs were made with come back from them; what they do not show does not."""

import dataclasses
import math
from statistics import geometric_mean

import pytest
from study.calibrated import log_of, run, subject

from ziplan.errors import BadInput
from ziplan.estimate.fidelity import NVME, ON_GPU, OPTIMIZER_ON_HOST
from ziplan.study.calibrate.calibration import NOT_ALLOCATED, calibration
from ziplan.study.calibrate.fit import fit
from ziplan.study.calibrate.parameters import CORE, MATRIX, OVERLAP, PARAMETERS, SWAP, UPDATE
from ziplan.study.calibrate.predicted import predicted
from ziplan.study.calibrate.runs import (
    FORWARD_BACKWARD,
    OPTIMIZER,
    OPTIMIZER_READ,
    WHOLE,
    Run,
    run_of_file,
)

RATE, ADAM, LIMIT = 120e12, 1.1e9, 2.5e9
TRUTH = (
    ("gpu.sustained_flops_per_s.bf16", "120 TFLOP/s"),
    ("cpu.adam_params_per_s", "1.1 Gparam/s"),
    ("swap_limit", "2.5 GB/s"),
)
HOMES = {"hbm": ("hbm", "hbm"), "cpu": ("hbm", "dram"), "nvme": ("nvme", "nvme")}


def ran(name, home, **fields):
    """A run on the machine as it is, believed to be as its file says."""
    homes = HOMES[home]
    return run(
        name, subject("dgx-a100-80g", *homes, TRUTH, **fields), subject("dgx-a100-80g", *homes, **fields)
    )


def values(found):
    return {each.parameter.name: each.value for each in found.fitted}


def reasons(found, name):
    return next(each.reasons for each in found.not_shown if each.parameter.name == name)


def test_known_parameters_come_back():
    found = fit([ran(home, home) for home in HOMES])
    assert values(found) == {
        MATRIX: pytest.approx(RATE),
        UPDATE: pytest.approx(ADAM),
        SWAP: pytest.approx(LIMIT),
    }
    assert [each.path for each in found.fitted] == [name for name, _ in (TRUTH[0], TRUTH[1], TRUTH[2])]


def test_they_come_back_from_logs_within_their_rounding(tmp_path):
    runs = []
    for home in ("hbm", "cpu"):
        path = tmp_path / f"{home}.log"
        path.write_text("\n".join(log_of(subject("dgx-a100-80g", *HOMES[home], TRUTH))))
        runs.append(run_of_file(path, subject("dgx-a100-80g", *HOMES[home])))
    found = fit(runs)
    # A hundredth of a millisecond of some seconds.
    assert values(found)[MATRIX] == pytest.approx(RATE, rel=1e-5)
    assert values(found)[UPDATE] == pytest.approx(ADAM, rel=1e-5)


def test_after_the_fit_every_phase_is_as_measured():
    found = calibration([ran(home, home) for home in HOMES])
    for held in found.held:
        for phase in held.phases:
            assert phase.after == pytest.approx(phase.measured, rel=1e-6)
            assert math.isfinite(phase.before)
        assert abs(held.whole.before / held.whole.measured - 1) > 0.2


def test_a_run_without_offload_says_nothing_of_the_host():
    found = fit([ran("hbm", "hbm")])
    assert list(values(found)) == [MATRIX]
    assert "nothing of optimizer step goes with it" in reasons(found, UPDATE)[0]
    assert "swaps nothing" in reasons(found, SWAP)[0]


def test_a_swap_limit_without_the_optimizers_rate_is_not_guessed():
    """A third of the step is the update's: whoever does not know its rate cannot tell the swap's."""
    truth, believed = (subject("dgx-a100-80g", "nvme", "nvme", settings) for settings in (TRUTH, ()))
    truth, believed = (dataclasses.replace(each, plan=serial(each)) for each in (truth, believed))
    nvme = run("nvme", truth, believed)
    del nvme.phases[OPTIMIZER_READ]
    assert values(fit([ran("hbm", "hbm"), nvme])) == {MATRIX: pytest.approx(RATE)}
    assert "goes with the CPU optimizer, which is not measured" in reasons(fit([nvme]), SWAP)[0]
    assert values(fit([ran("cpu", "cpu"), nvme]))[SWAP] == pytest.approx(LIMIT)


@pytest.mark.parametrize("params", ["hbm", "nvme"])
def test_reading_the_optimizers_state_shows_the_swap_limit_alone(params):
    truth = subject("dgx-a100-80g", params, "nvme", TRUTH)
    believed = subject("dgx-a100-80g", params, "nvme")
    plain = [dataclasses.replace(each, plan=serial(each)) for each in (truth, believed)]
    assert predicted(plain[0]).phases[OPTIMIZER_READ] > 0
    found = fit([run("nvme", *plain)])
    shown = next(each for each in found.fitted if each.parameter.name == SWAP)
    assert shown.value == pytest.approx(LIMIT)
    # Of what is left of the step, nobody knows how much is writing.
    assert "swaps too" in reasons(found, UPDATE)[0]
    assert shown.shown[0].phase == OPTIMIZER_READ


def serial(subject):
    """The plan with buffers for one sub-group only: nothing is swapped beside an update."""
    return dataclasses.replace(subject.plan, optimizer_buffer_count=4.0)


def test_drives_that_explain_the_time_show_no_limit_of_the_software():
    truth = subject("dgx-a100-80g", "nvme", "nvme", settings=[("tiers.nvme.drive_count", "1")])
    found = fit([run("nvme", truth, truth)])
    assert any("drives' stated rates explain" in reason for reason in reasons(found, SWAP))


def test_faster_than_the_drives_is_refused():
    slow = [("tiers.nvme.drive_count", "1")]
    truth, believed = (subject("dgx-a100-80g", "nvme", "nvme", settings) for settings in ((), slow))
    with pytest.raises(BadInput) as raised:
        fit([run("fast.log", truth, believed)])
    (problem,) = raised.value.problems
    assert problem.file == "fast.log"
    assert "page cache" in problem.help


def test_a_matrix_rate_above_the_peak_is_refused_with_what_is_likely_wrong():
    believed = subject(sequence=4096)
    with pytest.raises(BadInput) as raised:
        fit([run("short.log", subject(sequence=1024), believed)])
    (problem,) = raised.value.problems
    assert "at the bf16 peak rate of A100 SXM4 80 GB (312 TFLOP/s)" in problem.message
    assert "sequence length" in problem.help


def test_an_update_faster_than_dram_is_refused():
    believed = subject(optimizer="dram")
    measured = predicted(believed).phases
    quick = Run("q", believed, {**{k: measured[k] for k in (FORWARD_BACKWARD, OPTIMIZER)}, OPTIMIZER: 0.01})
    with pytest.raises(BadInput, match=r"DRAM of DGX A100 80GB carries at 28 bytes"):
        fit([quick])


OVERLAPS = (1.0, 0.5, 0.0)
BUSY = [("links.host.bandwidth", "4 GB/s"), ("gpu.sustained_flops_per_s.bf16", "100 TFLOP/s")]


@pytest.mark.parametrize("overlap", OVERLAPS)
def test_overlap_comes_back_where_much_runs_beside(overlap):
    believed = subject("rtx-4090-desktop", "dram", "dram", BUSY, accumulation_steps=4.0)
    put = next(each for each in PARAMETERS if each.name == OVERLAP).put
    truth = put(believed, overlap)
    assert predicted(believed).beside > 0.25
    found = fit([run("busy", truth, believed)])
    assert values(found)[OVERLAP] == pytest.approx(overlap, abs=1e-6)
    assert MATRIX not in values(found)
    assert "nobody knows how much of it is hidden" in reasons(found, MATRIX)[0]


def test_overlaps_on_one_node_and_between_nodes_are_two():
    """Each comes back from its own runs, and is taken for such alone."""
    put = next(each for each in PARAMETERS if each.name == OVERLAP).put
    slow = [*BUSY[1:], ("links.network.bandwidth", "20 GB/s")]
    one = subject("rtx-4090-desktop", "dram", "dram", BUSY, accumulation_steps=4.0)
    two = subject("2x dgx-a100-80g", "hbm", "hbm", slow, accumulation_steps=4.0)
    runs = [run("one", put(one, 0.8), one), run("two", put(two, 0.3), two)]
    found = fit(runs)
    known = {each.path: each.value for each in found.fitted if each.parameter.name == OVERLAP}
    assert known == pytest.approx({"overlap": 0.8, "overlap_between_nodes": 0.3}, abs=1e-6)
    for each in runs:
        after = predicted(found.applied(each.subject)).phases
        assert after[FORWARD_BACKWARD] == pytest.approx(each.phases[FORWARD_BACKWARD])


def test_overlap_is_not_told_from_a_matrix_rate_that_is_assumed():
    believed = subject("rtx-4090-desktop", "dram", "dram", BUSY[:1], accumulation_steps=4.0)
    assert "assumed" in reasons(fit([run("busy", believed, believed)]), OVERLAP)[0]


@pytest.mark.parametrize(
    ("times", "said"), [(0.5, "less than its longest part"), (9.0, "more than all of it")]
)
def test_overlap_beyond_its_ends_is_not_fitted(times, said):
    believed = subject("rtx-4090-desktop", "dram", "dram", BUSY, accumulation_steps=4.0)
    measured = predicted(believed).phases
    step = {FORWARD_BACKWARD: times * measured[FORWARD_BACKWARD], OPTIMIZER: measured[OPTIMIZER]}
    found = fit([Run("odd", believed, step)])
    assert said in reasons(found, OVERLAP)[0]


def test_the_middle_of_several_runs_is_taken():
    runs = [ran("a", "hbm"), ran("b", "hbm", micro_batch_size=2.0), ran("c", "hbm", micro_batch_size=6.0)]
    slowed = dataclasses.replace(runs[2], phases={name: 1.3 * s for name, s in runs[2].phases.items()})
    found = fit([*runs[:2], slowed])
    assert values(found)[MATRIX] == pytest.approx(RATE)
    (shown,) = [each for each in found.fitted if each.parameter.name == MATRIX]
    assert shown.low < 0.8 * RATE
    assert shown.high == pytest.approx(RATE)
    two = fit([runs[0], slowed]).fitted[0]
    assert two.value == pytest.approx(geometric_mean([two.low, two.high]), rel=0.02)


def test_each_run_is_also_predicted_from_the_others():
    runs = [ran("a", "hbm"), ran("b", "hbm", micro_batch_size=2.0)]
    slowed = dataclasses.replace(runs[1], phases={name: 1.25 * s for name, s in runs[1].phases.items()})
    found = calibration([runs[0], slowed])
    factors = {held.run.name: held.factor for held in found.held}
    assert factors["b"] == pytest.approx(1.25, rel=0.02)
    assert factors["a"] == pytest.approx(0.8, rel=0.02)
    residual = found.residuals[ON_GPU]
    assert (residual.runs, residual.low, residual.high) == (2, factors["a"], factors["b"])
    assert calibration(runs[:1]).held[0].from_others is None


def test_a_reason_that_is_true_of_many_runs_is_told_once():
    found = fit([ran(name, "hbm", micro_batch_size=float(n)) for n, name in enumerate("abcde", 1)])
    assert reasons(found, SWAP) == ("a, b, c and 2 more: swaps nothing",)


def test_residuals_are_by_kind_of_run():
    found = calibration([ran(home, home) for home in HOMES])
    assert set(found.residuals) == {ON_GPU, OPTIMIZER_ON_HOST, NVME}
    # What only one run shows, nobody knows of it from the others.
    assert found.residuals[NVME].low > 1.2


def test_a_whole_step_shows_what_makes_up_most_of_it():
    measured = predicted(subject(settings=TRUTH)).step_time
    found = fit([Run("whole", subject(), {WHOLE: measured})])
    assert values(found)[MATRIX] == pytest.approx(RATE, rel=1e-6)
    mixed = subject(optimizer="dram", settings=TRUTH)
    assert not fit([Run("mixed", subject(optimizer="dram"), {WHOLE: predicted(mixed).step_time})]).fitted


def test_runs_that_do_not_belong_together_are_refused():
    a100, h100 = (Run(name, subject(name), {WHOLE: 9.0}) for name in ("dgx-a100-80g", "dgx-h100"))
    with pytest.raises(BadInput, match="several machines"):
        calibration([a100, h100])
    with pytest.raises(BadInput, match="given twice"):
        calibration([a100, a100])


def test_an_input_that_nobody_stated_is_asked_for():
    believed = subject("rtx-4090-desktop", "nvme", "nvme")
    node = believed.cluster.node
    drives = node.tiers["nvme"].model_copy(update={"read_bandwidth": None, "write_bandwidth": None})
    silent = node.model_copy(update={"tiers": {**node.tiers, "nvme": drives}})
    asked = dataclasses.replace(believed, cluster=dataclasses.replace(believed.cluster, node=silent))
    with pytest.raises(
        BadInput, match=r"not stated, and the time depends on it: tiers\.nvme\.read_bandwidth"
    ):
        calibration([Run("a", asked, {WHOLE: 9.0})])


def test_memory_that_a_log_tells_of_stands_beside_what_is_predicted():
    truth = dataclasses.replace(ran("cpu", "cpu"), gpu_peak_bytes=40e9, host_used_bytes=300e9)
    (held,) = calibration([truth]).held
    gpu, host = held.peaks
    assert (gpu.tier, gpu.measured, host.tier, host.measured) == ("hbm", 40e9, "dram", 300e9)
    memory = predicted(truth.subject).answer.memory
    names = {line.name for line in predicted(truth.subject).answer.ledger.lines}
    assert set(NOT_ALLOCATED) <= names
    # Without what PyTorch does not count, less than the tier needs.
    assert 0 < gpu.low < memory["hbm"].low
    assert gpu.high < memory["hbm"].high
    # Loading has its own peak, which no line of the log is about.
    assert 0 < host.low <= host.high <= memory["dram"].high
    assert calibration([ran("cpu", "cpu")]).held[0].peaks == ()


def threaded(subject, threads):
    training = subject.workload.training.model_copy(update={"optimizer_threads": threads})
    return dataclasses.replace(subject, workload=dataclasses.replace(subject.workload, training=training))


def test_a_run_of_one_thread_a_rank_shows_what_a_core_reads_and_nothing_of_all_cores():
    """Not the machine's rate: eight ranks of one thread are what that run was."""
    truth, believed = (
        threaded(subject("dgx-a100-80g", *HOMES["cpu"], settings), "torchrun")
        for settings in ((*TRUTH[:2], ("cpu.core_bandwidth", "1 GB/s")), ())
    )
    found = fit([ran("hbm", "hbm"), run("few", truth, believed)])
    assert values(found) == {MATRIX: pytest.approx(RATE), CORE: pytest.approx(1e9)}
    assert "few threads" in reasons(found, UPDATE)[1]
    again = fit([ran("cpu", "cpu"), run("few", truth, believed)])
    assert values(again)[UPDATE] == pytest.approx(ADAM), "the other run has all its threads"


def test_of_runs_with_all_their_threads_nothing_is_said_of_one_core():
    found = fit([ran("cpu", "cpu")])
    assert CORE not in {each.parameter.name for each in (*found.fitted, *found.not_shown)}
