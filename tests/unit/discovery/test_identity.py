import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.discovery.domain.identity import base_resource, label_value, node_name, product_id
from shared.store.names import SUBDOMAIN


@pytest.mark.parametrize(
    ("manufacturer", "product", "key"),
    [
        ("nvidia", "NVIDIA A10G", "nvidia-a10g"),
        ("nvidia", "Tesla T4", "nvidia-tesla-t4"),
        ("nvidia", "NVIDIA H100 80GB HBM3", "nvidia-h100-80gb-hbm3"),
        ("nvidia", "NVIDIA GeForce RTX 4090", "nvidia-geforce-rtx-4090"),
        ("nvidia", "NVIDIA A100-SXM4-80GB", "nvidia-a100-sxm4-80gb"),
        ("nvidia", "NVIDIA(R) L40S™", "nvidia-l40s"),
        ("nvidia", "NVIDIAN X", "nvidia-nvidian-x"),
        ("amd", "AMD Radeon RX 7800 XT", "amd-radeon-rx-7800-xt"),
        ("amd", "Radeon RX 7800 XT", "amd-radeon-rx-7800-xt"),
        ("ascend", "Ascend 910B3", "ascend-910b3"),
        ("mthreads", "Moore Threads MTT S4000", "mthreads-mtt-s4000"),
    ],
)
def test_a_product_becomes_the_accelerator_key_of_the_reference(manufacturer, product, key):
    assert f"{manufacturer}-{product_id(manufacturer, product)}" == key


def test_long_products_that_differ_at_the_end_keep_different_ids():
    one, two = (product_id("nvidia", "NVIDIA " + "very long " * 10 + end) for end in ("one", "two"))
    assert one != two
    assert len(one) <= 40


@given(st.sampled_from(["nvidia", "amd", "ascend", "nobody"]), st.text(max_size=120))
def test_every_product_id_fits_into_a_label_name(manufacturer, product):
    found = product_id(manufacturer, product)
    assert SUBDOMAIN.problem(f"{manufacturer}-{found}") == ""
    assert len(f"{manufacturer}-{found}.runtime-version") <= 63


@given(st.text(max_size=300))
def test_every_hostname_becomes_a_valid_node_name_and_stays_one(hostname):
    name = node_name(hostname)
    assert SUBDOMAIN.problem(name) == ""
    assert node_name(name) == name


def test_the_resource_key_of_a_maker_is_the_references():
    assert base_resource("nvidia") == "nvidia.com/gpu"
    assert base_resource("ascend") == "huawei.com/npu"
    assert base_resource("someone") == "someone.com/gpu"


def test_a_label_value_is_always_valid():
    assert label_value("NVIDIA A10G (rev 1)") == "NVIDIA-A10G-rev-1"
    assert label_value("x" * 80) == "x" * 63
