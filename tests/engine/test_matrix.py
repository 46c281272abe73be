"""Every place of parameters and optimizer, with all that changes what is fetched, swapped and locked."""

import pytest

from engine.matrix import FACTORS, MODELS, WORLDS, settings
from engine.planned import Case, check
from ziplan.plan import Checkpointing

pytestmark = [pytest.mark.engine, pytest.mark.slow]

FEW, MORE = settings()


def case_of(folder, setting):
    full = setting.checkpointing != "none"
    return Case(
        folder,
        MODELS[setting.model],
        WORLDS[setting.world],
        (setting.params, setting.optimizer),
        Checkpointing.FULL if full else Checkpointing.NONE,
        reentrant=setting.checkpointing == "reentrant",
        zero_stage=setting.stage,
        accumulation_steps=setting.accumulation,
        sub_group_params=setting.sub_group_params,
        optimizer_buffer_count=setting.optimizer_buffers,
        prefetch_depth=setting.prefetch_depth,
    )


RELATIVE = 0.0005
"""What alignment of small tensors inside swapped and locked buffers comes to, which is not modelled."""


def check_setting(folder, setting):
    case = case_of(folder, setting)
    check(case, RELATIVE)
    # Elements gathered in a step, and the most that are live at once, exactly.
    gathered = setting.accumulation * case.fetched.elements if setting.stage == 3 else 0
    assert case.done.last["gathered_elements"] == gathered
    live = case.lines("hbm", "gathered parameters") * case.ranks_per_node
    assert 2 * case.done.peak["live_elements"] == live


@pytest.mark.parametrize("setting", FEW, ids=lambda setting: setting.name)
def test_moves_holds_and_fetches_what_was_predicted(tmp_path, setting):
    check_setting(tmp_path, setting)


@pytest.mark.engine_all
@pytest.mark.parametrize("setting", MORE, ids=lambda setting: setting.name)
def test_moves_holds_and_fetches_what_was_predicted_of_more(tmp_path, setting):
    check_setting(tmp_path, setting)


def test_any_two_values_meet_in_the_few():
    rows = {*FEW, *MORE}
    for first in range(len(FACTORS)):
        for second in range(first):
            assert {(row[first], row[second]) for row in FEW} == {(row[first], row[second]) for row in rows}
