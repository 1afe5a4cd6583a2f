"""Runs tests, with a mutant or without, and nothing of them is left afterwards."""

import glob
import os
import re
import shutil
import signal
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from mutation.paths import PREFIX, TREE, environment

# A mutant may leave servers behind that never end: root can have them end with the test.
CAGE = ["unshare", "--pid", "--ipc", "--fork", "--kill-child", "--mount-proc"] if os.geteuid() == 0 else []
# In memory, where there is such a place: most of what tests wait for is a disk.
ROOM = Path("/dev/shm" if os.path.isdir("/dev/shm") else tempfile.gettempdir()) / f"fencepost-mutants-{os.getuid()}"
# Most of the time tests wait for something.
THREADS = int(os.environ.get("THREADS") or 3)


@dataclass
class Run:
    # "passed", "failed" or "hung"
    outcome: str
    # The first test that failed, if that is known.
    test: str = ""
    seconds: float = 0


def listed_tests(executable):
    output = subprocess.run([executable, "--list", "--format=terse"], cwd=TREE, check=True, capture_output=True, text=True)
    return [line.removesuffix(": test") for line in output.stdout.splitlines() if line.endswith(": test")]


def run(executable, tests, limit, mutant=0, **more):
    """Runs these tests until one fails, for `limit` seconds at most. Waiting for a turn on this machine does not count."""
    room = tempfile.mkdtemp(dir=ROOM)
    os.chmod(room, 0o755)
    around = environment(mutant, TMPDIR=room, FENCEPOST_TEST_PG_TEMPLATE=str(ROOM / "postgres"), **more)
    # Inside of what waits for a turn; and in our process group, so that we can end it.
    bounded = ["timeout", "--foreground", "--signal=KILL", str(round(limit))]
    command = [*PREFIX, *CAGE, *bounded, executable, f"--test-threads={THREADS}", "--exact", *tests]
    process = subprocess.Popen(command, cwd=TREE, env=around, start_new_session=True, **PIPED)
    failed, seconds = report(process.stdout)
    if failed:
        os.killpg(process.pid, signal.SIGKILL)
    process.stdout.close()
    code = process.wait()
    shutil.rmtree(room, ignore_errors=True)
    if failed:
        return Run("failed", failed)
    # 137 is what `timeout` says of a command that it has killed.
    return Run({0: "passed", 137: "hung"}.get(code, "failed"), seconds=seconds)


PIPED = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL, "text": True}


def report(lines):
    """The first test that has failed; or how long it took until all were through, by their own clock."""
    seconds = 0
    for line in lines:
        if line.startswith("test ") and line.rstrip().endswith("... FAILED"):
            return line.split()[1], 0
        if took := re.search(r"finished in ([0-9.]+)s", line):
            seconds = float(took[1])
    return "", seconds


def make_room():
    """A place for what tests write, with a new Postgres that they copy instead of making one each."""
    shutil.rmtree(ROOM, ignore_errors=True)
    ROOM.mkdir()
    ROOM.chmod(0o777)
    newest = max(glob.glob("/usr/lib/postgresql/*/bin"), key=lambda path: int(path.split("/")[4]))
    initdb = Path(os.environ.get("FENCEPOST_TEST_PG_BIN", newest)) / "initdb"
    user = ["setpriv", "--reuid=postgres", "--regid=postgres", "--init-groups"] if os.geteuid() == 0 else []
    flags = ["--auth=trust", "--username=postgres", "--encoding=UTF8", "--no-locale", "--no-sync"]
    command = [*user, str(initdb), *flags, "-D", str(ROOM / "postgres")]
    subprocess.run(command, cwd=ROOM, check=True, stdout=subprocess.DEVNULL)
    # A server that is killed leaves nothing in /dev/shm then.
    with open(ROOM / "postgres" / "postgresql.conf", "a") as settings:
        settings.write("dynamic_shared_memory_type = mmap\n")
