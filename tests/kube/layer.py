# SPDX-License-Identifier: Apache-2.0
"""An image that differs by some files from one that the nodes have: only its last layer is made and
sent, as a registry would, in seconds and not in the minute that a whole image takes.

    layer.add(cluster, IMAGE, "docker.io/library/starling:next", {"usr/local/bin/x": "/path/of/x"})
"""
import hashlib
import io
import json
import os
import tarfile
import tempfile

from node import SOCKET

CTR = ("ctr", "--address", SOCKET, "--namespace", "k8s.io")


def add(cluster, base, name, files):
    """Gives the image `name`, which is `base` with those files (by path in it), to both nodes."""
    node = next(iter(cluster.nodes.values()))
    listed = node.run(*CTR, "images", "list", f"name=={base}").splitlines()
    manifest = json.loads(node.run(*CTR, "content", "get", listed[1].split()[2]))
    config = json.loads(node.run(*CTR, "content", "get", manifest["config"]["digest"]))
    layer = _tar({path: _read(source) for path, source in files.items()})
    config["rootfs"]["diff_ids"].append(_digest(layer))
    config.get("history", []).append({"created_by": "tests/kube/layer.py"})
    config = json.dumps(config).encode()
    manifest["config"] = _described(config, manifest["config"]["mediaType"])
    manifest["layers"].append(_described(layer, manifest["layers"][-1]["mediaType"]))
    manifest = json.dumps(manifest).encode()
    kind = json.loads(manifest).get("mediaType", "application/vnd.oci.image.manifest.v1+json")
    index = {"schemaVersion": 2, "manifests": [{
        **_described(manifest, kind), "annotations": {"io.containerd.image.name": name}}]}
    blobs = {f"blobs/sha256/{_digest(blob).partition(':')[2]}": blob
             for blob in (layer, config, manifest)}
    with tempfile.TemporaryDirectory(prefix="starling-layer-") as folder:
        archive = os.path.join(folder, "layer.tar")
        with open(archive, "wb") as file:
            file.write(_tar({"oci-layout": b'{"imageLayoutVersion":"1.0.0"}',
                             "index.json": json.dumps(index).encode(), **blobs}))
        cluster.load(archive)


def _read(path):
    with open(path, "rb") as file:
        return file.read()


def _tar(files):
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for path, content in files.items():
            entry = tarfile.TarInfo(path)
            entry.size, entry.mode = len(content), 0o755
            tar.addfile(entry, io.BytesIO(content))
    return buffer.getvalue()


def _digest(blob):
    return "sha256:" + hashlib.sha256(blob).hexdigest()


def _described(blob, media_type):
    return {"mediaType": media_type, "digest": _digest(blob), "size": len(blob)}
