# SPDX-License-Identifier: Apache-2.0
"""Runs a program that trains by DiLoCo with what a test wants of it beside.

usage: diloco_victim.py --await N --tell FOLDER [--die POD STEP@POINT]... [--hold STEP N] [--without WHAT]...
                        PROGRAM ARGUMENT...

--die kills a process of that pod with -9, once, in that outer step: before its second inner step (inner),
when some of what it contributes has left (exchange), or when the step counts and it has changed nothing
yet (applied). --without leaves out what makes the loop right. Each member says what it has contributed to
every outer step; --tell writes what those who have come to the end hold. Nobody begins before so many processes
are ready, and with --hold nobody goes on in that outer step.
"""
import glob
import os
import runpy
import signal
import sys
import time

import starling.embed._library
import starling.torch._batches
import starling.torch._diloco
import starling.torch._outer_loop
from say import say

LOADERS = []


def once(pod, step, point):
    """A function that kills this process, once in all lives of the pod."""
    mark = os.path.join(os.path.dirname(os.environ["STARLING_MODEL"]), f"killed-{pod}-{step}-{point}")

    def kill():
        if not os.path.exists(mark):
            with open(mark, "w", encoding="utf-8"):
                os.kill(os.getpid(), signal.SIGKILL)
    return kill


def await_counted(folder):
    """Until the step at hand counts at all members: who has its sum first may be alone with it."""
    step = LOADERS[0]._step
    while len(glob.glob(f"{folder}-counted-{step.number}-*")) < step.members:
        time.sleep(0.01)
    return True


def die(pod, where, folder):
    step, _, point = where.partition("@")
    if sys.orig_argv[sys.orig_argv.index("--pod-name") + 1] != pod:
        return
    kill = once(pod, step, point)
    owner, name, due = {
        "inner": (starling.torch._batches.Batches, "take", lambda step, piece: piece.part == 1),
        "exchange": (starling.embed._library.Library, "ready", lambda bucket: bucket == 1),
        "applied": (starling.torch._diloco.Outer, "step", lambda work, whole: await_counted(folder)),
    }[point]
    inner = getattr(owner, name)

    def deadly(self, *arguments, **options):
        if LOADERS[0].step == int(step) and due(*arguments, **options):
            kill()
        return inner(self, *arguments, **options)
    setattr(owner, name, deadly)


def leave_out(what):
    outer = starling.torch._diloco.Outer
    reduce, move = outer.reduce, outer.step
    if what == "momentum":
        part = starling.torch._diloco._Part.step
        starling.torch._diloco._Part.step = lambda self, mean, how: part(
            self, mean, starling.torch._diloco.DiLoCo(how.inner_steps, how.outer_lr, 0.0))
    elif what == "weights":
        outer.reduce = lambda self, weight, made: reduce(self, min(weight, 1.0), made)
    elif what == "left":
        outer.step = lambda self, work, whole: move(self, work, True)
    else:
        sys.exit(f"nothing is called {what}")


def await_ready(folder, members):
    while len(glob.glob(f"{folder}-ready-*")) < members:
        time.sleep(0.02)


def hold(folder, step, members):
    take = starling.torch._batches.Batches.take

    def held(self, at, piece):
        if at.number == step:
            await_ready(folder, members)
        return take(self, at, piece)
    starling.torch._batches.Batches.take = held


def note_loaders(folder, members):
    inner = starling.torch._outer_loop.OuterLoader.__init__

    def init(self, *parts, **options):
        inner(self, *parts, **options)
        LOADERS.append(self)
        with open(f"{folder}-ready-{os.getpid()}", "w", encoding="utf-8"):
            pass
        await_ready(folder, members)
    starling.torch._outer_loop.OuterLoader.__init__ = init


def say_contributions(folder):
    reduce = starling.torch._diloco.Outer.reduce

    def noted(self, weight, made):
        step = LOADERS[0]._step
        said = {"step": step.number, "view": step.view, "finishes": LOADERS[0]._finishes(step)}
        # Before it: where others have the sum and this one has not, its part in it counts all the same.
        say(**said, made=[made.start, made.stop])
        counts = reduce(self, weight, made)
        if counts:
            say(**said, counts=True)
            with open(f"{folder}-counted-{step.number}-{os.getpid()}", "w", encoding="utf-8"):
                pass
        return counts
    starling.torch._diloco.Outer.reduce = noted


def main():
    words = sys.argv[1:]
    members, folder = int(words[1]), words[3]
    say_contributions(folder)
    note_loaders(folder, members)
    words = words[4:]
    while words[0].startswith("--"):
        flag = words.pop(0)
        if flag == "--die":
            die(words.pop(0), words.pop(0), folder)
        elif flag == "--hold":
            hold(folder, int(words.pop(0)), int(words.pop(0)))
        else:
            leave_out(words.pop(0))
    sys.argv = words
    runpy.run_path(words[0], run_name="__main__")
    outer = LOADERS[0]._outer
    outer.take()
    with open(os.path.join(folder, str(os.getpid())), "w", encoding="utf-8") as file:
        file.write(f"{outer.digest().hex()} {len(outer.left)}")


if __name__ == "__main__":
    main()
