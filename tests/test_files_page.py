"""docs/files.md names every key of the files that it describes, and its examples are read."""

import re
from pathlib import Path

import pytest

from ziplan.hardware.cluster_file import ClusterFile
from ziplan.hardware.profiles import load_cluster
from ziplan.report.plan_record import PlanFile
from ziplan.workload.loading import Loading
from ziplan.workload.model_file import CompanionEntry, ModelFile
from ziplan.workload.training import TrainingChoices

PAGE = (Path(__file__).parents[1] / "docs" / "files.md").read_text()
SECTIONS = {
    "## model.yaml": ModelFile,
    "### `training`": TrainingChoices,
    "### `training.loading`": Loading,
    "### `companions`": CompanionEntry,
    "## cluster.yaml": ClusterFile,
    "## plan.yaml": PlanFile,
}


@pytest.mark.parametrize("title", SECTIONS)
def test_a_table_has_the_keys_of_the_file(title):
    table = re.split(r"\n#+ ", PAGE.partition(f"{title}\n")[2])[0].partition("Paths that are")[0]
    keys = re.findall(r"^\| (`[a-z_`, ]+`) \|", table, re.MULTILINE)
    documented = [name.strip(" `") for each in keys for name in each.split(",")]
    fields = SECTIONS[title].model_fields
    known = [field.alias or name for name, field in fields.items()]
    assert sorted(documented) == sorted(name for name in known if name != "schema")


def test_every_path_can_be_set():
    table = PAGE.partition("Paths that are")[2].partition("\n#")[0]
    paths = re.findall(r"^\| `([a-z_.0-9]+)` \|", table, re.MULTILINE)
    assert len(paths) == 12
    values = {"gpus_per_node": "4", "tiers.nvme.drive_count": "2", "cpu.adam_params_per_s": "1 Gparam/s"}
    values |= {"links.host.bandwidth": "20 GB/s", "gpu.sustained_flops_per_s.bf16": "150 TFLOP/s"}
    values |= {
        "swap_limit": "5 GB/s",
        "links.host.coherent": "true",
        "cpu.huge_pages": "true",
        "cpu.sockets": "1",
    }
    for path in paths:
        load_cluster("dgx-a100-80g", [(path, values.get(path, "100 GB"))])
