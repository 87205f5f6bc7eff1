"""The process runtime with real processes: one engine at most, whoever is killed when; ends, logs and ports are right."""

import asyncio
import contextlib
import json
import os
import random
import signal
import sys
from pathlib import Path

import pytest

from services.deployer.domain.running import Launch, Place
from services.deployer.drivers.pod_folder import PodFolder
from services.deployer.drivers.process import ProcessRuntime
from shared.clock import SystemClock
from shared.errors import FailedPrecondition, InvalidArgument, NotFound
from tests.integration.deployer.conftest import eventually

SLEEP = (sys.executable, "-S", "-E", "-c", "import time; print('up', flush=True); time.sleep(600)")


def engines(uid: str) -> list[int]:
    """Pids of processes of a Pod that are not its shim."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            mine = f"GPUBUS_POD_UID={uid}\0".encode() in (entry / "environ").read_bytes()
            line = (entry / "cmdline").read_bytes()
            state = (entry / "stat").read_text().rpartition(") ")[2][0]
        except OSError:
            continue
        if mine and b"shim.py" not in line and state != "Z":
            found.append(int(entry.name))
    return found


class Pods:
    """A runtime on a directory, replaced by a new one as if the agent had been started again."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.changed: list[str] = []
        self.runs = 0
        self.restart()

    def restart(self) -> None:
        self.runtime = ProcessRuntime(self.directory, clock=SystemClock(), log_limit=100_000)
        self.runtime.on_change(self.changed.append)
        self.runtime.adopt()

    async def start(self, uid: str = "a", argv: tuple[str, ...] = SLEEP, *, grace: int = 5, run: int = 0) -> Place:
        place = await self.runtime.place(uid, None)
        self.runs += 1
        launch = Launch(
            uid=uid, run=run or self.runs, place=place, argv=argv, env={"GPUBUS_POD_UID": uid}, grace_seconds=grace,
            record={"wanted": None},
        )  # fmt: skip
        await self.runtime.start(launch)
        return place

    async def ended(self, uid: str = "a"):
        async def over():
            seen = await self.runtime.observe(uid)
            return None if seen.running else seen

        return await eventually(over)

    async def up(self, uid: str = "a"):
        """Wait until the engine has begun."""

        async def begun():
            seen = await self.runtime.observe(uid)
            return seen if seen.place is not None and engines(uid) else None

        return await eventually(begun)

    async def stop(self, uid: str = "a", grace: float = 5) -> None:
        async def over():
            await self.runtime.stop(uid, grace)
            return not (await self.runtime.observe(uid)).running

        await eventually(over, interval=0.05)

    def folder(self, uid: str = "a") -> PodFolder:
        return PodFolder.of(self.directory, uid)

    def shim(self, uid: str = "a") -> int:
        return int(self.folder(uid).read("shim.json").get("pid", 0))


@pytest.fixture
async def pods(tmp_path):
    pods = Pods(tmp_path / "pods")
    yield pods
    pods.restart()
    for uid in pods.runtime.adopt():
        await pods.stop(uid, 0)
    assert (
        not [pid for folder in pods.directory.iterdir() for pid in engines(folder.name)]
        if pods.directory.is_dir()
        else True
    )
    pods.runtime.close()


async def test_it_runs_where_it_was_told_and_ends_when_asked(pods):
    place = await pods.start()
    seen = await pods.up()

    assert seen.running
    assert seen.place == place
    await pods.stop()

    assert (await pods.ended()).ended.signal == signal.SIGTERM
    assert not engines("a")


async def test_a_second_start_is_refused_while_the_first_runs(pods):
    await pods.start()
    await pods.up()

    with pytest.raises(FailedPrecondition):
        await pods.start()

    assert len(engines("a")) == 1


async def test_an_engine_that_ends_tells_code_and_last_lines(pods):
    script = "import sys; print('loading'); print('no memory', file=sys.stderr); sys.exit(3)"
    await pods.start(argv=(sys.executable, "-c", script))

    end = (await pods.ended()).ended

    assert end.exit_code == 3
    assert set(end.lines) == {"loading", "no memory"}
    await eventually(lambda: "a" in pods.changed)


async def test_a_command_that_is_not_there_says_so(pods):
    await pods.start(argv=("no-such-engine", "--x"))

    end = (await pods.ended()).ended

    assert end.exit_code == 127
    assert "no-such-engine: No such file or directory" in end.lines


async def test_an_engine_that_is_killed_tells_the_signal(pods):
    await pods.start()
    await pods.up()

    os.kill(engines("a")[0], signal.SIGKILL)

    end = (await pods.ended()).ended
    assert (end.exit_code, end.signal) == (137, signal.SIGKILL)


