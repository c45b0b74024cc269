"""Bad input for open ports: HTTP, HTTP/2 frames, protobuf, TLS; from many addresses, as nobody means it well. Standard library only."""

import os
import random
import select
import socket
import ssl
import struct
import time

import hostile

# Refused as one that nobody has opened, so that no load is disturbed as its owner could disturb it.
SESSION = 0x5A5A5A5A5A5A5A5A
PATHS = [f"/hotbed.v1.{service}/{method}" for service, methods in (
    ("Data", "Pull Push Lookup"), ("Changes", "ListRows ReadChanges ReadRows RowLife"), ("Checkpoints", "WatchSave WatchRestore ReadFiles ChangeFiles"),
    ("Replica", "Transfer"),
    ("Coordinator", "GetClusterMap WatchClusterMap AlterTable OpenSession Train ListTrainers Attend ListMoves ListEvents "
                    "ActivateShards CommitCut"),
    ("Nothing", "Nothing")) for method in methods.split()] + ["/grpc.health.v1.Health/Check", "/", "", "x" * 300]
PAGES = ["/", "/metrics", "/healthz", "/readyz", "/statusz", "/api/status", "/api/cluster", "/console", "/%00", "/../../etc/passwd"]
EXTREMES = [b"\0\0\0\0", b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff", b"\x80\0\0\0", b"\xff" * 10, b"\x80" * 12]


def mutated(chance, data):
    """`data` with a few bytes flipped, lost, doubled or replaced."""
    data = bytearray(data)
    for _ in range(chance.choice((0, 1, 1, 2, 4, 16))):
        at = chance.randrange(len(data) + 1)
        kind = chance.randrange(6)
        if kind == 0 and at < len(data):
            data[at] ^= 1 << chance.randrange(8)
        elif kind == 1:
            del data[at:]
        elif kind == 2:
            del data[at:at + chance.randrange(1, 9)]
        elif kind == 3:
            data[at:at] = chance.randbytes(chance.randrange(1, 20))
        elif kind == 4:
            data[at:at] = data[at:at + chance.randrange(1, 200)]
        else:
            extreme = chance.choice(EXTREMES)
            data[at:at + len(extreme)] = extreme
    return bytes(data)


def body(chance, table):
    """A message of some method, well formed or nearly so."""
    shard, epoch, first = chance.randrange(8), chance.choice((1, 2, 3, chance.getrandbits(64))), chance.getrandbits(10)
    made = chance.choice((
        lambda: hostile.lookup(table, shard, epoch, first, chance.randrange(200)),
        lambda: hostile.push(table, shard, epoch, first, 16, SESSION, SESSION, step=chance.getrandbits(44)),
        lambda: hostile.push(table, shard, epoch, first, 16, SESSION, SESSION, commit=chance.getrandbits(44)),
        lambda: hostile.forgeries_of_peer("cluster", table, shard, chance.randrange(4), (chance.randrange(4), 1))[0][1],
        lambda: hostile.forgeries_of_coordinator(table, shard, [chance.getrandbits(60)])[chance.randrange(4)][1],
        lambda: chance.randbytes(chance.randrange(300)),
        lambda: b""))()
    return mutated(chance, made)


def frames(chance, table):
    """A connection's bytes after the preface: calls, and frames that are none."""
    out, stream = hostile.frame(hostile.SETTINGS, 0, 0), 1
    for _ in range(chance.randrange(1, 12)):
        if chance.random() < 0.6:
            message = hostile.message(body(chance, table))
            out += hostile.frame(hostile.HEADERS, hostile.END_HEADERS, stream, hostile.headers(chance.choice(PATHS)[:120]))
            for at in range(0, len(message), 16384):
                out += hostile.frame(hostile.DATA, 0 if at + 16384 < len(message) else chance.choice((0, 1)), stream, message[at:at + 16384])
            stream += 2
        else:
            out += hostile.frame(chance.randrange(12), chance.randrange(256), chance.choice((0, 1, stream, chance.getrandbits(31))),
                                 chance.randbytes(chance.choice((0, 1, 4, 5, 6, 8, 9, 100, 5000))))
    return mutated(chance, out) if chance.random() < 0.7 else out


def grpc(chance, table):
    kind = chance.randrange(8)
    if kind == 0:
        return chance.randbytes(chance.choice((1, 9, 24, 1000, 60_000)))
    if kind == 1:
        return mutated(chance, hostile.PREFACE) + frames(chance, table)
    if kind == 2:
        return http(chance)
    return hostile.PREFACE + frames(chance, table)


def http(chance):
    head = f"{chance.choice(('GET', 'HEAD', 'POST', 'PUT', 'X' * 999, ''))} {chance.choice(PAGES)} HTTP/{chance.choice(('1.1', '1.0', '2', 'x'))}\r\n"
    for _ in range(chance.choice((0, 1, 3, 200))):
        name = chance.choice(("Host", "Accept", "Authorization", "Content-Length", "Transfer-Encoding", "User-Agent", "X" * 500))
        head += f"{name}: {chance.choice(('', 'x', '-1', '99999999999999999999', 'chunked', 'Basic !!', 'Bearer x', '*/*', 'y' * 9000))}\r\n"
    whole = head.encode() + chance.choice((b"\r\n", b"\n\n", b"", b"\0", b"\r\n" + b"z" * 5000))
    return mutated(chance, whole) if chance.random() < 0.6 else whole


def client_hello():
    """What a client of TLS sends first."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_alpn_protocols(["h2"])
    arrives, leaves = ssl.MemoryBIO(), ssl.MemoryBIO()
    try:
        context.wrap_bio(arrives, leaves).do_handshake()
    except ssl.SSLWantReadError:
        pass
    return leaves.read()


class Fuzzer:
    """Sends bad input to one port, one connection after the other."""

    def __init__(self, seed, kind, address, table, contexts=()):
        """`kind`: grpc, or http. `contexts`: of TLS, one of which a connection has, or none; empty: the port is plaintext."""
        self.chance = random.Random(seed)
        self.make = (lambda: grpc(self.chance, table)) if kind == "grpc" else lambda: http(self.chance)
        host, port = address.rsplit(":", 1)
        self.address, self.contexts = (host, int(port)), contexts
        self.hello = client_hello()
        self.connections = self.refused = 0

    def run(self, seconds):
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            try:
                self.once()
                self.connections += 1
            except (OSError, ValueError):  # ended by the other side, as it may be
                self.refused += 1
        return self.connections, self.refused

    def once(self):
        chance = self.chance
        # Limits per address must not be what keeps the port up.
        source = f"127.{chance.randrange(1, 250)}.{chance.randrange(250)}.{chance.randrange(1, 250)}"
        with socket.create_connection(self.address, timeout=5, source_address=(source, 0)) as plain:
            if chance.random() < 0.1:
                plain.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # reset at the end
            if not self.contexts:
                return self.talk(plain)
            kind = chance.randrange(6)
            if kind == 0:
                return self.talk(plain)  # not TLS at all
            if kind == 1:
                return self.talk(plain, self.hello[:chance.randrange(len(self.hello))])
            if kind == 2:
                return self.talk(plain, mutated(chance, self.hello))
            if kind == 3:  # records of TLS that are none
                return self.talk(plain, self.hello + struct.pack(">BHH", chance.choice((20, 21, 22, 23, 99)), 0x0303, chance.getrandbits(14)) +
                                 chance.randbytes(chance.randrange(500)))
            with chance.choice(self.contexts).wrap_socket(plain) as encrypted:
                return self.talk(encrypted)

    def talk(self, connection, data=None):
        data = self.make() if data is None else data
        cut = self.chance.randrange(len(data) + 1) if self.chance.random() < 0.3 else 0
        connection.settimeout(2)
        connection.sendall(data[:cut])
        connection.sendall(data[cut:])
        until = time.monotonic() + self.chance.choice((0, 0, 0.01, 0.05))
        while (left := until - time.monotonic()) > 0 and select.select([connection], [], [], left)[0]:
            connection.settimeout(left)
            if not connection.recv(1 << 16):
                break


def hold(name, seed, kind, address, table, contexts, seconds, results):
    """In a process of its own."""
    os.nice(5)
    fuzzer = Fuzzer(seed, kind, address, table, contexts)
    results.put((name, *fuzzer.run(seconds)))
