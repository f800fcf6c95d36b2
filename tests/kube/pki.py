# SPDX-License-Identifier: Apache-2.0
"""The certificates of a test cluster: one authority, whatever it signs, and kubeconfig files."""
import base64
import json
import os
import subprocess
import threading

from programs import need_command


class Authority:
    """A certificate authority in a folder; what exists there already is kept. Thread-safe."""

    def __init__(self, folder):
        self.folder = folder
        self._lock = threading.Lock()
        self._openssl_path = need_command("openssl", "openssl")
        os.makedirs(folder, mode=0o700, exist_ok=True)
        if not os.path.exists(self.certificate("ca")):
            self._openssl("req", "-x509", *self._new_key("ca"), "-subj", "/CN=starling-test-ca",
                          "-addext", "keyUsage=critical,keyCertSign,digitalSignature",
                          "-days", "30", "-out", self.certificate("ca"))

    def certificate(self, name):
        return os.path.join(self.folder, f"{name}.crt")

    def key(self, name):
        return os.path.join(self.folder, f"{name}.key")

    def issue(self, name, subject, addresses=(), names=()):
        """A certificate for both ends, `subject` as openssl has it: /O=system:masters/CN=admin."""
        with self._lock:
            if not os.path.exists(self.certificate(name)):
                self._issue(name, subject, addresses, names)

    def _issue(self, name, subject, addresses, names):
        extensions = ["-addext", "extendedKeyUsage=serverAuth,clientAuth",
                      "-addext", "basicConstraints=critical,CA:FALSE"]
        alternatives = [f"IP:{item}" for item in addresses] + [f"DNS:{item}" for item in names]
        if alternatives:
            extensions += ["-addext", "subjectAltName=" + ",".join(alternatives)]
        self._openssl("req", "-x509", *self._new_key(name), "-CA", self.certificate("ca"), "-CAkey",
                      self.key("ca"), "-subj", subject, *extensions, "-days", "30",
                      "-out", self.certificate(name))

    def key_pair(self, name):
        """A bare key, for service account tokens: NAME.key and NAME.pub."""
        public = os.path.join(self.folder, f"{name}.pub")
        if not os.path.exists(public):
            self._openssl("ecparam", "-name", "prime256v1", "-genkey", "-noout",
                          "-out", self.key(name))
            self._openssl("ec", "-in", self.key(name), "-pubout", "-out", public)
        return public

    def kubeconfig(self, path, server, name):
        """A kubeconfig for the holder of the certificate `name`; returns its path."""
        with self._lock:
            if not os.path.exists(path):
                self._write_kubeconfig(path, server, name)
        return path

    def _write_kubeconfig(self, path, server, name):
        config = {
            "apiVersion": "v1", "kind": "Config", "current-context": "starling",
            "clusters": [{"name": "starling", "cluster": {
                "server": server, "certificate-authority-data": self._data(self.certificate("ca"))}}],
            "users": [{"name": name, "user": {
                "client-certificate-data": self._data(self.certificate(name)),
                "client-key-data": self._data(self.key(name))}}],
            "contexts": [{"name": "starling", "context": {
                "cluster": "starling", "user": name, "namespace": "default"}}]}
        with open(path, "w", encoding="utf-8", opener=_private) as file:
            json.dump(config, file, indent=1)

    def _new_key(self, name):
        return ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-noenc",
                "-keyout", self.key(name))

    def _openssl(self, *arguments):
        done = subprocess.run([self._openssl_path, *arguments], capture_output=True, text=True,
                              check=False)
        if done.returncode != 0:
            raise RuntimeError(f"openssl {' '.join(arguments)} failed:\n{done.stderr}")

    @staticmethod
    def _data(path):
        with open(path, "rb") as file:
            return base64.b64encode(file.read()).decode()


def _private(path, flags):
    return os.open(path, flags, 0o600)
