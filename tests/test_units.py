"""Quantities as text: what is read, what is refused and how, and that what is shown reads back."""

import contextlib
import math

import pint
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from ziplan import units
from ziplan.units import BINARY, DECIMAL, Bytes, UnitError, counted, figure, parse, show, show_duration


@pytest.mark.parametrize(
    ("text", "unit", "value"),
    [
        ("32 GB/s", "B/s", 32e9),
        ("312 TFLOP/s", "FLOP/s", 312e12),
        ("3.5 Gparam/s", "param/s", 3.5e9),
        ("3.5 Gparams/s", "param/s", 3.5e9),
        ("1.2 PB", "B", 1.2e15),
        ("90 s", "s", 90),
        ("1.5 h", "s", 5400),
        ("32.77 USD", "USD", 32.77),
        ("1_000 B", "B", 1000),
        ("3,906 FLOP/B", "FLOP/B", 3906),
        ("2TiB", "B", 2 * 2**40),
        ("64 GiB", "B", 64 * 2**30),
        ("200 Gbit/s", "B/s", 25e9),
        ("16 B/param", "B/param", 16),
        (" 8 FLOP / param / token ", "FLOP/param/token", 8),
        ("1e9 B", "B", 1e9),
        ("0 B", "B", 0),
        ("42", "1", 42),
        ("2.039 TB/s", "B/s", 2039e9),
    ],
)
def test_natural_spellings_are_read(text, unit, value):
    assert parse(text, unit) == value


@pytest.mark.parametrize(
    ("text", "unit", "message"),
    [
        ("32 GB", "B/s", "'32 GB' has unit 'GB', expected 'B/s' (for example '32 GB/s')"),
        ("200 Gb/s", "B/s", "which may mean bits or bytes: write 'Gbit/s' or 'GB/s'"),
        ("80 gb", "B", "which may mean bits or bytes: write 'Gbit' or 'GB'"),
        ("80 G", "B", "which is a prefix without a unit: write 'GB'"),
        ("80", "B", "'80' has no unit, expected 'B' (for example '64 GiB')"),
        ("312 TFLOPS", "FLOP/s", "write 'TFLOP/s'"),
        ("2 KB", "B", "write 'kB'"),
        ("5 GBps", "B/s", "write 'GB/s'"),
        ("-3 GB", "B", "is negative"),
        ("nan B", "B", "is not a number and its unit"),
        ("inf B", "B", "is not a number and its unit"),
        ("1e400 B", "B", "too large"),
        ("1e308 PB", "B", "too large"),
        ("1,5 GB", "B", "is not a number and its unit"),
        ("GB", "B", "is not a number and its unit"),
        ("", "B", "is not a number and its unit"),
        ("1__0 B", "B", "is not a number and its unit"),
        ("$3", "USD", "is not a number and its unit"),
        ("3 kUSD", "USD", "expected 'USD'"),
        ("3 GB/ms", "B/s", "expected 'B/s'"),
        ("9" * 5000, "B", "..."),
        ("٣ GB", "B", "is not a number and its unit"),
    ],
)
def test_anything_else_is_refused_with_the_fix(text, unit, message):
    with pytest.raises(UnitError) as refused:
        parse(text, unit)
    assert message in str(refused.value)
    assert len(str(refused.value)) < 300


def test_prefixes_are_powers_of_their_base():
    assert list(DECIMAL.values()) == [1000.0**power for power in range(7)]
    assert list(BINARY.values()) == [1024.0**power for power in range(1, 7)]
    assert not hasattr(units, "GB")


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (3906.25, "FLOP/B", "3,906 FLOP/B"),
        (15_728_640_000, "B", "15.73 GB"),
        (262.144, "s", "262.1 s"),
        (0.08192, "s", "81.92 ms"),
        (1.0486e31, "FLOP", "1.049e31 FLOP"),
        (12.9e9, "param", "12.9 Gparam"),
        (20833.33, "token", "20,833 token"),
        (999_999_999, "B", "1 GB"),
        (0, "B", "0 B"),
        (32.77, "USD", "32.77 USD"),
        (-3e9, "B", "-3 GB"),
        (3906.25, "1", "3,906"),
        (math.inf, "s", "unlimited"),
        (math.nan, "s", "unknown"),
    ],
)
def test_values_are_shown_for_people(value, unit, text):
    assert show(value, unit) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (1.048576e12, "33,227 years"),
        (0.0819, "81.9 ms"),
        (90, "90 s"),
        (300, "5 min"),
        (7200, "2 h"),
        (864000, "10 days"),
    ],
)
def test_durations_are_shown_in_the_unit_they_fill(seconds, text):
    assert show_duration(seconds) == text


