"""Peaks of devices: plausible, dense, and none for a device that is not exactly known."""

import re

import pytest

from stepscope.analyse.kernels.peaks import DTYPES, DevicePeaks, device_peaks, known_devices, peak_of

TENSOR = ("fp16", "bf16", "fp8", "int8", "fp4")


@pytest.fixture(params=known_devices(), ids=lambda entry: entry.device)
def entry(request: pytest.FixtureRequest) -> DevicePeaks:
    return request.param


@pytest.mark.parametrize(
    ("name", "dtype", "tflop_per_s", "gb_per_s"),
    [
        ("NVIDIA H200", "bf16", 989.5, 4800),
        ("NVIDIA H100 80GB HBM3", "fp8", 1979, 3350),
        ("NVIDIA H100 PCIe", "bf16", 756.5, 2039),
        ("NVIDIA H100 NVL", "bf16", 835.5, 3900),
        ("NVIDIA A100-SXM4-80GB", "bf16", 312, 2039),
        ("NVIDIA A100 80GB PCIe", "tf32", 156, 1935),
        ("NVIDIA H20", "bf16", 148, 4000),
        ("NVIDIA B200", "fp4", 9000, 7700),
        ("NVIDIA GB200", "bf16", 2500, 8000),
        ("NVIDIA L40S", "fp8", 733, 864),
        ("NVIDIA L40", "fp16", 181.05, 864),
        ("NVIDIA A10G", "bf16", 70, 600),
        ("NVIDIA GeForce RTX 4090", "bf16", 165.2, 1008),
        ("NVIDIA RTX PRO 6000 Blackwell Workstation Edition", "bf16", 503.8, 1792),
        ("AMD Instinct MI300X", "bf16", 1307.4, 5300),
        ("AMD Instinct MI300X OAM", "fp8", 2614.9, 5300),
        ("AMD Instinct MI355X", "fp4", 10066.3, 8000),
        ("Intel(R) Data Center GPU Max 1550", "bf16", 419.4, 1638),
        ("Intel(R) Arc(TM) B580 Graphics", "int8", 233, 456),
    ],
)
def test_names_that_drivers_give_find_their_peak(
    name: str, dtype: str, tflop_per_s: float, gb_per_s: float
) -> None:
    """Spelt as torch, CUPTI and rocm name the devices."""
    peak = peak_of(name, dtype)

    assert peak is not None
    assert (peak.flop_per_s, peak.memory_bytes_per_s) == (tflop_per_s * 1e12, gb_per_s * 1e9)
    assert peak.source


@pytest.mark.parametrize(
    "name",
    [
        "",
        "cpu",
        "NVIDIA A100-SXM4-80GB MIG 3g.40gb",
        "NVIDIA A10-24Q",
        "NVIDIA GeForce RTX 4090 Laptop GPU",
        "NVIDIA GeForce RTX 4090 D",
        "NVIDIA GeForce RTX 3090 Ti",
        "NVIDIA RTX PRO 6000 Blackwell Server Edition",
        "NVIDIA L400",
        "AMD Instinct MI100",
        "NVIDIA H200\n" * 3,
    ],
)
def test_a_device_that_is_not_exactly_known_has_no_peak(name: str) -> None:
    """A slice, a laptop's or a sibling's namesake would give a wrong share."""
    assert device_peaks(name) is None
    assert peak_of(name, "bf16") is None


def test_a_dtype_the_device_has_no_rate_for_has_no_peak() -> None:
    """Ampere has no FP8, Hopper no FP4; an unknown word is not an error."""
    assert peak_of("NVIDIA A100-SXM4-80GB", "fp8") is None
    assert peak_of("NVIDIA H200", "fp4") is None
    assert peak_of("NVIDIA H200", "fp6") is None


def widest_step(entry: DevicePeaks, narrow: str) -> float:
    """How many times the next wider type's rate a dense rate may be: two, as silicon goes, save for the
    GeForce cards' narrower accumulators and Blackwell Ultra's tripled FP4."""
    if narrow == "fp4" and entry.device in {"B300", "GB300"}:
        return 3
    return 4 if narrow in {"int8", "fp4"} and "accumulate" in entry.note else 2


@pytest.mark.parametrize(
    ("wide", "narrow"), [("tf32", "bf16"), ("bf16", "fp8"), ("bf16", "int8"), ("fp8", "fp4")]
)
def test_no_figure_is_a_sparse_one(entry: DevicePeaks, wide: str, narrow: str) -> None:
    """A sparse figure beside dense ones shows as twice the step to the next wider type."""
    rates = entry.dense_tflop_per_s
    if wide in rates and narrow in rates:
        assert 0.95 <= rates[narrow] / rates[wide] <= widest_step(entry, narrow) * 1.03


def test_half_precisions_are_equally_fast(entry: DevicePeaks) -> None:
    """fp16 equals bf16 where both exist, so neither is a sparse figure beside a dense one."""
    rates = entry.dense_tflop_per_s

    assert rates.get("bf16", rates["fp16"]) == rates["fp16"]
    assert rates["fp16"] < 2600  # the fastest of 2026 is a 2.5 PFLOP/s part


def test_arithmetic_intensity_is_plausible(entry: DevicePeaks) -> None:
    """The ridge of the roofline lies between 30 and 650 FLOP a byte on every device of this decade."""
    assert 30 <= entry.dense_tflop_per_s["fp16"] * 1e3 / entry.memory_gb_per_s <= 650


def test_every_entry_is_complete_and_says_where_it_is_from(entry: DevicePeaks) -> None:
    """A source each, only known dtypes, positive figures, a pattern that compiles and finds this entry."""
    assert entry.source
    assert set(entry.dense_tflop_per_s) <= set(DTYPES)
    assert all(rate > 0 for rate in (*entry.dense_tflop_per_s.values(), entry.memory_gb_per_s))
    assert re.compile(entry.pattern)


def test_no_two_entries_claim_one_name() -> None:
    """Near namesakes are matched by exactly one pattern each: the order of the file does not matter."""
    names = [
        "NVIDIA L4",
        "NVIDIA L40",
        "NVIDIA L40S",
        "NVIDIA A10",
        "NVIDIA A10G",
        "NVIDIA H200",
        "NVIDIA H200 NVL",
    ]
    for name in names:
        assert sum(bool(re.fullmatch(one.pattern, name)) for one in known_devices()) == 1
