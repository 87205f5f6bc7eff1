import pytest

from services.discovery.agent.incarnation import Slot
from shared.errors import FailedPrecondition, Unavailable


def test_a_start_knows_the_starts_before_it(tmp_path):
    seen = []
    for _ in range(3):
        slot = Slot(tmp_path, "n1")
        seen.append(slot.begin("machine", "boot"))
        slot.release()

    assert seen[0].previous == ()
    assert seen[2].previous == (seen[0].incarnation, seen[1].incarnation)
    assert len({identity.incarnation for identity in seen}) == 3


def test_only_the_last_starts_are_remembered(tmp_path):
    for _ in range(20):
        slot = Slot(tmp_path, "n1")
        identity = slot.begin("machine", "boot")
        slot.release()

    assert len(identity.previous) == 8


def test_one_process_holds_the_slot(tmp_path):
    slot = Slot(tmp_path, "n1")

    with pytest.raises(FailedPrecondition):
        Slot(tmp_path, "n1")
    Slot(tmp_path, "n2").release()
    slot.release()
    Slot(tmp_path, "n1").release()


@pytest.mark.parametrize("text", ["", "{", '{"a": 1}', "[1, null]"])
def test_a_torn_file_is_no_reason_not_to_start(tmp_path, text):
    (tmp_path / "n1.incarnations").write_text(text)
    slot = Slot(tmp_path, "n1")

    assert slot.begin("machine", "boot").previous == ()
    slot.release()


def test_a_data_dir_that_cannot_be_written_is_named(tmp_path):
    (tmp_path / "file").write_text("")

    with pytest.raises(Unavailable, match="file"):
        Slot(tmp_path / "file" / "x", "n1")


def test_a_fleets_nodes_prove_their_earlier_starts_one_by_one(tmp_path):
    slot = Slot(tmp_path, "fleet")
    first = slot.begin("m", "b")
    slot.release()
    second = Slot(tmp_path, "fleet").begin("m", "b")

    one, two = (second.of_simulated(name, f"m-{name}", "b") for name in ("n1", "n2"))

    assert one.incarnation != two.incarnation
    assert first.of_simulated("n1", "m-n1", "b").incarnation in one.previous
    assert first.of_simulated("n1", "m-n1", "b").incarnation not in two.previous