async def test_an_engine_that_ignores_sigterm_is_killed_after_its_grace(pods):
    script = "import signal,time; signal.signal(15, signal.SIG_IGN); print('up', flush=True); time.sleep(600)"
    await pods.start(argv=(sys.executable, "-c", script), grace=1)
    await eventually(lambda: pods.folder().tail(1) == ["up"])

    await pods.stop(grace=1)

    assert (await pods.ended()).ended.signal == signal.SIGKILL


async def test_an_engine_outlives_its_shim_and_is_still_the_only_one(pods):
    await pods.start()
    await pods.up()
    (engine,) = engines("a")

    os.kill(pods.shim(), signal.SIGKILL)
    await eventually(lambda: "a" in pods.changed)

    assert (await pods.runtime.observe("a")).running
    with pytest.raises(FailedPrecondition):
        await pods.start()
    assert engines("a") == [engine]
    await pods.stop()
    assert not engines("a")
    assert (await pods.ended()).ended.exit_code is None, "nobody saw how it ended"


async def test_an_engine_that_closed_the_lock_and_lost_its_shim_is_still_the_only_one(pods):
    script = "import os,time; os.closerange(3, 256); print('up', flush=True); time.sleep(600)"
    await pods.start(argv=(sys.executable, "-S", "-E", "-c", script))
    await eventually(lambda: pods.folder().tail(1) == ["up"])
    (engine,) = engines("a")

    os.kill(pods.shim(), signal.SIGKILL)
    await eventually(lambda: "a" in pods.changed)
    pods.restart()

    assert (await pods.runtime.observe("a")).running
    with pytest.raises(FailedPrecondition):
        await pods.start()
    assert engines("a") == [engine]
    await pods.stop()
    assert not engines("a")


async def test_a_frozen_shim_or_engine_is_ended_all_the_same(pods):
    for frozen in (pods.shim, lambda: engines("a")[0]):
        await pods.start(grace=1)
        await pods.up()
        os.kill(frozen(), signal.SIGSTOP)

        await pods.stop(grace=0.2)

        assert not engines("a")
        assert not (await pods.runtime.observe("a")).running


async def test_a_restarted_agent_finds_what_runs_and_hears_of_its_end(pods):
    await pods.start()
    before = await pods.up()

    pods.restart()
    pods.changed.clear()

    assert await pods.runtime.observe("a") == before
    with pytest.raises(FailedPrecondition):
        await pods.start()
    os.kill(engines("a")[0], signal.SIGKILL)
    await eventually(lambda: "a" in pods.changed)
    assert (await pods.ended()).ended.exit_code == 137


async def test_children_that_an_engine_leaves_behind_are_ended_with_it(pods):
    script = "import subprocess,sys; subprocess.Popen(['sleep','600']); print('up', flush=True); sys.exit(0)"
    await pods.start(argv=(sys.executable, "-c", script))

    assert (await pods.ended()).ended.exit_code == 0
    assert not engines("a")


async def test_a_child_that_left_the_group_and_kept_the_lock_is_found(pods):
    script = (
        "import os,time\nr, w = os.pipe()\nif os.fork(): os.read(r, 1); os._exit(0)\n"
        "os.setsid(); print('away', flush=True); os.write(w, b'x'); time.sleep(600)"
    )
    await pods.start(argv=(sys.executable, "-c", script))
    await eventually(lambda: pods.folder().tail(1) == ["away"])

    await pods.ended()

    assert not engines("a")


@pytest.mark.parametrize("seed", range(3))
async def test_killing_shims_at_any_moment_never_leads_to_two_engines(pods, seed):
    rng = random.Random(seed)
    for _ in range(12):
        try:
            await pods.start()
        except FailedPrecondition:
            assert len(engines("a")) <= 1
        child = pods.runtime._children.get("a")
        await asyncio.sleep(rng.choice([0, 0.002, 0.01, 0.03, 0.05]))
        if child:
            with contextlib.suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)
        if rng.random() < 0.5:
            pods.restart()
        assert len(engines("a")) <= 1
        if rng.random() < 0.6:
            await pods.stop(grace=0)
            assert not engines("a")
            assert not (await pods.runtime.observe("a")).running
    await pods.stop(grace=0)
    await pods.start()
    await pods.up()
    assert len(engines("a")) == 1


async def test_two_agents_that_start_the_same_pod_start_it_once(pods):
    other = Pods(pods.directory)

    results = await asyncio.gather(pods.start(run=1), other.start(run=1), return_exceptions=True)

    assert sum(isinstance(result, FailedPrecondition) for result in results) == 1
    await pods.up()
    assert len(engines("a")) == 1
    other.runtime.close()


