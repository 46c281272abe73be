"""A finding and the table beside it tell the same need, also where an input is open."""

import json

from cli.runs import ziplan

CONFIG = {
    "train_micro_batch_size_per_gpu": 1,
    "bf16": {"enabled": True},
    "optimizer": {"type": "AdamW"},
    "zero_optimization": {
        "stage": 3,
        "offload_param": {"device": "cpu"},
        "offload_optimizer": {"device": "cpu"},
    },
}
RUN = ("llama-3.1-8b", "rtx-4090-x4", "--sequence-length", "4096")


def test_an_open_choice_of_recomputation_is_one_interval_everywhere(tmp_path, capsys):
    path = tmp_path / "ds_config.json"
    path.write_text(json.dumps(CONFIG))
    told = json.loads(ziplan(capsys, "check", path, *RUN, "--json").out)
    (finding,) = (each for each in told["findings"] if each["code"] == "ZP105")
    hbm = told["memory"]["hbm"]
    assert hbm["needed_low_bytes"] < hbm["available_bytes"] < hbm["needed_high_bytes"]
    (row,) = (r for r in ziplan(capsys, "check", path, *RUN).out.splitlines() if r.startswith("hbm per GPU"))
    low, high = row.removeprefix("hbm per GPU").split(" GB")[0].split(" to ")
    assert f"{low.strip()} GB to {high} GB needed" in finding["message"]
    assert abs(float(low) - hbm["needed_low_bytes"] / 1e9) < 0.05