SHOWN_UNITS = sorted({unit.symbol for unit in units.ALIASES.values()})


@given(
    st.floats(min_value=1e-9, max_value=1e300),
    st.sampled_from(SHOWN_UNITS),
    st.integers(min_value=1, max_value=12),
)
def test_what_is_shown_reads_back_within_its_digits(value, unit, digits):
    assert parse(show(value, unit, digits), unit) == pytest.approx(value, rel=0.51 * 10.0 ** (1 - digits))
    if unit == "s":
        assert parse(show_duration(value, digits), unit) == pytest.approx(
            value, rel=0.51 * 10.0 ** (1 - digits)
        )


@given(st.text(max_size=30), st.sampled_from(SHOWN_UNITS))
def test_any_text_is_a_quantity_or_a_unit_error(text, unit):
    with contextlib.suppress(UnitError):
        assert math.isfinite(parse(text, unit))


@pytest.fixture(scope="module")
def oracle():
    registry = pint.UnitRegistry(None)
    for definition in ("B = [data]", "bit = B / 8", "FLOP = [work]", "param = [param]", "token = [token]"):
        registry.define(definition)
    registry.define("s = [time]")
    for prefix, factor in {**DECIMAL, **BINARY}.items():
        if prefix:
            registry.define(f"{prefix}- = {factor!r}")
    return registry


@given(
    number=st.floats(min_value=1e-6, max_value=1e9),
    prefix=st.sampled_from([*DECIMAL, *BINARY]),
    unit=st.sampled_from(["B", "B/s", "bit", "bit/s", "FLOP", "FLOP/s", "param/s", "token/s", "B/param"]),
)
def test_pint_agrees(oracle, number, prefix, unit):
    base = unit.replace("bit", "B")
    if prefix in BINARY and not base.startswith("B"):
        return
    expected = oracle.Quantity(number, f"{prefix}{unit}").to(base).magnitude
    assert parse(f"{number!r} {prefix}{unit}", base) == pytest.approx(expected, rel=1e-12)


def test_a_field_refuses_a_bare_number():
    field = TypeAdapter(Bytes)
    assert field.validate_python("64 GiB") == 64 * 2**30
    for wrong in (64, 6.4e10, True, None, ["64 GiB"]):
        with pytest.raises(ValidationError, match="unit"):
            field.validate_python(wrong)
    assert field.json_schema()["type"] == "string"


@pytest.mark.parametrize(
    ("low", "high", "said"),
    [
        (116, 329.4, "329.4 s"),
        (5, 1329.4, "22.16 min"),
        (130, 9000, "150 min"),
        (0.7, 1.88, "1.88 s"),
        (2876, 12096, "201.6 min"),
        (150, 1e6, "11.57 days"),
    ],
)
def test_the_high_end_of_a_span_has_the_unit_of_the_low_end(low, high, said):
    assert show_duration(high, like=low) == said


@pytest.mark.parametrize(
    ("number", "said"), [(0, "0 GPUs"), (1, "1 GPU"), (2, "2 GPUs"), (8e6, "8,000,000 GPUs")]
)
def test_things_are_counted_in_words(number, said):
    assert counted(number, "GPU") == said


@pytest.mark.parametrize(
    ("value", "said"), [(110.0, "110"), (0.5, "0.5"), (999999.0, "999,999"), (1e6, "1e6"), (1e-7, "1e-7")]
)
def test_a_pure_number_is_written_out_below_a_million(value, said):
    assert figure(value) == said
