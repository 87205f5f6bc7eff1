"""The supervisor's promises, with stand-ins: order, restart, clean end, and what happens when it is killed itself."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys

import pytest

from gpubus.datadir import DataDir, read_json
from gpubus.down import down
from gpubus.procs import memory_kib
from gpubus.refusal import Refusal
from gpubus.stack.launch import wait_ready
from gpubus.stack.pods import running_pods
from gpubus.stack.ports import FreePorts
from gpubus.stack.refusals import is_held, lock
from tests.integration.up.standins import alive, launch, pids, stack, standin
from tests.support.wait import eventually_sync


def test_every_process_is_named_in_pids_and_ends_with_down(tmp_path):
    with stack(tmp_path, "scheduler", "deployer", "deployer-agent") as where:
        running = pids(where)
        assert set(running) == {"supervisor", "scheduler", "deployer", "deployer-agent"}
        assert all(alive(pid) for pid in running.values())

        assert down(where).ran
        assert not any(alive(pid) for pid in running.values())
        assert pids(where) == {}
        assert not where.stopping.exists()
        assert not down(where).ran


def test_a_killed_process_is_restarted_under_its_own_name(tmp_path):
    with stack(tmp_path, "scheduler", "gateway") as where:
        first = pids(where)
        os.kill(first["scheduler"], signal.SIGKILL)

        second = eventually_sync(
            lambda: (now := pids(where)).get("scheduler") not in {None, first["scheduler"]} and now
        )
        eventually_sync(lambda: where.log("scheduler").read_text().count("standing in as scheduler with blue") == 2)
        assert second["gateway"] == first["gateway"]
        assert read_json(where.state)["processes"]["scheduler"]["last_exit"] == "signal SIGKILL"


def test_agents_that_stop_pods_end_before_services_do(tmp_path):
    with stack(tmp_path, "scheduler", "deployer-agent", deployer_agent="deaf") as where:
        running = pids(where)
        os.kill(running["supervisor"], signal.SIGTERM)
        eventually_sync(where.stopping.exists)
        assert alive(running["scheduler"])
        os.kill(running["deployer-agent"], signal.SIGKILL)
        eventually_sync(lambda: not is_held(where))
        assert not alive(running["scheduler"])


def test_a_process_that_cannot_start_is_named_with_its_last_words(tmp_path):
    where, free = DataDir(tmp_path), FreePorts()
    supervisor = launch(where, [standin(free, "scheduler"), standin(free, "discovery", "broken")], free)
    with pytest.raises(Refusal) as refused:
        wait_ready(where, supervisor, lambda _: None)
    assert "discovery ended 5 times while starting (exit code 3)" in refused.value.sentence
    assert "no such accelerator" in refused.value.sentence
    eventually_sync(lambda: not is_held(where))


def test_processes_start_after_what_they_need(tmp_path):
    where, free = DataDir(tmp_path), FreePorts()
    order: list[str] = []
    try:
        processes = [standin(free, "scheduler", after=["discovery"]), standin(free, "discovery", "slow")]
        wait_ready(where, launch(where, processes, free), order.append)
    finally:
        down(where)
    assert order == ["discovery", "scheduler"]


def test_services_go_on_without_their_supervisor_and_down_still_ends_them(tmp_path):
    with stack(tmp_path, "scheduler", "gateway") as where:
        running = pids(where)
        os.kill(running["supervisor"], signal.SIGKILL)
        eventually_sync(lambda: not alive(running["supervisor"]))
        assert alive(running["scheduler"])

        with pytest.raises(Refusal) as refused:
            lock(where)
        assert str(running["scheduler"]) in refused.value.sentence
        assert f"gpubus down --data-dir {tmp_path}" in refused.value.sentence

        assert down(where).ran
        assert not alive(running["scheduler"])
        assert not alive(running["gateway"])


def test_orphans_are_found_when_the_records_are_gone(tmp_path):
    with stack(tmp_path, "scheduler") as where:
        running = pids(where)
        os.kill(running["supervisor"], signal.SIGKILL)
        where.state.unlink()
        where.pids.unlink()

        assert down(where).ran
        assert not alive(running["scheduler"])


def test_a_reused_pid_is_never_signalled(tmp_path):
    with stack(tmp_path, "scheduler") as where:
        state = read_json(where.state)
        running = pids(where)
        os.kill(running["supervisor"], signal.SIGKILL)
        state["processes"]["scheduler"] |= {"pid": os.getpid()}
        state["supervisor"]["pid"] = os.getpid()
        where.state.write_text(__import__("json").dumps(state))

        assert down(where).ran
        assert not alive(running["scheduler"])


def test_two_stacks_run_side_by_side(tmp_path):
    with stack(tmp_path / "one", "scheduler") as one, stack(tmp_path / "two", "scheduler") as two:
        down(one)
        assert alive(pids(two)["scheduler"])


def test_a_second_stack_in_the_same_data_dir_is_refused(tmp_path):
    with stack(tmp_path, "scheduler") as where, pytest.raises(Refusal) as refused:
        lock(where)
    assert "belongs to a running stack" in refused.value.sentence


def test_a_process_deaf_to_sigterm_is_killed_in_the_end(tmp_path):
    where, free = DataDir(tmp_path), FreePorts()
    try:
        supervisor = launch(where, [standin(free, "scheduler", "deaf", patience=0.3)], free)
        wait_ready(where, supervisor, lambda _: None)
        pid = pids(where)["scheduler"]
    finally:
        down(where)
    assert not alive(pid)
    assert "scheduler did not end in time and was killed" in read_json(where.state)["notes"]


def test_a_frozen_process_ends_too(tmp_path):
    with stack(tmp_path, "scheduler") as where:
        pid = pids(where)["scheduler"]
        os.kill(pid, signal.SIGSTOP)
        down(where)
        assert not alive(pid)


def test_generated_files_are_private(tmp_path):
    with stack(tmp_path, "scheduler") as where:
        for path in (where.env_file("scheduler"), where.plan, where.state, where.log("scheduler")):
            assert stat.S_IMODE(path.stat().st_mode) == 0o600, path
        assert stat.S_IMODE(where.run.stat().st_mode) == 0o700


def test_the_supervisor_is_small(tmp_path):
    with stack(tmp_path, "scheduler") as where:
        assert memory_kib(pids(where)["supervisor"]) < 16 * 1024


def test_pods_that_no_agent_stopped_end_with_the_stack(tmp_path):
    with stack(tmp_path, "scheduler") as where:
        folder = where.pods / "0f3c"
        folder.mkdir(parents=True)
        hold = f"import fcntl, time; f = open({str(folder / 'lock')!r}, 'w'); fcntl.flock(f, 2); print('held', flush=True); time.sleep(600)"
        pod = subprocess.Popen([sys.executable, "-c", hold], stdout=subprocess.PIPE)
        assert pod.stdout.readline() == b"held\n"
        pod.stdout.close()
        assert running_pods(where) == [folder]
        down(where)
        assert pod.wait(timeout=10) == -signal.SIGTERM
        assert running_pods(where) == []
