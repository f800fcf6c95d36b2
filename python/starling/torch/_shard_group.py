# SPDX-License-Identifier: Apache-2.0
"""Processes that are one member together: each holds a part of the model, which FSDP2 has cut.

    group = starling.shard_group(2)               # before all else; the script runs twice from here on
    fully_shard(model)                            # over the group's processes
    loader = starling.elastic(loader, model, optimizer, group=group)

The process that the job has started is the member. It starts the others with the same command and speaks for
all of them: other members do not see that it is several. They live and die together: where one ends, all do,
and the job starts the member again. What the library reads and writes (state, gradients) lies in memory that
all of them share, whole, each parameter in its own shape; each process moves its rows between there and what
FSDP2 has made (_sharded.py). So the job's model is that of a program without a group. All members have groups of
one size, for sums over parts are rounded by their number; one with another is not let in.

At a boundary, and where gradients are summed, all of them meet: the first asks the library, and the others are
given its answer (First, Follower).
"""
from __future__ import annotations

import ctypes
import json
import mmap
import os
import runpy
import signal
import subprocess
import sys
import threading
import types
from multiprocessing.connection import Connection, Pipe
from typing import Any, NoReturn, Sequence

import torch
import torch.distributed

import starling.embed
from starling.embed import _library
from starling.embed._library import BAD_INPUT, CStep, Library, LoopError
from starling.torch._batches import split

_TOLD = "STARLING_SHARD_GROUP"  # what the first process tells those that it starts
_FOLLOW = "from starling.torch._shard_group import follow; follow()"
_SET_DEATH_SIGNAL = 1  # prctl's
_FIELDS = [one[0] for one in CStep._fields_ if one[0] != "ids"]


