import pytest

from services.discovery.domain.health import NvidiaSigns, judge_nvidia
from services.discovery.domain.known import KnownCards
from services.discovery.domain.reading import read
from tests.unit.discovery.builders import a_card, a_group, a_report


@pytest.mark.parametrize(
    ("signs", "reason"),
    [
        (NvidiaSigns(), ""),
        (NvidiaSigns(gone=True), "CardGone"),
        (NvidiaSigns(xid=48), "CriticalError"),
        (NvidiaSigns(xid=31), ""),
        (NvidiaSigns(xid=48, xid_age=301), ""),
        (NvidiaSigns(xid=48, reset_needed=False), ""),
        (NvidiaSigns(xid=48, xid_age=9000, reset_needed=True), "ResetNeeded"),
        (NvidiaSigns(partition_mode=True), "PartitionMode"),
        (NvidiaSigns(partition_mode=None, reset_needed=None), ""),
    ],
)
def test_a_card_is_healthy_unless_a_measurement_says_otherwise(signs, reason):
    verdict = judge_nvidia(signs)

    assert (verdict.unhealthy, verdict.reason) == (bool(reason), reason)


def test_one_makers_pass_touches_no_other_maker():
    nvidia = read(a_report(groups=[a_group(a_card(0))])).groups
    amd = read(a_report(groups=[a_group(a_card(0, identity="A-0"), manufacturer="amd", identity="mi300x")])).groups
    known = KnownCards()
    known.read("nvidia", nvidia)
    known.read("amd", amd)

    known.read("amd", ())

    assert [group.key for group in known.groups()] == ["nvidia-a10g"]
