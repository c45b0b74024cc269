"""A peer that speaks HTTP/2 by hand, and so can do what gRPC's clients do not. Standard library only."""

import select
import socket
import struct
import time

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, RESET, SETTINGS, PING, WINDOW_UPDATE = 0, 1, 3, 4, 6, 8
END_STREAM, END_HEADERS = 1, 4
PUSH, LOOKUP = "/hotbed.v1.Data/Push", "/hotbed.v1.Data/Lookup"
GET_MAP = "/hotbed.v1.Coordinator/GetClusterMap"
FORGED = 2**64 - 1


def frame(kind, flags, stream, payload=b""):
    return struct.pack(">I", len(payload))[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + payload


def headers(path):
    """HPACK literals, neither indexed nor packed."""
    fields = [(":method", "POST"), (":scheme", "http"), (":path", path), (":authority", "x"),
              ("content-type", "application/grpc"), ("te", "trailers")]
    return b"".join(b"\0" + bytes([len(n)]) + n.encode() + bytes([len(v)]) + v.encode() for n, v in fields)


def message(body):
    return b"\0" + struct.pack(">I", len(body)) + body


def varint(value):
    out = b""
    while value >= 0x80:
        out += bytes([value & 0x7F | 0x80])
        value >>= 7
    return out + bytes([value])


def field(number, value):
    """A field of protobuf: a number, or bytes."""
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    return varint(number << 3 | 2) + varint(len(value)) + value


def lookup(table, shard, epoch, first, count):
    """A PullRequest for `count` rows of one shard, as fp32."""
    group = field(1, table) + field(2, shard) + field(3, epoch) + field(4, count)
    return field(1, field(4, group)) + field(2, struct.pack(f"<{count}Q", *range(first, first + count)))


def fixed(number, value):
    return varint(number << 3 | 1) + struct.pack("<Q", value)


def member(server, incarnation):
    return fixed(1, server) + field(2, incarnation)


def hello(cluster):
    return field(1, field(1, cluster.encode()) + field(2, 2) + field(3, 2))


def push(table, shard, epoch, row, dim, session, incarnation, step=1, commit=0):
    """A PushRequest for one row, all of its gradient ones; with `commit`, for the end of that step instead."""
    group = field(1, table) + field(2, shard) + field(3, epoch)
    group += field(13, 1) if commit else field(4, 1) + field(5, step) + field(6, 1) + field(8, 1)
    header = hello("") + field(4, group) + fixed(6, session) + field(7, incarnation)
    if commit:
        return field(1, header + field(20, field(1, commit) + field(2, struct.pack("<Q", session))))
    return field(1, header) + field(2, struct.pack("<Q", row)) + field(3, struct.pack("<f", 1.0) * dim)


FORGED_STEPS = (1, 2**43, 2**44 - 1, FORGED)


def forgeries_of_shard(table, shard, epoch, row, dim):
    """(path, message) for the primary of a shard: each has a number that nobody has given out."""
    out = []
    for session, incarnation in [(known, FORGED) for known in range(1, 17)] + [(FORGED, 1), (2**40, 2**40)]:
        out.append((PUSH, push(table, shard, epoch, row, dim, session, incarnation)))
        out.append((PUSH, push(table, shard, epoch, row, dim, session, incarnation, step=2**43)))
    for of_epoch in (epoch - 1, epoch + 1, FORGED):
        out.append((PUSH, push(table, shard, of_epoch, row, dim, 1, 1)))
        out.append((LOOKUP, lookup(table, shard, of_epoch, row, 1)))
    for step in FORGED_STEPS:
        out.append((PUSH, push(table, shard, epoch, row, dim, 1, 1, commit=step)))
    return out


def forgeries_of_peer(cluster, table, shard, server, to):
    """(path, message) in the name of `server`, for the process `to` (server, incarnation)."""
    item = field(1, 1) + fixed(2, table << 32 | shard) + field(3, FORGED) + field(4, member(*to)) + field(7, FORGED)
    begin = hello(cluster) + field(2, member(server, FORGED)) + field(3, item) + field(4, member(*to))
    return [("/hotbed.v1.Replica/Transfer", field(1, begin))]


def forgeries_of_coordinator(table, shard, servers):
    out = []
    for server in servers:
        of_server = fixed(1, server) + field(2, FORGED)
        epochs = field(3, fixed(1, table << 32 | shard) + field(2, FORGED))
        out.append(("/hotbed.v1.Coordinator/Attend", of_server + field(9, 1)))
        out.append(("/hotbed.v1.Coordinator/ActivateShards", of_server + epochs))
    for session in (1, FORGED):
        trainer = field(1, 1) + field(2, b"group") + field(3, b"name") + fixed(4, session) + field(5, FORGED)
        out.append(("/hotbed.v1.Coordinator/Train", trainer + field(6, 2**43) + field(12, 2**43)))
    return out


class Peer:
    """One connection. It keeps to the windows it is given, which are the only bound that the other side sets by itself. Its methods
    raise OSError when the other side has ended it."""

    def __init__(self, address):
        host, port = address.rsplit(":", 1)
        self.socket = socket.create_connection((host, int(port)), timeout=10)
        self.next_stream = 1
        self.read = b""
        self.answer = b""
        self.window = 65535         # bytes that may be sent, of all streams
        self.stream_window = 65535  # of a new stream
        self.windows = {}           # of those open
        self.socket.sendall(PREFACE + frame(SETTINGS, 0, 0))

    def close(self):
        self.socket.close()

    def next_frame(self, seconds):
        """(kind, flags, stream, payload), or None if none comes in time."""
        until = time.monotonic() + seconds
        while len(self.read) < 9 or len(self.read) < 9 + int.from_bytes(self.read[:3], "big"):
            if not select.select([self.socket], [], [], max(0.0, until - time.monotonic()))[0]:
                return None
            more = self.socket.recv(1 << 16)
            if not more:
                raise ConnectionResetError("ended by the other side")
            self.read += more
        length = int.from_bytes(self.read[:3], "big")
        kind, flags, stream = self.read[3], self.read[4], int.from_bytes(self.read[5:9], "big")
        payload, self.read = self.read[9:9 + length], self.read[9 + length:]
        if kind in (SETTINGS, PING) and not flags & 1:
            self.socket.sendall(frame(kind, 1, 0, payload if kind == PING else b""))
        if kind == SETTINGS:
            for at in range(0, len(payload) - 5, 6):
                if payload[at:at + 2] == b"\0\4":
                    change = int.from_bytes(payload[at + 2:at + 6], "big") - self.stream_window
                    self.stream_window += change
                    self.windows = {k: w + change for k, w in self.windows.items()}
        if kind == WINDOW_UPDATE:
            more = int.from_bytes(payload, "big")
            if stream == 0:
                self.window += more
            elif stream in self.windows:
                self.windows[stream] += more
        return kind, flags, stream, payload

    def begin(self, path):
        """A call; the number of its stream."""
        stream, self.next_stream = self.next_stream, self.next_stream + 2
        self.windows[stream] = self.stream_window
        self.socket.sendall(frame(HEADERS, END_HEADERS, stream, headers(path)))
        return stream

    def send(self, stream, data, seconds, flags=0):
        """As much as the windows allow in that time; how much."""
        until = time.monotonic() + seconds
        sent = 0
        while sent < len(data):
            while self.next_frame(0) is not None:
                pass
            room = min(self.window, self.windows[stream], 16384, len(data) - sent)
            if room > 0:
                last = sent + room == len(data)
                self.socket.sendall(frame(DATA, flags if last else 0, stream, data[sent:sent + room]))
                sent += room
                self.window -= room
                self.windows[stream] -= room
            elif time.monotonic() > until or self.next_frame(until - time.monotonic()) is None:
                break
        return sent

    def half_message(self, path, announced, sent, seconds):
        """A call whose message is never complete."""
        return self.send(self.begin(path), b"\0" + struct.pack(">I", announced) + bytes(sent), seconds)

    def resets(self, path, count):
        """Calls that are given up as soon as they have begun."""
        calls = []
        for _ in range(count):
            stream, self.next_stream = self.next_stream, self.next_stream + 2
            calls.append(frame(HEADERS, END_HEADERS, stream, headers(path)) + frame(DATA, 0, stream, message(b"")) +
                         frame(RESET, 0, stream, struct.pack(">I", 8)))
        self.socket.sendall(b"".join(calls))

    def ask(self, request):
        """A lookup whose answer may be read, or not; its stream."""
        return self.call(LOOKUP, request)

    def call(self, path, request):
        """A call with one message; its stream."""
        stream = self.begin(path)
        self.send(stream, message(request), 10, END_STREAM)
        return stream

    def await_answer(self, stream, seconds):
        """Reads until the stream ends; its bytes of DATA, the first of which are `answer`. None: not in time."""
        size = 0
        self.answer = b""
        until = time.monotonic() + seconds
        while True:
            got = self.next_frame(until - time.monotonic())
            if got is None:
                return None
            kind, flags, of, payload = got
            if kind == DATA:
                size += len(payload)
                self.answer = (self.answer + payload)[:1000]
                self.socket.sendall(frame(WINDOW_UPDATE, 0, 0, struct.pack(">I", max(1, len(payload)))))
            if of == stream and kind in (DATA, HEADERS) and flags & END_STREAM:
                del self.windows[stream]
                return size
