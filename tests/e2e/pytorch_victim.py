# SPDX-License-Identifier: Apache-2.0
"""Runs a PyTorch program of a job with what a test wants of it beside.

usage: pytorch_victim.py [--die POD STEP] [--without WHAT]... [--tell FOLDER] PROGRAM ARGUMENT...

--die kills the first process of that pod with -9 in the middle of that step's backward pass (STEP/2: of
the second that it makes of that step), when some of its gradients have left and others have not. --without leaves out what makes the loop right. --tell writes
who has ended with which parameters.
"""
import hashlib
import os
import runpy
import signal
import sys

import starling.torch._batches
import starling.torch._gradients
import starling.torch._loop
import starling.torch._reproducible
import starling.torch._state

LOADERS = []


def die(pod, step):
    write = starling.torch._gradients.Gradients._write
    begin = starling.torch._gradients.Gradients.begin
    mine = sys.orig_argv[sys.orig_argv.index("--pod-name") + 1] == pod
    step, _, turn = step.partition("/")
    begun_steps = []

    def count(self, parts):
        begin(self, parts)
        begun_steps.append(LOADERS[0].step)

    def deadly(self, place):
        write(self, place)
        begun = sum(one.written for one in self._places) > 1 and place.bucket >= min(1, self._last - 1)
        first = mine and os.environ.get("STARLING_POD_START") == "1"
        if first and begun and begun_steps[-1:] == [int(step)] and \
                begun_steps.count(int(step)) == int(turn or 1):
            os.kill(os.getpid(), signal.SIGKILL)

    starling.torch._gradients.Gradients.begin = count
    starling.torch._gradients.Gradients._write = deadly


def leave_out(what):
    # In the first step that is lost: the learning rate's schedule has one step to spare.
    lost = []
    first = os.environ.get("STARLING_POD_START") == "1"
    if what == "weights":
        begin = starling.torch._gradients.Gradients.begin_part
        starling.torch._gradients.Gradients.begin_part = lambda self, weight: begin(self, 1.0)
    elif what == "restoring":
        restore = starling.torch._state.State.restore

        def forget(self):
            if lost or not first:
                restore(self)
            lost.append(True)
        starling.torch._state.State.restore = forget
    elif what == "seeds":
        starling.torch._reproducible.sow = lambda *what: None
    elif what == "scaler":
        text = starling.torch._state.Text.__init__
        starling.torch._state.Text.__init__ = lambda self, *parts: text(self, *parts[:2], [])
    elif what == "averages":
        starling.torch._state.Modules.restore = lambda self: None
    elif what == "dropping":
        # A step that was lost is taken all the same, with this member's own gradients.
        take = starling.torch._gradients.Gradients._take

        def keep(self):
            if self.committed:
                take(self)
            elif first and not lost:
                lost.append(True)
                self.committed = True
        starling.torch._gradients.Gradients._take = keep
    else:
        sys.exit(f"nothing is called {what}")


def note_loaders():
    inner = starling.torch._loop.Loader.__init__

    def init(self, library, loader, model, *others):
        inner(self, library, loader, model, *others)
        self.model = model
        LOADERS.append(self)
    starling.torch._loop.Loader.__init__ = init


def tell(folder):
    digest = hashlib.sha256()
    for value in LOADERS[0].model.state_dict().values():
        digest.update(value.numpy().tobytes())
    with open(os.path.join(folder, str(os.getpid())), "w", encoding="utf-8") as file:
        file.write(f"{digest.hexdigest()} {LOADERS[0]._batches.thrown_away}")


def main():
    words = sys.argv[1:]
    folder = None
    note_loaders()
    while words[0].startswith("--"):
        flag = words.pop(0)
        if flag == "--die":
            die(words.pop(0), words.pop(0))
        elif flag == "--without":
            leave_out(words.pop(0))
        else:
            folder = words.pop(0)
    sys.argv = words
    runpy.run_path(words[0], run_name="__main__")
    if folder is not None:
        tell(folder)


if __name__ == "__main__":
    main()
