# SPDX-License-Identifier: Apache-2.0
"""What a disk has after a power cut: a folder made anew from what forgetful_disk.cc has kept.

`Disk(library, folder)` is a folder on a disk that forgets. Programs that run in its `environment` sync
to it; after they were killed, all at once, `cut()` puts what was synced in the place of what there is.
With `loses_folders` nothing is kept of folders that are synced: the control.
"""
import os
import shutil
import subprocess
from collections import namedtuple


class Disk:
    def __init__(self, library, folder, loses_folders=False):
        self.folder = folder
        os.mkdir(folder)
        beside = folder + ".disk"
        self._kept = os.path.join(beside, "kept")
        os.makedirs(self._kept)
        if loses_folders:
            with open(os.path.join(beside, "loses-folders"), "w", encoding="utf-8"):
                pass
        self.environment = {"LD_PRELOAD": shutil.copy(library, beside)}

    def cut(self):
        """Returns the names of what is gone, below the folder: what was there and is not any more."""
        before = list(_entries(self.folder))
        made = self.folder + ".made"
        os.mkdir(made)
        self._make(self._names_kept(before[0].known), made)
        shutil.rmtree(self.folder)
        os.rename(made, self.folder)
        self._begin_anew()
        return sorted({entry.path for entry in before} - {entry.path for entry in _entries(self.folder)})

    def _names_kept(self, known):
        """Kind, which it is, and name of each entry; of a folder that nobody has synced none."""
        try:
            with open(os.path.join(self._kept, known), encoding="utf-8") as file:
                return [line.rstrip("\n").split(" ", 2) for line in file]
        except FileNotFoundError:
            return []

    def _make(self, entries, at):
        for kind, known, name in entries:
            path = os.path.join(at, name)
            if kind == "d":
                os.mkdir(path, 0o700)
                self._make(self._names_kept(known), path)
            elif kind == "f":
                kept = os.path.join(self._kept, known)
                # A name without content: what was written was never synced.
                shutil.copyfile(kept if os.path.exists(kept) else os.devnull, path)
                os.chmod(path, 0o600)
            elif kind == "p":
                os.mkfifo(path, 0o600)
            else:
                raise AssertionError(f"{path}: neither a file, a folder nor a FIFO: nothing is known of such here")

    def _begin_anew(self):
        """What is there now is on the disk, whoever syncs what next."""
        shutil.rmtree(self._kept)
        os.mkdir(self._kept)
        for entry in _entries(self.folder):
            path, kept = os.path.join(self.folder, entry.path), os.path.join(self._kept, entry.known)
            if entry.path:
                with open(os.path.join(self._kept, entry.parent), "a", encoding="utf-8") as file:
                    file.write(f"{entry.kind} {entry.known} {os.path.basename(entry.path)}\n")
            if entry.kind == "f":
                shutil.copyfile(path, kept)


KINDS = {"directory": "d", "regular file": "f", "regular empty file": "f", "fifo": "p"}
Entry = namedtuple("Entry", "known kind path parent")


def _entries(folder):
    """The folder and all below it, folders before what is in them."""
    listed = subprocess.run(["find", folder, "-exec", "stat", "--printf", "%i %.9W %F\t%n\n", "{}", "+"],
                            capture_output=True, text=True, check=True)
    known = {}
    for line in listed.stdout.splitlines():
        facts, _, path = line.partition("\t")
        inode, born, kind = facts.split(" ", 2)
        seconds, _, fraction = born.partition(".")
        path = os.path.relpath(path, folder).removeprefix(".")
        known[path] = f"{inode}.{seconds}.{int(fraction)}"
        yield Entry(known[path], KINDS[kind], path, known[os.path.dirname(path)])
