import pytest

from shared.units import QuantityError, format_milli, format_quantity, parse_count, parse_milli


@pytest.mark.parametrize(
    ("text", "value"),
    [
        *((t, 1) for t in ("1", "1.0", "+1", "1e0", "1000m")),
        ("3000m", 3),
        ("1k", 1000),
        ("8Gi", 8589934592),
        ("8G", 8000000000),
        ("0.5Gi", 536870912),
        ("1.5Gi", 1610612736),
        ("1e3", 1000),
        ("0", 0),
    ],
)
def test_quantity_is_read_as_kubernetes_reads_it(text, value):
    assert parse_count(text) == value


@pytest.mark.parametrize(
    "text",
    [
        "1K",
        "1kb",
        "8GB",
        "8gi",
        "8 Gi",
        "",
        "one",
        " 1",
        "1 ",
        "1\n",
        "1_000",
        "0x10",
        "\uff11",
        "NaN",
        "Infinity",
        "1e999999999",
        "+",
        ".",
    ],
)
def test_text_that_is_no_quantity_is_malformed(text):
    with pytest.raises(QuantityError) as caught:
        parse_count(text)

    assert caught.value.malformed


@pytest.mark.parametrize("text", ["1500m", "0.5", "100m", "-1", "9223372036854775808", "1e999"])
def test_quantity_outside_the_field_is_refused_by_value(text):
    with pytest.raises(QuantityError) as caught:
        parse_count(text)

    assert not caught.value.malformed


def test_cpu_is_rounded_up_to_thousandths():
    assert parse_milli("0.1") == 100
    assert parse_milli("1n") == 1
    assert parse_milli("2") == 2000


def test_quantities_are_written_canonically():
    assert format_quantity(8589934592) == "8Gi"
    assert format_quantity(1000) == "1000"
    assert format_milli(1500) == "1500m"
    assert format_milli(2000) == "2"
