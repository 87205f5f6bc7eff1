import pytest

from services.discovery.domain import lifecycle
from services.discovery.domain.claims import ClaimReason, decide_claim
from services.discovery.domain.liveness import Hearing
from tests.unit.discovery.builders import NOW, a_claim


@pytest.fixture
def node():
    found = decide_claim(None, a_claim(), Hearing.UNJUDGED, NOW).node
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("claim", "hearing", "reason"),
    [
        pytest.param(a_claim(), Hearing.ALIVE, ClaimReason.SAME, id="asks-again"),
        pytest.param(a_claim(incarnation="i2", previous=["i1"]), Hearing.ALIVE, ClaimReason.RESTARTED, id="restart"),
        pytest.param(a_claim(incarnation="i2"), Hearing.ALIVE, ClaimReason.OTHER_AGENT_LIVES, id="two-on-one-host"),
        pytest.param(a_claim(incarnation="i2", previous=["i0"]), Hearing.ALIVE, ClaimReason.OTHER_AGENT_LIVES, id="old-proof"),
        pytest.param(a_claim(incarnation="i2", previous=["i1"], boot_id="b2"), Hearing.ALIVE, ClaimReason.OTHER_AGENT_LIVES, id="clone"),
        pytest.param(a_claim(incarnation="i2", machine_id="m2"), Hearing.ALIVE, ClaimReason.OTHER_AGENT_LIVES, id="other-host"),
        pytest.param(a_claim(incarnation="i2", machine_id="m2"), Hearing.UNJUDGED, ClaimReason.NOT_JUDGED_YET, id="unjudged"),
        pytest.param(a_claim(incarnation="i2", machine_id="m2"), Hearing.SILENT, ClaimReason.TAKEN_OVER, id="silent"),
        pytest.param(a_claim(node="fleet"), Hearing.SILENT, ClaimReason.INVALID_NAME, id="reserved-name"),
        pytest.param(a_claim(node="N 1"), Hearing.SILENT, ClaimReason.INVALID_NAME, id="bad-name"),
    ],
)  # fmt: skip
def test_one_agent_start_speaks_for_a_node(node, claim, hearing, reason):
    outcome = decide_claim(node, claim, hearing, NOW)

    assert outcome.reason is reason
    writes = reason in {ClaimReason.RESTARTED, ClaimReason.TAKEN_OVER}
    assert (outcome.node is not None) == writes
    assert outcome.accepted == (writes or reason is ClaimReason.SAME)


def test_a_new_incarnation_starts_counting_reports_anew(node):
    status = node.status.model_copy(update={"observed_sequence": 40})

    outcome = decide_claim(
        node.model_copy(update={"status": status}), a_claim(incarnation="i2", previous=["i1"]), Hearing.ALIVE, NOW
    )

    assert outcome.node.status.observed_sequence == 0
    assert outcome.node.status.incarnation == "i2"


def test_a_lost_node_may_be_taken_over_at_once_and_stays_lost_until_it_reports(node):
    lost = lifecycle.lost(node, 3, NOW)

    outcome = decide_claim(lost, a_claim(incarnation="i2", machine_id="m2"), Hearing.UNJUDGED, NOW)

    assert outcome.reason is ClaimReason.TAKEN_OVER
    assert lifecycle.is_lost(outcome.node)
