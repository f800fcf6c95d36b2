# SPDX-License-Identifier: Apache-2.0
"""Reads TensorBoard's event files with nothing but Python's standard library: records with their
checksums, and of the messages what scalars take."""
import glob
import os
import struct
from collections import namedtuple

Scalar = namedtuple("Scalar", "tag step value time file")

CASTAGNOLI = 0x82F63B78
VERSION = "brain.Event:2"


def _table():
    entries = []
    for value in range(256):
        for _ in range(8):
            value = (value >> 1) ^ (CASTAGNOLI if value & 1 else 0)
        entries.append(value)
    return entries


TABLE = _table()


def masked(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc = TABLE[(crc ^ byte) & 0xFF] ^ (crc >> 8)
    crc ^= 0xFFFFFFFF
    return (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF


def records(path):
    """The bytes of each record; one that is not whole ends the file, a wrong checksum is an error."""
    with open(path, "rb") as file:
        data = file.read()
    at = 0
    while at + 12 <= len(data):
        length, checksum = struct.unpack_from("<QI", data, at)
        assert checksum == masked(data[at:at + 8]), f"{path}: wrong checksum of a length at {at}"
        if at + 16 + length > len(data):
            return
        content = data[at + 12:at + 12 + length]
        (checksum,) = struct.unpack_from("<I", data, at + 12 + length)
        assert checksum == masked(content), f"{path}: wrong checksum of a record at {at}"
        yield content
        at += 16 + length


def varint(data, at):
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        shift += 7
        if not byte & 0x80:
            return value, at


def fields(data):
    """Number and value of each field of a protobuf message."""
    at = 0
    while at < len(data):
        key, at = varint(data, at)
        number, kind = key >> 3, key & 7
        if kind == 0:
            value, at = varint(data, at)
        elif kind == 1:
            value, at = struct.unpack_from("<d", data, at)[0], at + 8
        elif kind == 5:
            value, at = struct.unpack_from("<f", data, at)[0], at + 4
        else:
            length, at = varint(data, at)
            value, at = data[at:at + length], at + length
        yield number, value


def scalars(folder):
    """Of all event files below a run's folder, in the order in which TensorBoard reads them."""
    found = []
    for path in sorted(glob.glob(os.path.join(folder, "events.out.tfevents.*"))):
        for index, content in enumerate(records(path)):
            event = dict(fields(content))
            if index == 0:
                assert event[3].decode() == VERSION, f"{path}: {event}"
                continue
            for number, value in fields(event.get(5, b"")):
                assert number == 1, f"{path}: field {number} in a summary"
                scalar = dict(fields(value))
                found.append(Scalar(scalar[1].decode(), event.get(2, 0), scalar[2],
                                    event[1], os.path.basename(path)))
    return found
