"""Reads the promises of a server (server/shard_log/promise_file.h) from its data directory."""

import struct

MAGIC = b"HOTBDPRM"
VERSION = 2


def read(path):
    """{(table, shard): epoch}; a missing file holds none."""
    try:
        with open(path, "rb") as file:
            data = file.read()
    except FileNotFoundError:
        return {}
    version, count = struct.unpack_from("<II", data, 8)
    if data[:8] != MAGIC or version != VERSION:
        raise RuntimeError(f"{path} is no promise file of version {VERSION} ({len(data)} bytes)")
    promises = {}
    at = 16
    for _ in range(count):
        shard, epoch, holders = struct.unpack_from("<QQI", data, at)
        promises[(shard >> 32, shard & 0xffffffff)] = epoch
        at += 20 + 8 * holders
    # Behind the checksum stands what each file ends with that must not be replaced by an older one (common/files/kept_file.h).
    if len(data) != at + 4 + 24:
        raise RuntimeError(f"{path} holds {count} promises in {at} bytes, and is {len(data)} bytes long")
    return promises


class PromiseWatch:
    """Promises on disk never fall from one look to the next."""

    def __init__(self):
        self.seen = {}  # (server, shard) -> epoch

    def look(self, server, path):
        """The error, or nothing."""
        wrong = []
        for shard, epoch in read(path).items():
            before = self.seen.get((server, shard), 0)
            if epoch < before:
                wrong.append(f"{server}: the promise of shard {shard[0]}/{shard[1]} fell from {before} to {epoch}")
            self.seen[(server, shard)] = max(before, epoch)
        held = read(path)
        for (name, shard), epoch in self.seen.items():
            if name == server and shard not in held:
                wrong.append(f"{server}: the promise of shard {shard[0]}/{shard[1]}, {epoch}, is gone")
        return wrong


def below_records(server, path, shards, table_ids):
    """Promises lower than the epoch of an active record that names `server` as a member: each member makes its own before it acts
    on an epoch, and an epoch is active only after all members did. `shards` as `shard list` tells them."""
    promises = read(path)
    wrong = []
    for shard in shards:
        table, _, index = shard["shard"].rpartition("/")
        promised = promises.get((table_ids[table], int(index)), 0)
        if shard["active"] and server in shard["members"] and promised < shard["epoch"]:
            wrong.append(f"{server} promised epoch {promised} of shard {shard['shard']}, which is active in {shard['epoch']}")
    return wrong
