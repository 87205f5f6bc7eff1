"""The process beside an engine: starts it once, writes who it is and how it ended, cuts its log, hands on the wish to end."""

import fcntl
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from services.deployer.drivers import shim
from tests.support.wait import eventually_sync

PYTHON = [sys.executable, "-S", "-E", "-c"]


class Folder:
    """A Pod's folder and the shim on it, as the agent starts it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.lock = os.open(root / "lock", os.O_RDWR | os.O_CREAT, 0o600)
        fcntl.flock(self.lock, fcntl.LOCK_EX)

    def start(
        self, argv: list[str], *, grace: float = 5, cwd: str = "", limit: int = 1 << 20
    ) -> subprocess.Popen[bytes]:
        order = {"run": 7, "argv": argv, "cwd": cwd, "grace": grace, "logLimit": limit, "place": {"port": 9}}
        (self.root / "start.json").write_text(json.dumps(order))
        words = [sys.executable, "-S", "-E", shim.__file__, str(self.root), str(self.lock)]
        return subprocess.Popen(words, pass_fds=[self.lock])

    def read(self, name: str) -> dict:
        path = self.root / name
        return json.loads(path.read_text()) if path.exists() else {}

    def log(self) -> str:
        path = self.root / "log"
        return path.read_text() if path.exists() else ""

    def free(self) -> bool:
        """Whether nobody but this test holds the lock."""
        os.close(self.lock)
        self.lock = os.open(self.root / "lock", os.O_RDWR)
        try:
            fcntl.flock(self.lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True


@pytest.fixture
def folder(tmp_path):
    folder = Folder(tmp_path)
    yield folder
    engine = folder.read("engine.json")
    if engine and shim.start_ticks(engine["pid"]) == engine["start"]:
        os.killpg(engine["pid"], signal.SIGKILL)
    os.close(folder.lock)


def ended(process) -> int:
    return process.wait(timeout=30)


@pytest.mark.parametrize(
    ("script", "code", "number"),
    [
        ("import sys; sys.exit(0)", 0, None),
        ("import sys; sys.exit(3)", 3, None),
        ("import os; os.kill(os.getpid(), 9)", 137, 9),
        ("import os; os.kill(os.getpid(), 11)", 139, 11),
    ],
)
def test_the_end_is_written_with_code_and_signal(folder, script, code, number):
    assert ended(folder.start([*PYTHON, script])) == 0

    end = folder.read("exit.json")
    assert (end["run"], end["exitCode"], end["signal"]) == (7, code, number)
    assert folder.free()


def test_who_runs_is_written_before_the_engine_begins(folder):
    script = "import json, os; print(json.load(open('../engine.json'))['pid'] == os.getpid(), flush=True)"
    (folder.root / "work").mkdir()

    ended(folder.start([*PYTHON, script], cwd=str(folder.root / "work")))

    assert folder.log() == "True\n"
    engine = folder.read("engine.json")
    assert (engine["run"], engine["place"]) == (7, {"port": 9})


@pytest.mark.parametrize(
    ("argv", "cwd", "code", "words"),
    [
        (["no-such-engine"], "", 127, "no-such-engine: No such file or directory"),
        (["/etc/passwd"], "", 126, "/etc/passwd: Permission denied"),
        (["true"], "/no/such/directory", 126, "/no/such/directory: No such file or directory"),
    ],
)
def test_a_command_that_cannot_be_run_says_why(folder, argv, cwd, code, words):
    ended(folder.start(argv, cwd=cwd))

    assert folder.read("exit.json")["exitCode"] == code
    assert words in folder.log()


def test_the_wish_to_end_reaches_the_whole_group(folder):
    script = "import subprocess, time; subprocess.Popen(['sleep', '600']); print('up', flush=True); time.sleep(600)"
    process = folder.start([*PYTHON, script])
    eventually_sync(lambda: folder.log() == "up\n")

    process.terminate()

    ended(process)
    assert folder.read("exit.json")["signal"] == signal.SIGTERM
    eventually_sync(folder.free)


def test_one_that_ignores_it_is_killed_after_its_grace(folder):
    script = "import signal, time; signal.signal(15, signal.SIG_IGN); print('up', flush=True); time.sleep(600)"
    process = folder.start([*PYTHON, script], grace=0.3)
    eventually_sync(lambda: folder.log() == "up\n")

    process.terminate()

    ended(process)
    assert folder.read("exit.json")["signal"] == signal.SIGKILL


def test_one_that_ends_well_in_its_grace_is_not_killed(folder):
    script = (
        "import signal, sys, time; signal.signal(15, lambda *_: sys.exit(0))\n"
        "print('up', flush=True)\nwhile True: time.sleep(0.05)"
    )
    process = folder.start([*PYTHON, script])
    eventually_sync(lambda: folder.log() == "up\n")

    process.terminate()

    ended(process)
    assert (folder.read("exit.json")["exitCode"], folder.read("exit.json")["signal"]) == (0, None)


def test_a_frozen_engine_hears_the_wish_too(folder):
    process = folder.start([*PYTHON, "import time; print('up', flush=True); time.sleep(600)"])
    eventually_sync(lambda: folder.log() == "up\n")
    os.kill(folder.read("engine.json")["pid"], signal.SIGSTOP)

    process.terminate()

    ended(process)
    assert folder.read("exit.json")["signal"] == signal.SIGTERM


def test_the_engine_has_its_own_session_default_signals_and_no_input(folder):
    script = (
        "import os, signal, sys\n"
        "print(os.getsid(0) == os.getpid(), sys.stdin.read() == '')\n"
        "blocked = signal.pthread_sigmask(signal.SIG_BLOCK, [])\n"
        "print([int(n) for n in blocked], signal.getsignal(15) == signal.SIG_DFL)\n"
        "print(open('/proc/self/status').read().split('SigIgn:')[1].split()[0])"
    )

    ended(folder.start([*PYTHON, script]))

    first, second, ignored = folder.log().splitlines()
    assert first == "True True"
    assert second == "[] True"
    # The two are ignored by the Python that looks; those below the real-time signals belong to the C library.
    others = {signal.SIGPIPE, signal.SIGXFSZ, *range(32, signal.SIGRTMIN)}
    assert not {n for n in range(1, 65) if int(ignored, 16) >> (n - 1) & 1} - others


def test_the_lock_outlives_the_shim_with_the_engine(folder):
    process = folder.start([*PYTHON, "import time; print('up', flush=True); time.sleep(600)"])
    eventually_sync(lambda: folder.log() == "up\n")

    process.kill()
    process.wait()
    assert not folder.free()
    os.kill(folder.read("engine.json")["pid"], signal.SIGKILL)

    eventually_sync(folder.free)
    assert folder.read("exit.json") == {}, "nobody saw how it ended"


def test_a_log_within_its_limit_is_left_alone_and_a_longer_one_moves(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    log = os.open("log", os.O_RDWR | os.O_CREAT | os.O_APPEND)
    os.write(log, b"a" * 100)

    shim.cut(log, 100)
    assert not Path("log.1").exists()
    os.write(log, b"b" * 50)
    shim.cut(log, 100)
    os.write(log, b"c")

    assert Path("log.1").read_bytes() == b"a" * 50 + b"b" * 50, "its last part"
    assert Path("log").read_bytes() == b"c"
    os.close(log)


def test_a_process_is_known_by_pid_and_start():
    child = subprocess.Popen(["sleep", "600"])
    before = shim.start_ticks(child.pid)
    assert before > 0
    assert shim.start_ticks(child.pid) == before

    child.kill()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert shim.start_ticks(child.pid) == 0, "ended, though nobody reaped it"
    child.wait()
    assert shim.start_ticks(child.pid) == 0


def test_a_name_with_brackets_does_not_confuse_it(tmp_path):
    odd = tmp_path / "a) S 1 ("
    odd.symlink_to("/bin/sleep")
    child = subprocess.Popen([str(odd), "600"])
    try:
        eventually_sync(lambda: b"a) S" in Path(f"/proc/{child.pid}/stat").read_bytes())
        mine = shim.start_ticks(os.getpid())
        assert shim.start_ticks(child.pid) >= mine > 0
    finally:
        child.kill()
        child.wait()
