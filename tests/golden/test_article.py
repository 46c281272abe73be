"""The article's figures: exact, and rounding to what the article prints."""

import math
from dataclasses import replace

import pytest

from ziplan.hardware.cluster import Cluster
from ziplan.hardware.node import Node
from ziplan.laws.law import ARITHMETIC
from ziplan.study import article

EXACT = {
    "1": 62.5,
    "2": 31.25,
    "3": 3906.25,
    "4": 1953.125,
    "5": 41666.666666666667,
    "6": 20833.333333333333,
    "7": 8,
    "8": 4,
    "9": 2,
    "10": 1.572864,
    "11": 10.172526041666667,
    "12": 0.5,
    "13": 325.52083333333333,
    "14": 15_728_640_000,
    "15": 5.24288,
    "16": 0.08192,
    "17": 262.144,
    "18": 2.048,
    "19": 3,
    "20": 47_185_920_000,
    "21": 1,
    "22": 2_621_440_000,
    "23": 655_360_000,
    "24": 1_310_720_000,
    "25": 4e12,
    "26": 2.56e14,
    "27": 1.048576e31,
    "28": 33227.368367683219,
    "29": 16,
    "30": 320,
    "31": 0.196608,
    "32": 12.582912,
    "33": 41666.666666666667,
}

PRINTED = {  # row: (what the article prints as a number, the step that it rounds to)
    "1": (63, 1),
    "2": (32, 1),
    "3": (3900, 100),
    "4": (2000, 100),
    "5": (41_700, 100),
    "6": (20_900, 100),
    "10": (1, 1),
    "11": (10, 1),
    "12": (0.5, 0.1),
    "13": (300, 100),
    "14": (15.7e9, 0.1e9),
    "15": (5.2, 0.1),
    "16": (0.08, 0.01),
    "17": (262, 1),
    "18": (2.05, 0.01),
    "20": (47e9, 1e9),
    "22": (2.6e9, 0.1e9),
    "23": (655e6, 1e6),
    "24": (1.3e9, 0.1e9),
    "25": (4e12, 1e12),
    "26": (256e12, 1e12),
    "27": (1e31, 1e31),
    "28": (33_000, 1000),
    "29": (16, 1),
    "30": (320, 1),
}
LOOSE = {
    "2",  # 31.25, "~32"
    "6",  # 20,833 is what it gives; 41,700 / 2 rounds up to its "~20,900"
    "10",  # "clears it"
}

LEFT_OUT = {
    "operator_bytes": 5_242_880_000,
    "gather_time_s": 0.6193152,
    "interconnect_required_tokens": 2500,
    "traffic_with_gradients_bytes_per_param": 6,
    "intensity_with_gradients_flops_per_byte_token": 1.3333333333333333,
    "paper_traffic_with_gradients_bytes_per_param": 8,
    "paper_intensity_with_gradients_flops_per_byte_token": 1,
    "optimizer_flash_time_s": 125,
    "optimizer_flash_time_deepspeed_s": 156.25,
    "layer_forward_time_s": 0.512,
    "layer_backward_time_s": 1.536,
    "prefetch_depth_forward": 11,
    "resident_layer_forward_bytes": 188_743_680_000,
    "prefetch_depth_backward": 4,
    "resident_layer_backward_bytes": 78_643_200_000,
    "prefetch_depth_forward_striped": 1,
    "serial_efficiency": 0.16430443386639568,
    "max_params_by_compute_params": 1_404_403_788_089.4512,
    "ceiling_gap": 182.28375782741375,
}

FIGURES = {figure.key: figure for figure in article.figures()}


def test_all_rows_are_there_in_order():
    rows = [figure.key for figure in article.figures() if figure.in_article]
    assert rows == [str(number) for number in range(1, 34)]
    assert FIGURES.keys() == EXACT.keys() | LEFT_OUT.keys()


