# SPDX-License-Identifier: Apache-2.0
"""One STARLING_HOME for one test: starts the real programs in it, looks at them, kills them.

Whatever a test leaves running is found by its environment (STARLING_HOME) and ended by pid, and
leaving anything is a failure. Nothing here sleeps for luck: until() polls a condition with a
deadline.
"""
import glob
import hashlib
import json
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections import namedtuple

REPOSITORY = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BIN = os.environ.get("STARLING_BIN", os.path.join(REPOSITORY, "build/release/bin"))
DATA = os.path.join(REPOSITORY, "examples/data")

Process = namedtuple("Process", "pid parent program command")


def until(holds, timeout, what):
    """Returns the first true value of holds(), asked again and again until the deadline. The pause
    is as long as the question took: many ask by a process, and must not take the cores from what
    they wait for."""
    deadline = time.monotonic() + timeout
    while True:
        asked = time.monotonic()
        value = holds()
        if value:
            return value
        now = time.monotonic()
        if now > deadline:
            raise AssertionError(f"not within {timeout} s: {what() if callable(what) else what}")
        time.sleep(min(max(0.02, now - asked), 0.5))


def read(path, default=""):
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return default


def sha256(path):
    with open(path, "rb") as file:
        return hashlib.sha256(file.read()).hexdigest()


def process_state(pid):
    """One letter, as in ps; none if there is no such process."""
    return "".join(read(f"/proc/{pid}/stat").rpartition(")")[2].split()[:1])


def is_running(pid):
    return process_state(pid) not in ("", "Z", "X")


def is_stopped(pid):
    return process_state(pid) == "T"


def kill(pid, number=signal.SIGKILL):
    """Whether there was such a process."""
    try:
        os.kill(pid, number)
        return True
    except ProcessLookupError:
        return False


class Command:
    """A starling command in the background, its output in files."""

    def __init__(self, home, arguments):
        self._home = home
        self.arguments = arguments
        self._outputs = [tempfile.TemporaryFile("w+"), tempfile.TemporaryFile("w+")]
        self.process = subprocess.Popen(
            [home.program("starling"), *arguments], stdin=subprocess.DEVNULL,
            stdout=self._outputs[0], stderr=self._outputs[1], env=home.environment,
            cwd=home.folder, start_new_session=True)

    @property
    def pid(self):
        return self.process.pid

    def running(self):
        return self.process.poll() is None

    def signal(self, number):
        self.process.send_signal(number)

    def _read(self, which):
        self._outputs[which].seek(0)
        return self._outputs[which].read()

    @property
    def stdout(self):
        return self._read(0)

    @property
    def stderr(self):
        return self._read(1)

    def wait(self, timeout):
        """The exit code, negative for a signal."""
        try:
            return self.process.wait(timeout)
        except subprocess.TimeoutExpired as error:
            raise AssertionError(f"{self.describe()} has not ended within {timeout} s:\n"
                                 f"{self.tail()}\n{self._home.describe()}") from error

    def close(self):
        self.process.wait()
        for output in self._outputs:
            output.close()

    def describe(self):
        return "starling " + " ".join(self.arguments)

    def tail(self):
        return (self.stdout + self.stderr)[-3000:]

    def result(self):
        """The final object, which is the last line of stdout with -o json."""
        lines = self.stdout.strip().splitlines()
        assert lines, f"{self.describe()} printed nothing on stdout:\n{self.stderr[-3000:]}"
        return json.loads(lines[-1])