class Arena:
    """Memory that all processes of the group have: whoever asks for the same pieces in the same order is given
    the same ones."""

    def __init__(self, file: int) -> None:
        self._file = file
        self._end = 0

    def memory(self, shape: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
        """Zeros at first."""
        elements = 1
        for one in shape:
            elements *= one
        if elements == 0:
            return torch.zeros(tuple(shape), dtype=dtype)
        size = elements * torch.empty((), dtype=dtype).element_size()
        begin = self._end
        pages = -(-size // mmap.ALLOCATIONGRANULARITY)
        self._end += pages * mmap.ALLOCATIONGRANULARITY
        os.posix_fallocate(self._file, begin, self._end - begin)
        piece = mmap.mmap(self._file, size, offset=begin)
        return torch.frombuffer(piece, dtype=dtype, count=elements).view(tuple(shape))


Sums = dict[int, tuple[float, float]]  # by metric: what was logged in a step, and its count


def _add(sums: Sums, metric: int, total: float, count: float) -> None:
    before = sums.get(metric, (0.0, 0.0))
    sums[metric] = before[0] + total, before[1] + count


class _Part:
    """What First and Follower have alike: a member's share cut for the processes of its group."""

    def __init__(self, rank: int, size: int) -> None:
        self.rank = rank
        self.size = size
        self.whole = 0   # samples of the member in the step at hand
        self._mine: Any = None
        self._sums: Sums = {}
        self._means: dict[int, float] = {}
        self._flat = torch.empty(0)

    def cut(self, ids: Sequence[int]) -> tuple[int, ...]:
        return split(ids, self.size)[self.rank]

    def use(self, flat: torch.Tensor) -> None:
        """Where all of them put their gradients, and find the sums."""
        self._flat = flat

    def _give(self, found: CStep, values: Sequence[int], ids: Sequence[int]) -> None:
        """The step as the library has told it, with this process's part of its samples."""
        for name, value in zip(_FIELDS, values):
            setattr(found, name, value)
        self.whole = len(ids)
        mine = self.cut(ids)
        self._mine = (ctypes.c_int64 * len(mine))(*mine)
        found.ids = ctypes.cast(self._mine, ctypes.POINTER(ctypes.c_int64))
        found.count = len(mine)
        found.position += self.rank * len(ids) // self.size

    def ready(self, bucket: int) -> None:
        """They leave together, when all processes have theirs."""

    def log(self, metric: int, value: float) -> None:
        count = len(self._mine) if self._mine is not None else 0
        if count > 0:
            _add(self._sums, metric, value * count, count)

    def mean(self, metric: int) -> float:
        if metric not in self._means:
            raise LoopError(_library.MISUSE, "nothing was logged under this name in the step at hand")
        return self._means[metric]


class First(_Part):
    """The library, for the process that the job has started."""

    def __init__(self, library: Library, followers: "list[_Started]") -> None:
        super().__init__(0, len(followers) + 1)
        self._library = library
        self._followers = followers
        self._buckets: list[int] = []
        self._over = False
        for one in followers:
            threading.Thread(target=self._answer_calls, args=(one.calls,), daemon=True).start()
            threading.Thread(target=self._watch, args=(one,), daemon=True).start()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._library, name)  # what the first process alone does

    def add_bucket(self, elements: int) -> None:
        self._buckets.append(elements)
        self._library.add_bucket(elements)

    def portions(self, step: int, rank: int, members: int) -> list[list[int]]:
        return [list(self.cut(ids)) for ids in self._library.portions(step, rank, members)]

    def start(self) -> None:
        self._gathered("start")
        self._library.start()
        self._answer(None)

    def next(self, found: CStep) -> int:
        self._gathered("next")
        code = self._library.next(found)
        ids = found.ids[:found.count] if code == _library.OK else []
        values = [getattr(found, name) for name in _FIELDS]
        self._over = code != _library.OK
        self._answer((code, values, ids))
        self._give(found, values, ids)
        return code

    def reduce(self, weight: float) -> int:
        sums, self._sums = self._sums, {}
        for told in self._gathered("reduce"):
            for metric, (total, count) in told.items():
                _add(sums, metric, total, count)
        logged = {metric: total / count for metric, (total, count) in sums.items()}
        for metric, mean in logged.items():
            self._library.log(metric, mean)
        outcome = self._exchange(weight)
        committed = outcome == _library.COMMITTED
        self._means = {metric: self._library.mean(metric) for metric in logged} if committed else {}
        self._answer((outcome, self._means))
        return outcome

    def _exchange(self, weight: float) -> int:
        address, elements = self._library.gradients()
        size = 4
        place = self._flat.data_ptr()
        begin = 0
        for bucket, length in enumerate(self._buckets):
            ctypes.memmove(address + begin * size, place + begin * size, length * size)
            self._library.ready(bucket)
            begin += length
        outcome = self._library.reduce(weight)
        if outcome == _library.COMMITTED:
            ctypes.memmove(place, address, elements * size)
        return outcome

    def close(self) -> None:
        """The others have come to their end first: it is with this process that the member ends."""
        for one in self._followers:
            one.process.wait()
        self._library.close()

    # The others.

    def _gathered(self, what: str) -> list[Any]:
        told = []
        for one in self._followers:
            try:
                where, content = one.steps.recv()
            except (EOFError, OSError):
                self._end_with(one)
            if where != what:
                _end(f"process {one.rank} of the group is at {where} where the first one is at {what}: all of "
                     "them must run the same loop")
            told.append(content)
        return told

    def _answer(self, content: Any) -> None:
        for one in self._followers:
            one.steps.send(content)

    def _answer_calls(self, calls: Connection) -> None:
        try:
            while True:
                name, arguments = calls.recv()
                found = getattr(self._library, name)(*arguments)
                calls.send((found.rank, found.members) if name == "view" else found)
        except (EOFError, OSError):
            return
        except LoopError as error:
            _end(str(error))

    def _watch(self, follower: "_Started") -> None:
        code = follower.process.wait()
        if not self._over:
            self._end_with(follower)
        if code != 0:  # the model is there, and it is this process that writes it
            print(f"starling: {follower.fate()} after training", file=sys.stderr, flush=True)

    @staticmethod
    def _end_with(follower: "_Started") -> NoReturn:
        follower.process.wait()
        _end(f"{follower.fate()}, and the others with it")


class Follower(_Part):
    """The library, for the other processes of a group: what the first one says."""

    def __init__(self, rank: int, size: int, steps: Connection, calls: Connection) -> None:
        super().__init__(rank, size)
        self._steps = steps
        self._calls = calls
        self._spec = str(self._steps.recv())

    def _together(self, what: str, content: Any = None) -> Any:
        try:
            self._steps.send((what, content))
            return self._steps.recv()
        except (EOFError, OSError):
            os._exit(1)  # the first one has ended, and this process is ended too

    def _call(self, name: str, *arguments: int) -> Any:
        self._calls.send((name, arguments))
        return self._calls.recv()

    def spec(self) -> str:
        return self._spec

    def start(self) -> None:
        self._together("start")

    def next(self, found: CStep) -> int:
        code, values, ids = self._together("next")
        self._give(found, values, ids)
        return int(code)

    def reduce(self, weight: float) -> int:
        outcome, self._means = self._together("reduce", self._sums)
        self._sums = {}
        return int(outcome)

    def order(self, step: int, rank: int, members: int) -> list[int]:
        return list(self._call("order", step, rank, members))

    def portions(self, step: int, rank: int, members: int) -> list[list[int]]:
        return [list(self.cut(ids)) for ids in self._call("portions", step, rank, members)]

    def view(self) -> Any:
        rank, members = self._call("view")
        return types.SimpleNamespace(rank=rank, members=members)

    def _nothing(self, *_: Any) -> None:
        """The first process says it."""

    set_samples = set_end = set_identity = add_metric = add_state = add_bucket = _nothing
    leave = close = abandon = _nothing


class _Started:
    """A process that the first one has started."""

    def __init__(self, rank: int, size: int, arena: int, port: int, spec: str) -> None:
        self.rank = rank
        self.steps, steps = Pipe()
        self.calls, calls = Pipe()
        told = {"rank": rank, "size": size, "arena": arena, "port": port, "steps": steps.fileno(),
                "calls": calls.fileno(), "parent": os.getpid()}
        self.process = subprocess.Popen(
            [sys.executable, "-c", _FOLLOW, *starling.embed._command], env={**os.environ, _TOLD: json.dumps(told)},
            pass_fds=(arena, steps.fileno(), calls.fileno()))
        steps.close()
        calls.close()
        self.steps.send(spec)

    def fate(self) -> str:
        """Of one that has ended, for people."""
        code = self.process.returncode
        how = f"by signal {-code}" if code < 0 else f"with exit code {code}"
        return f"process {self.rank} of the group has ended {how}"


class ShardGroup:
    """The processes of a member, and this one's place among them."""

    def __init__(self, library: "First | Follower", arena: Arena) -> None:
        self.library = library
        self.memory = arena.memory

    @property
    def rank(self) -> int:
        """This process's number, from 0."""
        return self.library.rank

    @property
    def size(self) -> int:
        return self.library.size


def _end(message: str) -> NoReturn:
    """The whole group: others of the job see its connections close."""
    sys.stdout.flush()
    print(f"starling: {message}", file=sys.stderr, flush=True)
    os._exit(1)


def _meet(rank: int, size: int, store: Any) -> None:
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    torch.distributed.init_process_group("gloo", store=store, rank=rank, world_size=size)


def shard_group(processes: int) -> ShardGroup:
    """Makes this member so many processes, which run the same script, and torch.distributed's default process
    group of them (gloo). To be called before anything that takes time; once."""
    if processes < 1:
        raise ValueError(f"shard_group({processes}): a member has at least one process")
    if not _has_fully_shard():
        raise RuntimeError(f"shard_group() is for fully_shard (FSDP2), which PyTorch {torch.__version__} does not "
                           "have; 2.6 and later ones do")
    told = os.environ.get(_TOLD)
    if told is not None:
        return _join(json.loads(told))
    if not starling.embed._opened:
        raise LoopError(BAD_INPUT, "no job has started this program: run it by spec.workload.pytorch")
    library = starling.embed._opened.pop()
    store = torch.distributed.TCPStore("127.0.0.1", 0, processes, is_master=True, wait_for_workers=False)
    arena = os.memfd_create("starling-shard-group")
    followers = [_Started(rank, processes, arena, store.port, library.spec()) for rank in range(1, processes)]
    group = ShardGroup(First(library, followers), Arena(arena))
    _meet(0, processes, store)
    return group


def _has_fully_shard() -> bool:
    try:
        from torch.distributed.fsdp import fully_shard  # noqa: F401
    except ImportError:
        return False
    return True


def _join(told: dict[str, int]) -> ShardGroup:
    library = Follower(told["rank"], told["size"], Connection(told["steps"]), Connection(told["calls"]))
    store = torch.distributed.TCPStore("127.0.0.1", told["port"], told["size"], is_master=False,
                                       wait_for_workers=False)
    _meet(told["rank"], told["size"], store)
    return ShardGroup(library, Arena(told["arena"]))


def follow() -> None:
    """Runs the member's script in a process that the first one has started: `-c` and the command."""
    ctypes.CDLL(None).prctl(_SET_DEATH_SIGNAL, signal.SIGKILL)
    if os.getppid() != json.loads(os.environ[_TOLD])["parent"]:
        sys.exit(1)
    # The first process is asked to leave, and lets the others go.
    signal.signal(signal.SIGTERM, lambda *_: None)
    sys.argv = sys.argv[1:]
    sys.path[0] = os.path.dirname(os.path.abspath(sys.argv[0]))
    runpy.run_path(sys.argv[0], run_name="__main__")