@pytest.mark.parametrize("key", [*EXACT, *LEFT_OUT])
def test_figure_is_exact(key):
    assert FIGURES[key].value == pytest.approx({**EXACT, **LEFT_OUT}[key], rel=1e-12, abs=0)


@pytest.mark.parametrize("row", PRINTED)
def test_figure_rounds_to_what_the_article_prints(row):
    printed, step = PRINTED[row]
    assert abs(FIGURES[row].value - printed) <= step * (1 if row in LOOSE else 0.5)


@pytest.mark.parametrize("figure", FIGURES.values(), ids=lambda figure: figure.key)
def test_figure_can_say_where_it_comes_from(figure):
    assert figure.quantity
    assert figure.printed or not figure.in_article
    assert figure.unit == figure.steps[-1].law.units["return"].symbol
    assert figure.steps[-1].value == figure.value
    assert all(eval(s.evaluable, {"__builtins__": {}, **ARITHMETIC}) == s.value for s in figure.steps)


def test_two_climbs_of_2p_bytes_against_8pt_flops():
    params, tokens = 7e9, 1234
    per_token = FIGURES["7"].value * params * tokens / (FIGURES["8"].value * params) / tokens
    assert per_token == pytest.approx(FIGURES["9"].value)


def test_ceilings_differ_by_four_orders_in_time():
    assert math.floor(math.log10(FIGURES["28"].value)) == 4


def test_json_has_every_row():
    document = article.as_json()
    assert document["schema"] == "ziplan.article/1"
    assert document["figures"] == {key: pytest.approx(value, rel=1e-12) for key, value in EXACT.items()}
    assert document["left_out"] == {key: pytest.approx(v, rel=1e-12) for key, v in LEFT_OUT.items()}
    assert document["units"].keys() == document["figures"].keys()


def test_other_inputs_give_other_figures():
    given = article.given_inputs()
    halved = {f.key: f for f in article.figures(replace(given, dp_degree=32))}
    fewer = {f.key: f for f in article.figures(replace(given, tokens_per_rank=2048))}
    assert halved["32"].value == fewer["32"].value == pytest.approx(FIGURES["32"].value / 2)


def test_a_machine_gives_the_rates_and_capacities():
    node = Node.model_validate(
        {
            "name": "twice the article's",
            "gpu": {
                "name": "GPU",
                "memory": {"capacity": "80 GB"},
                "peak_flops_per_s": {"fp16": "312 TFLOP/s"},
                "sustained_flops_per_s": {"fp16": "250 TFLOP/s"},
            },
            "gpus_per_node": 8,
            "fabric": "nvlink",
            "links": {
                "nvlink": {"bandwidth": "50 GB/s"},
                "pcie": {"bandwidth": "64 GB/s"},
                "root": {"bandwidth": "90 GB/s", "shared_by": 2},
            },
            "tiers": {
                "hbm": {
                    "medium": "hbm",
                    "scope": "gpu",
                    "capacity": "80 GB",
                    "read_bandwidth": "4 TB/s",
                },
                "dram": {"medium": "dram", "scope": "node", "capacity": "1 TB", "via": ["pcie", "root"]},
                "nvme": {
                    "medium": "nvme",
                    "scope": "node",
                    "capacity": "128 TB",
                    "drive": {"name": "drive", "capacity": "16 TB", "read_bandwidth": "6 GB/s"},
                    "drive_count": 8,
                },
            },
        }
    )
    document = article.as_json(article.Inputs.on(Cluster(node, nodes=8)))
    same = {key: document["figures"][key] for key in ("1", "3", "5", "9", "11", "29")}
    assert same == {key: pytest.approx(EXACT[key]) for key in same}
    assert document["figures"]["15"] == pytest.approx(EXACT["15"] / 2)
    assert document["left_out"]["gather_time_s"] == pytest.approx(LEFT_OUT["gather_time_s"] / 2)
    assert document["figures"]["17"] == pytest.approx(EXACT["17"] / 2)
    assert document["figures"]["25"] == pytest.approx(EXACT["25"] * 2)
