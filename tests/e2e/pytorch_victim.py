# SPDX-License-Identifier: Apache-2.0
"""Runs a PyTorch program of a job with what a test wants of it beside.

usage: pytorch_victim.py [--die POD STEP]... [--without WHAT]... [--wait MEMBERS] [--tell FOLDER]
                         PROGRAM ARGUMENT...

--die kills a process of that pod with -9, once, in the middle of that step's backward pass, when some of its
gradients have left and others have not, or of the first step behind it that it is there for; STEP/2: of the second that
it makes of that step; STEP@POINT: at another point (POINTS). --without leaves out what makes the loop right. --wait makes steps from the tenth on
slow until there are so many members. --tell writes who has ended with which parameters.
"""
import hashlib
import os
import runpy
import signal
import sys
import time

import starling.torch._batches
import starling.torch._collective
import starling.torch._device
import starling.torch._gradients
import starling.torch._loop
import starling.torch._reproducible
import starling.torch._state

LOADERS = []


# By name: whose method it is, and whether it has done its work then.
POINTS = {
    "forward": (starling.torch._gradients.Gradients, "begin_part", True),
    "finish": (starling.torch._gradients.Gradients, "_finish", False),  # all gradients have left
    "applied": (starling.torch._gradients.Gradients, "_take", True),    # the sum is there
    "stepped": (starling.torch._loop.Loader, "_check_step", True),      # and the optimizer has stepped
    "boundary": (starling.torch._state.State, "gather", True),
    "collective": (starling.torch._collective.Collective, "_part", True),
}


def die(pod, where):
    where, _, point = where.partition("@")
    step, _, turn = where.partition("/")
    if sys.orig_argv[sys.orig_argv.index("--pod-name") + 1] != pod:
        return
    mark = os.path.join(os.path.dirname(os.environ["STARLING_MODEL"]), f"killed-{pod}-{step}-{point}")
    begin = starling.torch._gradients.Gradients.begin
    begun = []

    def count(self, parts):
        begin(self, parts)
        begun.append(LOADERS[0].step)
    starling.torch._gradients.Gradients.begin = count

    def kill_once():
        # On a busy machine it may come when others have made that step already.
        first = next((number for number in begun if number >= int(step)), None)
        due = first is not None and begun[-1] == first and begun.count(first) == int(turn or 1)
        if due and not os.path.exists(mark):
            with open(mark, "w", encoding="utf-8"):
                os.kill(os.getpid(), signal.SIGKILL)

    if point:
        kill_at(*POINTS[point], kill_once)
    else:
        kill_in_backward(kill_once)


def wait_for(members):
    begin = starling.torch._gradients.Gradients.begin

    def patient(self, parts):
        begin(self, parts)
        if LOADERS[0].step >= 10 and LOADERS[0]._step.members < members:
            time.sleep(2)
    starling.torch._gradients.Gradients.begin = patient


def kill_at(owner, name, done, kill_once):
    inner = getattr(owner, name)

    def deadly(self, *arguments):
        if not done:
            kill_once()
        found = inner(self, *arguments)
        if done:
            kill_once()
        return found
    setattr(owner, name, deadly)


def kill_in_backward(kill_once):
    write = starling.torch._gradients.Gradients._write

    def deadly(self, place):
        write(self, place)
        if sum(one.written for one in self._places) > 1 and place.bucket >= min(1, self._last - 1):
            kill_once()
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
    elif what == "again":
        # What a member has found in its part stays, though the parts are others.
        part = starling.torch._collective.Collective._part
        found = {}
        starling.torch._collective.Collective._part = lambda self, *what: found.setdefault(
            LOADERS[0].step, part(self, *what))
    elif what == "scaler":
        text = starling.torch._state.Text.__init__
        starling.torch._state.Text.__init__ = lambda self, *parts: text(self, *parts[:2], [])
    elif what == "refresh":
        # Copies of what lies on a device stay as they were at first.
        refresh = starling.torch._device.Copies.refresh

        def refresh_once(self):
            if not lost:
                refresh(self)
            lost.append(True)
        starling.torch._device.Copies.refresh = refresh_once
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
        digest.update(value.cpu().numpy().tobytes())
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
        elif flag == "--wait":
            wait_for(int(words.pop(0)))
        else:
            folder = words.pop(0)
    sys.argv = words
    runpy.run_path(words[0], run_name="__main__")
    if folder is not None:
        tell(folder)


if __name__ == "__main__":
    main()
