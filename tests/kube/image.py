#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Builds the project's image from its Dockerfile without a Docker engine and without a registry.

usage: image.py [--compile [--cache FOLDER] [--jobs N]] [--tag IMAGE] [--bin FOLDER] ARCHIVE

The base image is made by debootstrap under the name that the Dockerfile gives it; buildah does the
rest. The layers of base and run-time libraries stay in a storage of their own in the cache folder,
so that every further image takes seconds. Programs are those in --bin (build/release/bin), unless
--compile asks for the Dockerfile's own build, which takes what it can from a compiler cache if
--cache names one (ccache's folder). ARCHIVE is written in Docker's format.
"""
import argparse
import contextlib
import fcntl
import os
import shutil
import subprocess
import tempfile
import zipfile

from programs import CACHE, REPOSITORY, Skip, need_command, run_main

BASE = "docker.io/library/debian:bookworm-slim"
IMAGE = "docker.io/library/starling:dev"
PAUSE = "docker.io/library/starling-pause:dev"
PROGRAMS = ["starling", "starling-controller", "starling-coordinator", "starling-server",
            "starling-worker", "starling-supervisor", "libstarling_engine.so"]
LIBRARY = "libstarling_embed.so"  # of the Python package, which travels as its wheel


class Builder:
    def __init__(self):
        if os.geteuid() != 0:
            raise Skip("images are built as root")
        self._buildah_path = need_command("buildah", "buildah")
        self._storage = os.path.join(CACHE, "images")
        os.makedirs(self._storage, exist_ok=True)

    @contextlib.contextmanager
    def locked(self):
        """One builder at a time."""
        with open(os.path.join(CACHE, "images.lock"), "w", encoding="utf-8") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield

    def build(self, tag, bin_folder, archive, version="0.1.0-dev"):
        """The project's image with programs that are compiled already."""
        missing = [name for name in [*PROGRAMS, LIBRARY]
                   if not os.path.exists(os.path.join(bin_folder, name))]
        if missing:
            raise Skip(f"{bin_folder} lacks {', '.join(missing)}; run make build")
        with self.locked(), tempfile.TemporaryDirectory(prefix="starling-image-") as context:
            self._ensure_base()
            os.mkdir(os.path.join(context, "bin"))
            for name in PROGRAMS:
                shutil.copy(os.path.join(bin_folder, name), os.path.join(context, "bin", name))
            # Names of functions stay: a hung process tells by them where it stands.
            subprocess.run(["strip", "--strip-debug",
                            *(os.path.join(context, "bin", name) for name in PROGRAMS)],
                           check=False)
            self._unpack_wheel(bin_folder, context)
            shutil.copytree(os.path.join(REPOSITORY, "crds"), os.path.join(context, "crds"))
            shutil.copytree(os.path.join(REPOSITORY, "examples/data"),
                            os.path.join(context, "examples/data"))
            self._bud(context, tag, "--build-arg=PROGRAMS=ready", f"--build-arg=VERSION={version}")
            self._archive(tag, archive)

    @staticmethod
    def _unpack_wheel(bin_folder, context):
        made = _run([os.path.join(REPOSITORY, "python/wheel.sh"), bin_folder, f"{context}/dist"])
        with zipfile.ZipFile(made.strip()) as wheel:
            wheel.extractall(os.path.join(context, "python"))

    def compile(self, tag, archive, cache=None, jobs=None):
        """The project's image, everything compiled by the Dockerfile."""
        mounted = [f"--volume={os.path.abspath(cache)}:/root/.cache/ccache"] if cache else []
        with self.locked():
            self._ensure_base()
            # buildah looks for the stages that are needed before it gives arguments their defaults.
            self._bud(REPOSITORY, tag, "--build-arg=PROGRAMS=compiled",
                      f"--build-arg=JOBS={jobs or os.cpu_count()}", *mounted)
            self._archive(tag, archive)

    def pause(self, archive):
        """The image of a pod's sandbox: a static program that waits."""
        with self.locked(), tempfile.TemporaryDirectory(prefix="starling-pause-") as context:
            source = os.path.join(os.path.dirname(os.path.abspath(__file__)), "pause.c")
            subprocess.run(["gcc", "-Os", "-static", "-s", "-o", f"{context}/pause", source],
                           check=True)
            with open(f"{context}/Dockerfile", "w", encoding="utf-8") as file:
                file.write('FROM scratch\nCOPY pause /pause\nENTRYPOINT ["/pause"]\n')
            self._buildah("bud", "--quiet", "--tag", PAUSE, context)
            self._archive(PAUSE, archive)

    def build_other(self, dockerfile, context, tag, archive):
        """Somebody else's image, from a Dockerfile of theirs over the same base."""
        self._ensure_base()
        self._buildah("bud", "--pull-never", "--isolation=chroot", "--layers", "--format=docker",
                      "--file", dockerfile, "--tag", tag, context)
        self._archive(tag, archive)

    def _bud(self, context, tag, *flags):
        self._buildah("bud", "--pull-never", "--isolation=chroot", "--layers", "--format=docker",
                      "--file", os.path.join(REPOSITORY, "Dockerfile"),
                      "--ignorefile", os.path.join(REPOSITORY, ".dockerignore"),
                      f"--build-arg=REVISION={_revision()}", *flags, "--tag", tag, context)

    def _archive(self, tag, archive):
        if os.path.exists(archive):
            os.unlink(archive)
        self._buildah("push", "--quiet", tag, f"docker-archive:{archive}:{tag}")

    def _ensure_base(self):
        if self._buildah("images", "--quiet", BASE, check=False).strip():
            return
        debootstrap = need_command("debootstrap", "debootstrap")
        with tempfile.TemporaryDirectory(prefix="starling-base-") as folder:
            root = os.path.join(folder, "root")
            _run([debootstrap, "--variant=minbase", "bookworm", root])
            # As in the image of that name on a registry.
            for folder in ("var/cache/apt/archives", "var/lib/apt/lists", "usr/share/doc",
                           "usr/share/man", "usr/share/locale"):
                shutil.rmtree(os.path.join(root, folder))
            os.makedirs(os.path.join(root, "var/cache/apt/archives/partial"))
            os.makedirs(os.path.join(root, "var/lib/apt/lists/partial"))
            container = self._buildah("from", "scratch").strip()
            try:
                self._buildah("add", "--quiet", container, root, "/")
                self._buildah("config", "--cmd=bash", container)
                self._buildah("commit", "--quiet", container, BASE)
            finally:
                self._buildah("rm", container)

    def _buildah(self, *arguments, check=True):
        # In a mount namespace and with a run root of its own: whatever it leaves mounted ends with it.
        with tempfile.TemporaryDirectory(prefix="starling-buildah-") as run_root:
            return _run(["unshare", "--mount", self._buildah_path, "--root", self._storage,
                         "--runroot", run_root, "--storage-driver=overlay", *arguments], check)


def _run(command, check=True):
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                          check=False)
    if check and done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)} failed:\n{(done.stdout + done.stderr)[-4000:]}")
    return done.stdout


def _revision():
    return _run(["git", "-C", REPOSITORY, "rev-parse", "HEAD"], check=False).strip() or "unknown"


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--cache", metavar="FOLDER")
    parser.add_argument("--jobs", type=int, metavar="N")
    parser.add_argument("--tag", default=IMAGE)
    parser.add_argument("--bin", default=os.path.join(REPOSITORY, "build/release/bin"))
    parser.add_argument("archive")
    options = parser.parse_args()
    builder = Builder()
    if options.compile:
        builder.compile(options.tag, options.archive, options.cache, options.jobs)
    else:
        builder.build(options.tag, options.bin, options.archive)
    return 0


if __name__ == "__main__":
    run_main(main)