class Home:
    def __init__(self):
        self.folder = os.path.realpath(tempfile.mkdtemp(prefix="starling-e2e-"))
        self.home = os.path.join(self.folder, "home")
        self.environment = {name: value for name, value in os.environ.items()
                            if not name.startswith(("STARLING_", "XDG_"))}
        self.environment["STARLING_HOME"] = self.home
        self.commands = []

    @staticmethod
    def program(name):
        return os.path.join(BIN, name)

    # Commands.

    def start(self, *arguments):
        command = Command(self, [str(argument) for argument in arguments])
        self.commands.append(command)
        return command

    def run(self, *arguments, timeout=60, code=0):
        """Runs a command to its end; `code` is the exit code that it must have (None: any)."""
        command = self.start(*arguments)
        got = command.wait(timeout)
        assert code is None or got == code, (
            f"{command.describe()} exited with {got}, not {code}:\n{command.tail()}")
        return command

    def write(self, name, content):
        path = os.path.join(self.folder, name)
        with open(path, "wb") as file:
            if isinstance(content, bytes):
                file.write(content)
            else:
                file.write((content if isinstance(content, str) else json.dumps(content)).encode())
        return path

    # What there is.

    def get(self, *arguments):
        """An object or list, by `starling get ... -o json`; None if there is no such object."""
        command = self.start("get", *arguments, "-o", "json")
        if command.wait(30) != 0:
            return None
        return json.loads(command.stdout)

    def job(self, name="digits"):
        return self.get("job", name)

    def pods(self):
        found = self.get("pods")
        return {pod["metadata"]["name"]: pod for pod in (found or {}).get("items", [])}

    def condition(self, kind, name="digits"):
        job = self.job(name) or {}
        for condition in job.get("status", {}).get("conditions", []):
            if condition["type"] == kind:
                return condition["status"] == "True"
        return False

    def state(self, name="digits"):
        return (self.job(name) or {}).get("status", {}).get("state")

    def pod_pid(self, pod):
        """The first process of a running pod; None while it has none."""
        found = self.get("pods", pod)
        if found is None or found.get("status", {}).get("phase") != "Running":
            return None
        pid = int(found["metadata"].get("annotations", {}).get("starling.dev/pid", 0))
        return pid if pid and is_running(pid) else None

    def await_pod(self, pod, timeout=30):
        return until(lambda: self.pod_pid(pod), timeout, lambda: f"{pod} runs\n{self.describe()}")

    def role_pid(self, pod):
        """The role's process, child of the pod's first one."""
        first = self.pod_pid(pod)
        roles = [process.pid for process in self.processes() if process.parent == first]
        return roles[0] if first and roles else None

    def job_folder(self, name="digits"):
        """Of the newest job of that name."""
        folders = glob.glob(f"{self.home}/jobs/default/{name}-????????")
        return max(folders, key=os.path.getmtime) if folders else None

    def audit(self, name="digits"):
        """The audit's lines so far; a last line that is still being written does not count."""
        return [json.loads(line) for lines in self._audit_files(name) for line in lines]

    def steps(self, name="digits"):
        """The audit's last step so far."""
        lines = [lines[-1] for lines in self._audit_files(name) if lines]
        return json.loads(lines[-1])["step"] if lines else 0

    def _audit_files(self, name):
        folder = self.job_folder(name)
        for path in sorted(glob.glob(f"{folder}/audit/*.jsonl")) if folder else []:
            yield [line for line in read(path).split("\n")[:-1] if line]

    def await_step(self, step, name="digits", timeout=120, command=None):
        def reached():
            assert command is None or command.running(), (
                f"{command.describe()} ended before step {step}:\n{command.tail()}")
            return self.steps(name) >= step
        until(reached, timeout, lambda: f"step {step} of {name} at {self.steps(name)}\n"
              + self.describe())

    def processes(self):
        """All processes of this home: they carry its path in their environment or arguments. But for
        the keepers of their memory, which end a moment after them."""
        return [process for task, process in self._tasks() if task != "memory-keeper"]

    def keepers(self, pod):
        """Who keeps the memory of a pod's role."""
        role = self.role_pid(pod)
        return [process.pid for task, process in self._tasks()
                if task == "memory-keeper" and process.parent == role]

    def _tasks(self):
        """Of this home, with their names."""
        mark = self.home.encode()
        own = {command.pid for command in self.commands}
        for entry in os.listdir("/proc"):
            if not entry.isdigit() or int(entry) == os.getpid():
                continue
            try:
                with open(f"/proc/{entry}/environ", "rb") as file:
                    environment = file.read()
                with open(f"/proc/{entry}/cmdline", "rb") as file:
                    command = file.read()
            except OSError:
                continue
            is_ours = any(variable == b"STARLING_HOME=" + mark
                          for variable in environment.split(b"\0")) or mark in command
            if not is_ours or not is_running(int(entry)):
                continue
            words = command.decode(errors="replace").split("\0")
            name, _, numbers = read(f"/proc/{entry}/stat").rpartition(")")
            stat = numbers.split()
            if not stat:
                continue
            program = "starling" if int(entry) in own else os.path.basename(words[0])
            yield name.partition("(")[2], Process(int(entry), int(stat[1]), program, " ".join(words))

    def controllers(self):
        return [process.pid for process in self.processes()
                if process.program == "starling-controller"]

    # Endings.

    def kill_everything(self):
        """kill -9 of the whole tree, the command first, so that nobody restarts anybody; whom somebody
        started in his last moment too."""
        order = {"starling": 0, "starling-controller": 1}

        def none_is_left():
            found = sorted(self.processes(), key=lambda item: order.get(item.program, 2))
            for process in found:
                kill(process.pid)
            return not found
        until(none_is_left, 10, "killed processes end")

    def assert_nothing_runs(self, timeout=15):
        until(lambda: not self.processes(), timeout,
              lambda: "no process is left behind:\n" +
              "\n".join(f"  {item.pid} {item.command}" for item in self.processes()))

    def describe(self, lines=15):
        """What a failed test needs: processes and the last lines of every log."""
        parts = [f"home {self.home}"]
        parts += [f"  {item.pid} {item.command}" for item in self.processes()]
        logs = glob.glob(f"{self.home}/jobs/*/*/pods/*/log") + glob.glob(f"{self.home}/*.log")
        for path in sorted(logs):
            parts.append(f"--- {os.path.relpath(path, self.home)}")
            parts += read(path).splitlines()[-lines:]
        return "\n".join(parts)

    def close(self):
        """Ends what is left, by pid."""
        for _ in range(100):
            running = self.processes()
            if not running:
                break
            for process in running:
                kill(process.pid)
            time.sleep(0.02)
        for command in self.commands:
            command.close()
        if not os.environ.get("STARLING_E2E_KEEP"):
            shutil.rmtree(self.folder, ignore_errors=True)
