# SPDX-License-Identifier: Apache-2.0
"""Strangers: what somebody with the credentials of another job gets at the ports of this one.

    strangers.speak(address, 7071, folder)      # b"": tls.crt and tls.key there are refused
    strangers.shake_hands(address, key, uid)    # (False, None): neither believes the other

Each check here has a counterpart that shows that it can fail: the job's own credentials are heard.
"""
import hashlib
import hmac
import os
import socket
import ssl
import struct

DATA_PORT = 7072
# Roles, and the port at which each listens to control.
CONTROL = {"coordinator": 7070, "worker": 7071, "parameter-server": 7071}
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0\4\0\0\0\0\0"  # and empty settings
WRONG_MEMBER = 3
TIMEOUT = 10


def speak(address, port, folder):
    """What a gRPC server says first to the holder of these certificates; b"" if it refuses."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE  # it is the server's refusal that counts
    context.set_alpn_protocols(["h2"])
    if folder:
        context.load_cert_chain(f"{folder}/tls.crt", f"{folder}/tls.key")
    try:
        with socket.create_connection((address, port), timeout=TIMEOUT) as plain, \
                context.wrap_socket(plain) as connection:
            connection.sendall(PREFACE)
            return connection.recv(9)
    except (ssl.SSLError, ConnectionError):
        return b""


def babble(address):
    """All that the data plane answers to what is no Hello."""
    with socket.create_connection((address, DATA_PORT), timeout=TIMEOUT) as connection:
        connection.sendall(b"x" * 4096)
        return _read(connection, 1 << 20)


def shake_hands(address, key, uid):
    """Dials the data plane of a job's member as trainer/transport/handshake.h says, with that key,
    for the job of that UID: (whether it proved that it knows this key, what it answered to our
    proof). It is asked for a member of another name, so that its own job's key too gets an answer,
    WRONG_MEMBER, and no link; None: it hung up."""
    secret = hmac.digest(key, f"starling data plane, job {uid}".encode(), hashlib.sha256)
    hello = (b"STRLNG-2" + struct.pack("<QQ", 1, 0) + os.urandom(32) + b"stranger".ljust(128, b"\0")
             + b"nobody".ljust(128, b"\0"))
    with socket.create_connection((address, DATA_PORT), timeout=TIMEOUT) as connection:
        connection.sendall(hello)
        challenge = _read(connection, 64)
        said = hello + challenge[:32]
        proved = challenge[32:] == hmac.digest(secret, b"acceptor\0" + said, hashlib.sha256)
        connection.sendall(hmac.digest(secret, b"dialer\0" + said, hashlib.sha256))
        verdict = _read(connection, 48)
        return proved, struct.unpack("<Q", verdict[:8])[0] if verdict else None


def _read(connection, count):
    """So many bytes, or those that come before the other side closes."""
    got = b""
    while len(got) < count:
        try:
            piece = connection.recv(count - len(got))
        except ConnectionError:
            break
        if not piece:
            break
        got += piece
    return got
