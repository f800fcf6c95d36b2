# SPDX-License-Identifier: Apache-2.0
"""Processes of the test cluster: their output in a log file, and none outlives its owner.

A Process is `bound` to this program, so that the kernel kills it should this program die, or it
is not, for a cluster that stays when the command that started it ends; such a one is written down
as (pid, start time) and found again with Found, which no other process can be mistaken for.
"""
import ctypes
import json
import os
import signal
import subprocess

from waiting import wait_for

PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None, use_errno=True)


def die_with_parent():
    """In a new process: the kernel kills it when its parent ends."""
    _LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def start_time(pid):
    """The kernel's start time of a process, None if there is none or it is a zombie."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            fields = file.read().rpartition(")")[2].split()
    except OSError:
        return None
    return int(fields[19]) if fields[0] not in ("Z", "X") else None


class Found:
    """A process that was started earlier, perhaps by another program."""

    def __init__(self, pid, started):
        self.pid = pid
        self.started = started

    def running(self):
        return self.started is not None and start_time(self.pid) == self.started

    def send(self, number):
        if self.running():
            try:
                os.kill(self.pid, number)
            except ProcessLookupError:
                pass

    def end(self, number=signal.SIGKILL, deadline=10):
        """Signals it and waits for its end; kills it when it takes too long."""
        self.send(number)
        try:
            wait_for(lambda: not self.running(), deadline, "the process ends", every=0.01)
        except AssertionError:
            self.send(signal.SIGKILL)
            wait_for(lambda: not self.running(), 10, f"process {self.pid} ends after kill -9",
                     every=0.01)

    def record(self):
        return {"pid": self.pid, "started": self.started}


class Process(Found):
    """A process that this program starts."""

    def __init__(self, command, log, bound=True, environment=None):
        self.command = command
        self.log = log
        with open(log, "ab") as output:
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT,
                env=environment, start_new_session=True,
                preexec_fn=die_with_parent if bound else None)
        super().__init__(self._process.pid, start_time(self._process.pid))

    def running(self):
        return self._process.poll() is None

    def check_running(self):
        """Raises with the log's end if it has ended."""
        if not self.running():
            raise RuntimeError(f"{os.path.basename(self.command[0])} ended with code "
                               f"{self._process.returncode}:\n{tail(self.log)}")


def tail(path, lines=20):
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return "".join(file.readlines()[-lines:])
    except OSError:
        return f"(no log at {path})"


class Processes:
    """Named processes of one folder: NAME.log and, so that others find them, NAME.pid."""

    def __init__(self, folder, bound):
        self.folder = folder
        self._bound = bound
        self._started = {}
        os.makedirs(folder, exist_ok=True)

    def log(self, name):
        return os.path.join(self.folder, f"{name}.log")

    def start(self, name, command, environment=None):
        process = Process(command, self.log(name), self._bound, environment)
        self._started[name] = process
        with open(self._pid_file(name), "w", encoding="utf-8") as file:
            json.dump(process.record(), file)
        return process

    def get(self, name):
        """The process of that name, whoever started it; None if there was none."""
        if name in self._started:
            return self._started[name]
        try:
            with open(self._pid_file(name), encoding="utf-8") as file:
                return Found(**json.load(file))
        except (OSError, ValueError):
            return None

    def running(self, name):
        process = self.get(name)
        return process is not None and process.running()

    def names(self):
        return sorted(entry[:-4] for entry in os.listdir(self.folder) if entry.endswith(".pid"))

    def check_running(self):
        for process in self._started.values():
            process.check_running()

    def end(self, name, number=signal.SIGKILL, deadline=10):
        process = self.get(name)
        if process is not None:
            process.end(number, deadline)
        self._started.pop(name, None)
        if os.path.exists(self._pid_file(name)):
            os.unlink(self._pid_file(name))

    def end_all(self):
        """At once: all are signalled before the first is waited for."""
        for name in self.names():
            self.get(name).send(signal.SIGKILL)
        for name in self.names():
            self.end(name)

    def _pid_file(self, name):
        return os.path.join(self.folder, f"{name}.pid")
