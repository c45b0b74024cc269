"""Reads a checkpoint without Hotbed, by docs/checkpoints.md alone: {table: {id: (weights, state)}}, columns joined."""

import ctypes
import json
import os
import struct

import numpy as np

TABLE = [0] * 256
for byte in range(256):
    crc = byte
    for _ in range(8):
        crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    TABLE[byte] = crc


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc = TABLE[(crc ^ byte) & 255] ^ crc >> 8
    return crc ^ 0xFFFFFFFF


def check(data, crc, what):
    if crc32c(data) != crc:
        raise ValueError(f"{what}: the checksum does not match")


def read_manifest(folder):
    with open(os.path.join(folder, "manifest.json"), "rb") as file:
        first, body = file.read().split(b"\n", 1)
    check(body, int(json.loads(first)["crc32c"], 16), "manifest.json")
    manifest = json.loads(body)
    if manifest["format"] not in (1, 2):
        raise ValueError(f"format {manifest['format']}, this reads 1 and 2")
    return manifest


def unpack(packed, size):
    """A zstd frame of all first bytes of groups of four, then all second ones, and so on; and what is left."""
    plain = ctypes.create_string_buffer(size)
    zstd = ctypes.CDLL("libzstd.so.1")
    zstd.ZSTD_decompress.restype = ctypes.c_size_t
    if zstd.ZSTD_decompress(plain, ctypes.c_size_t(size), packed, ctypes.c_size_t(len(packed))) != size:
        raise ValueError("a block cannot be decompressed")
    grouped = size // 4 * 4
    return np.frombuffer(plain.raw[:grouped], "u1").reshape(4, -1).T.tobytes() + plain.raw[grouped:]


def read_rows(path, index_crc):
    """{id: (weights, state)} of one file, as bytes."""
    with open(path, "rb") as file:
        data = file.read()
    magic, version, _, weight_bytes, payload_bytes, _, crc = struct.unpack_from("<8s6I", data)
    check(data[:28], crc, path)
    if magic != b"HOTBDROW" or version not in (1, 2):
        raise ValueError(f"{path}: {magic} {version}")
    offset, size, crc, end = struct.unpack_from("<QII8s", data, len(data) - 24)
    if end != b"HOTBDEND" or crc != index_crc:
        raise ValueError(f"{path}: not the file of the manifest")
    check(data[offset:offset + size], crc, path)
    rows = {}
    for at, length, crc, kind, _, count, _, _, _ in struct.iter_unpack("<QIIIIIIQQ", data[offset:offset + size]):
        check(data[at + 4:at + length], crc, path)
        if kind != 1:  # sessions
            continue
        block = data[at + 16:at + length]
        if data[at + 12] == 1:
            block = unpack(block, count * (8 + payload_bytes))
        ids = np.frombuffer(block, "<u8", count).tolist()
        for i, row in enumerate(ids):  # in order of passes: a later row replaces an earlier one
            payload = block[8 * count + i * payload_bytes:8 * count + (i + 1) * payload_bytes]
            rows[row] = (payload[:weight_bytes], payload[weight_bytes:])
    return rows


def read_shard(folder, manifest, table, shard):
    """{id: (weights, state)}; where the file has changed rows only, the parent has the others."""
    rows = {}
    if int(shard["above_lsn"]) != 0:
        parent = os.path.join(os.path.dirname(folder), manifest["parent"])
        found = read_manifest(parent)
        old = next(t for t in found["tables"] if t["spec"]["name"] == table)
        for one in old["shards"]:
            overlaps = (int(one["range_first"]) < int(shard["range_limit"]) and
                        int(shard["range_first"]) < int(one["range_limit"]))
            if overlaps and one["column_first"] == shard["column_first"]:
                rows.update(read_shard(parent, found, table, one))
        rows = {row: value for row, value in rows.items() if in_range(row, old["spec"]["hashed"], shard)}
    rows.update(read_rows(os.path.join(folder, shard["file"]), shard["index_crc"]))
    return rows


def in_range(row, hashed, shard):
    if hashed:  # the bucket of the id
        x = (row + 0x9E3779B97F4A7C15) % 2**64
        x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9 % 2**64
        x = (x ^ x >> 27) * 0x94D049BB133111EB % 2**64
        row = (x ^ x >> 31) >> 48
    return int(shard["range_first"]) <= row < int(shard["range_limit"])


def read(folder):
    tables, manifest = {}, read_manifest(folder)
    for table in manifest["tables"]:
        name = table["spec"]["name"]
        rows = tables.setdefault(name, {})
        for shard in table["shards"]:  # all of the first column slice, then all of the second
            for row, (weights, state) in read_shard(folder, manifest, name, shard).items():
                before = rows.get(row, (b"", b""))
                rows[row] = (before[0] + weights, before[1] + state)
    return tables
