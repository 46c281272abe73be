"""Properties that hold whatever the numbers."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ziplan.laws import ceilings, efficiency, intensity, partition, prefetch, tiling, traffic

exact = settings(derandomize=True)
bandwidths = st.floats(1e6, 1e13)
rates = st.floats(1e9, 1e17)
sizes = st.floats(1, 1e16)
tokens = st.floats(1, 1e7)
times = st.floats(1e-6, 1e6)
ranks = st.integers(1, 4096)
growth = st.floats(1, 1e3)


@exact
@given(tokens, st.floats(1e-3, 1e3), st.floats(0.1, 10))
def test_intensity_is_linear_in_tokens(count, factor, per_token):
    one = intensity.parameter_intensity(per_token, count)
    assert intensity.parameter_intensity(per_token, factor * count) == pytest.approx(factor * one)


@exact
@given(sizes, ranks, bandwidths)
def test_striped_times_ranks_is_the_owner(size, dp, bandwidth):
    striped = partition.striped_fetch_time(size, dp, bandwidth)
    assert striped * dp == pytest.approx(partition.owner_fetch_time(size, bandwidth))


@exact
@given(tokens, st.floats(0.1, 10), rates, bandwidths, ranks)
def test_halving_the_ranks_costs_what_halving_the_tokens_costs(count, per_token, rate, bandwidth, dp):
    balance = intensity.machine_balance(rate, bandwidth)
    fewer_ranks = intensity.striped_hiding_margin(
        intensity.parameter_intensity(per_token, count), balance, dp / 2
    )
    fewer_tokens = intensity.striped_hiding_margin(
        intensity.parameter_intensity(per_token, count / 2), balance, dp
    )
    assert fewer_ranks == pytest.approx(fewer_tokens)


@exact
@given(tokens, rates, bandwidths, growth, growth)
def test_more_bandwidth_or_tokens_never_lowers_efficiency(count, rate, bandwidth, wider, longer):
    def efficiencies(some_tokens, some_bandwidth):
        offered = intensity.parameter_intensity(2, some_tokens)
        balance = intensity.machine_balance(rate, some_bandwidth)
        return efficiency.serial_efficiency(offered, balance), efficiency.overlap_efficiency(offered, balance)

    serial, overlapped = efficiencies(count, bandwidth)
    assert 0 < serial < overlapped <= 1 or serial == pytest.approx(overlapped)
    assert 2 * serial >= overlapped * (1 - 1e-12)
    for more in (efficiencies(count, bandwidth * wider), efficiencies(count * longer, bandwidth)):
        assert more[0] >= serial * (1 - 1e-12)
        assert more[1] >= overlapped * (1 - 1e-12)


@exact
@given(sizes, st.floats(8, 40), growth)
def test_more_memory_never_lowers_the_ceilings(capacity, per_param, more):
    def width(available):
        return ceilings.max_d_model_by_width(available, 4096, 4, 2, 2, 8, 10)

    assert width(capacity * more) >= width(capacity) * (1 - 1e-12)
    assert ceilings.max_params_by_capacity(capacity * more, per_param) >= ceilings.max_params_by_capacity(
        capacity, per_param
    )


@exact
@given(st.floats(1e6, 1e13), st.floats(1, 1e6), st.integers(1, 2), st.integers(1, 4096))
def test_the_width_ceiling_is_where_the_memory_is_full(available, count, buffers, tiles):
    width = ceilings.max_d_model_by_width(available, count, 4, 2, buffers, tiles, 10)
    assert 4 * 2 * buffers / tiles * width**2 + 10 * count * width == pytest.approx(available)


@exact
@given(st.floats(1, 1e12), st.integers(1, 2), st.floats(1, 1e12))
def test_the_tile_count_is_the_smallest_that_fits(size, buffers, available):
    count = tiling.tile_count(size, buffers, available)
    assert tiling.tiled_working_bytes(size, count, buffers) <= available * (1 + 1e-12)
    if count > 1:
        assert tiling.tiled_working_bytes(size, count - 1, buffers) > available * (1 - 1e-12)


@exact
@given(times, times)
def test_the_prefetch_depth_is_the_smallest_that_hides(fetch, layer):
    depth = prefetch.prefetch_depth(fetch, layer)
    assert depth >= 1
    assert prefetch.stall_time(fetch, depth * layer) <= fetch * 1e-12
    if depth > 1:
        assert (depth - 1) * layer < fetch * (1 + 1e-12)


@exact
@given(st.floats(1e6, 1e13), tokens, rates, bandwidths)
def test_a_hidden_tier_is_one_whose_transfer_is_no_longer_than_compute(params, count, rate, bandwidth):
    compute = traffic.compute_time(8 * params * count, rate)
    transfer = traffic.transfer_time(4 * params, bandwidth)
    margin = intensity.hiding_margin(2 * count, intensity.machine_balance(rate, bandwidth))
    assert margin == pytest.approx(compute / transfer)