async def test_a_start_that_was_only_written_down_runs_nothing(pods):
    await pods.start()
    await pods.up()
    await pods.stop()
    folder = pods.folder()
    folder.write("start.json", {**folder.read("start.json"), "run": 2})

    seen = await pods.runtime.observe("a")

    assert not seen.running
    assert seen.run == 2
    assert seen.ended.exit_code is None


async def test_files_torn_by_a_host_crash_stop_nobody(pods):
    await pods.start()
    await pods.up()
    await pods.stop()
    for name in ("start.json", "engine.json", "exit.json", "pod.json"):
        (pods.folder().root / name).write_bytes(b'{"run": ')

    pods.restart()
    assert not (await pods.runtime.observe("a")).running
    await pods.start()
    await pods.up()


async def test_the_log_is_read_in_pieces_and_kept_from_the_start_before(pods):
    await pods.start(argv=(sys.executable, "-c", "for i in range(5): print('line', i)"))
    await pods.ended()

    tail = await pods.runtime.read_log("a", offset=-1, tail_lines=2, max_bytes=1000, previous=False)
    first = await pods.runtime.read_log("a", offset=0, tail_lines=0, max_bytes=7, previous=False)
    rest = await pods.runtime.read_log("a", offset=first.next_offset, tail_lines=0, max_bytes=1000, previous=False)

    assert tail.text == "line 3\nline 4\n"
    assert (first.text, first.ended) == ("line 0\n", False)
    assert rest.text == "line 1\nline 2\nline 3\nline 4\n"
    assert rest.ended
    await pods.start(argv=(sys.executable, "-c", "print('second')"))
    await pods.ended()
    before = await pods.runtime.read_log("a", offset=-1, tail_lines=1, max_bytes=1000, previous=True)
    assert before.text == "line 4\n"
    with pytest.raises(NotFound):
        await pods.runtime.read_log("b", offset=-1, tail_lines=1, max_bytes=1000, previous=False)


async def test_a_long_log_is_cut_and_the_engine_goes_on_writing(pods):
    script = (
        "import time\nfor i in range(3000): print('x' * 60, i, flush=True)\n"
        "while True: time.sleep(0.1); print('still here', flush=True)"
    )
    await pods.start(argv=(sys.executable, "-c", script))
    await eventually(lambda: pods.folder().tail(1) == ["still here"])
    for number in (signal.SIGSTOP, signal.SIGCONT):  # the shim hears of both, and looks at the log then
        os.kill(engines("a")[0], number)
    await eventually((pods.folder().root / "log.1").exists, timeout=15)

    await eventually(lambda: pods.folder().tail(1) == ["still here"])

    assert (pods.folder().root / "log").stat().st_size < 100_000


async def test_ports_are_free_and_differ(pods):
    places = [await pods.runtime.place(f"p{i}", None) for i in range(20)]

    assert len({place.port for place in places}) == 20
    assert len({place.token for place in places}) == 20
    assert (await pods.runtime.place("x", 9000)).port == 9000


async def test_the_engine_sees_no_setting_or_secret_of_ours(pods, monkeypatch):
    monkeypatch.setenv("GPUBUS_NATS_SEED_FILE", "/secret")
    monkeypatch.setenv("OTHER", "kept")
    script = "import os,json; print(json.dumps({k: v for k, v in os.environ.items()}))"
    await pods.start(argv=(sys.executable, "-c", script))
    await pods.ended()

    env = json.loads(pods.folder().tail(1)[0])

    assert {k for k in env if k.startswith("GPUBUS_")} == {"GPUBUS_POD_UID"}
    assert env["OTHER"] == "kept"
    assert (pods.folder().root / "start.json").stat().st_mode & 0o077 == 0


async def test_what_is_forgotten_is_gone_and_what_runs_is_not_forgotten(pods):
    await pods.start()
    await pods.up()
    await pods.runtime.forget("a")
    assert pods.folder().root.exists()

    await pods.stop()
    await pods.runtime.forget("a")

    assert not pods.folder().root.exists()
    assert (await pods.runtime.observe("a")).run == 0


@pytest.mark.parametrize("uid", ["../x", "a/b", "", "a.b", "a" * 200, "-a"])
async def test_a_uid_that_could_leave_the_directory_is_refused(pods, uid):
    with pytest.raises(InvalidArgument):
        await pods.runtime.observe(uid)


async def test_descriptors_are_given_back(pods):
    before = len(list(Path("/proc/self/fd").iterdir()))
    for _ in range(5):
        await pods.start()
        await pods.up()
        await pods.stop(grace=0)
    await pods.runtime.forget("a")

    assert len(list(Path("/proc/self/fd").iterdir())) == before
