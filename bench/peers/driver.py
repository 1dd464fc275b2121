"""What the drivers of all Python peers share: the command line, the tool with its effect, and what is printed.

A driver is called as

    python <peer>.py run|resume FOLDER --steps N --bytes B --sync default|full
        [--think MS] [--effects FILE] [--die before|after --at STEP] [--record list|delta]

It runs one loop of N steps, each with one call of the tool, whose result is B bytes long, and keeps its database in
FOLDER. With `--effects` each call appends its step's number to FILE and syncs it, so that a process outside can count
what happened. With `--die` the process kills itself with SIGKILL in the call of that step, just before its effect or
just after it. `resume` goes on as the peer's documentation says.

What it prints is one fact a line, a name and a value: `seconds` of the loop alone (imports and opening are left out),
`written` bytes of this process, `set` (the settings, read back), `versions`, `asked` (how often a person was needed).
"""

import argparse
import os
import signal
import sqlite3
import time
from importlib.metadata import version


class Loop:
    """One run of the loop: its settings and the tool."""

    def __init__(self, options):
        self.resuming = options.word == "resume"
        self.folder = options.folder
        self.steps = options.steps
        self.full = options.sync == "full"
        self.delta = options.record == "delta"
        self._think = options.think / 1000
        self._effects = options.effects
        self._die = (options.die, options.at)
        line = '{:05} the quick "brown" fox jumps over\tthe lazy dog\n'
        text = "".join(line.format(number) for number in range(options.bytes // 40 + 1))
        self._result = text[: options.bytes]

    def path(self, name):
        """A file in the folder of this run."""
        return os.path.join(self.folder, name)

    def act(self, step):
        """The decision and the tool of one step."""
        if self._think:
            time.sleep(self._think)
        self._perhaps_die("before", step)
        if self._effects:
            self._have_effect(step)
        self._perhaps_die("after", step)
        return self._result

    def _have_effect(self, step):
        file = os.open(self._effects, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            os.write(file, f"{step}\n".encode())
            os.fsync(file)
        finally:
            os.close(file)

    def _perhaps_die(self, moment, step):
        if self._die == (moment, step):
            os.kill(os.getpid(), signal.SIGKILL)


def read_options():
    """The command line, as this file's head describes it."""
    parser = argparse.ArgumentParser()
    parser.add_argument("word", choices=["run", "resume"])
    parser.add_argument("folder")
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--bytes", type=int, required=True)
    parser.add_argument("--sync", choices=["default", "full"], required=True)
    parser.add_argument("--record", choices=["list", "delta"], default="list")
    parser.add_argument("--think", type=int, default=0)
    parser.add_argument("--effects")
    parser.add_argument("--die", choices=["before", "after"])
    parser.add_argument("--at", type=int)
    return Loop(parser.parse_args())


def pragmas(execute):
    """The settings of a SQLite connection that say what a commit waits for, by asking it."""
    level = execute("PRAGMA synchronous")
    name = {0: "OFF", 1: "NORMAL", 2: "FULL", 3: "EXTRA"}.get(level, level)
    mode = execute("PRAGMA journal_mode")
    return f"SQLite {sqlite3.sqlite_version}, journal_mode={mode} synchronous={name}"


def measure(loop):
    """Runs `loop` and prints how long it took and what it wrote."""
    written = _written()
    begun = time.monotonic()
    loop()
    print(f"seconds {time.monotonic() - begun:.6f}")
    print(f"written {_written() - written}")


def tell(settings, *packages):
    """Prints the settings and the versions of the installed packages."""
    print(f"set {settings}")
    named = ", ".join(f"{package} {version(package)}" for package in packages)
    print(f"versions {named}")
    print("asked 0", flush=True)


def _written():
    with open("/proc/self/io", encoding="ascii") as file:
        lines = dict(line.split(": ") for line in file)
    return int(lines["write_bytes"])
