"""A client of Hotbed that speaks nothing but the messages of proto/: pulls and pushes with exactly-once, over kills of
servers, fail-overs, moves, cuts and merges. docs/wire.md describes the rules. It favours few lines over speed.

    protoc -I . --python_out=OUT proto/types.proto proto/data.proto proto/control.proto
    PYTHONPATH=OUT python3 examples/wire/hotbed_wire.py HOST:PORT TABLE    # pushes ones to three rows, prints them
"""

import bisect
import queue
import struct
import sys
import time

import grpc
from proto import control_pb2 as control
from proto import data_pb2 as data

WIRE_VERSION = 2
NUMBER_BITS = 20  # a sequence is step << 20 | number
ROWS_PER_NUMBER = 8  # of shards of at most NARROW columns; 1 of wider ones
NARROW = 126
FIRST_DELAY_S, LAST_DELAY_S, GAPS = 0.002, 0.25, (data.GAP, data.UNKNOWN_SESSION)
RETRIED = (data.RESOURCE_EXHAUSTED, data.READ_ONLY, data.UNAVAILABLE, data.DEADLINE_EXCEEDED, data.WRONG_EPOCH,
           data.UNKNOWN_SHARD, *GAPS)
MASK = (1 << 64) - 1


class Refused(Exception):
    """A refusal that no retry can help."""


class Lost(Exception):
    """A stream broke, and the server may or may not have acted on the request; or the map has a hole for a moment."""


def mix(id_):
    """The position of an id of a hashed table: a bijection of the 64-bit integers (docs/wire.md has test vectors)."""
    x = (id_ + 0x9E3779B97F4A7C15) & MASK
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & MASK
    return x ^ (x >> 31)


class Stream:
    """One stream of pulls or pushes to one server, with one message in flight."""

    def __init__(self, channel, method, request_type, reply_type, hello):
        self.requests, self.hello, self.number = queue.Queue(), hello, 0
        call = channel.stream_stream(f"/hotbed.v1.Data/{method}", request_serializer=request_type.SerializeToString,
                                     response_deserializer=reply_type.FromString)
        self.replies = call(iter(self.requests.get, None), wait_for_ready=False)

    def ask(self, message):
        self.number += 1
        message.header.request = self.number
        if self.number == 1:  # the first message of a stream says who speaks
            message.header.hello.CopyFrom(self.hello)
        self.requests.put(message)
        reply = next(self.replies, None)
        if reply is None:
            raise Lost("the server ended the stream")
        assert reply.header.request == self.number
        return reply

    def close(self):
        self.requests.put(None)
        self.replies.cancel()


class Table:
    def __init__(self, spec):
        self.spec = spec
        self.records = {}  # by index of the lane: that of its shard, with the lane's range

    def learn(self, record):
        """Takes the record for each lane of the shard unless a newer one is known; a shard not merged is one lane."""
        lanes = [(lane.index, lane.first, lane.limit) for lane in record.lanes]
        for index, first, limit in lanes or [(record.shard & 0xFFFFFFFF, record.range_first, record.range_limit)]:
            known = self.records.get(index)
            if known is None or (record.epoch, record.revision) > (known.epoch, known.revision):
                self.records[index] = type(record).FromString(record.SerializeToString())
                self.records[index].range_first, self.records[index].range_limit = first, limit

    def split(self, ids, columns=None):
        """{index of a lane: the ids that it holds}, of the slice that begins at `columns`; None: of every slice."""
        slices, shards = {}, {}
        for index, record in self.records.items():
            if columns in (None, record.column_first):
                slices.setdefault(record.column_first, []).append((record.range_limit, index))
        for ends in map(sorted, slices.values()):
            for id_ in ids:
                unit = mix(id_) >> 48 if self.spec.hashed else id_  # a bucket of 65,536, or the id itself
                at = bisect.bisect_right(ends, (unit, 1 << 32))
                if at == len(ends):
                    raise Refused(f"id {id_} is outside of table {self.spec.name} of {self.spec.rows} rows")
                if unit < self.records[ends[at][1]].range_first:
                    raise Lost(f"the map has no shard for id {id_} of table {self.spec.name}")
                shards.setdefault(ends[at][1], []).append(id_)
        return shards


class Chain:
    """What this client knows of its own pushes to one lane of a shard."""
    last_seq, opened = 0, False  # of its last push that the shard has; it has taken one of this incarnation


class Client:
    def __init__(self, coordinator, session_name, timeout_s=60):
        self.timeout_s, self.channel = timeout_s, grpc.insecure_channel(coordinator)
        self.channels, self.streams, self.tables, self.servers, self.chains, self.seen = {}, {}, {}, {}, {}, {}
        self.session = self.call("OpenSession", control.OpenSessionRequest(name=session_name),
                                 control.OpenSessionReply)
        self.refresh()

    def call(self, method, request, reply_type):
        """A call to the coordinator, which may be away for a moment."""
        rpc = self.channel.unary_unary(f"/hotbed.v1.Coordinator/{method}",
                                       request_serializer=type(request).SerializeToString,
                                       response_deserializer=reply_type.FromString)
        return rpc(request, timeout=self.timeout_s, wait_for_ready=True)

    def refresh(self):
        """Takes the whole map from the coordinator, which may be older than records of WRONG_EPOCH."""
        cluster = self.call("GetClusterMap", control.GetClusterMapRequest(), control.ClusterMap)
        self.servers = {server.server: server.address for server in cluster.servers}
        known = self.tables
        self.tables = {spec.id: Table(spec) for spec in cluster.tables}
        for record in cluster.shards:
            self.tables[record.shard >> 32].learn(record)
        for id_, table in known.items():
            for index, record in table.records.items():
                if id_ in self.tables and index in self.tables[id_].records:
                    self.tables[id_].learn(record)

    def table(self, name):
        return next(table.spec.id for table in self.tables.values() if table.spec.name == name)

    def stream(self, server, push):
        if server not in self.servers:
            raise Lost(f"server {server} is not known")
        address, key = self.servers[server], (self.servers[server], push)
        if key not in self.streams:
            hello = data.Hello(cluster_id=self.session.cluster_id, wire_version=WIRE_VERSION)
            if push:
                hello.session, hello.incarnation = self.session.session, self.session.incarnation
            if address not in self.channels:
                options = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]
                self.channels[address] = grpc.insecure_channel(address, options)
            kinds = (data.PushRequest, data.PushReply) if push else (data.PullRequest, data.PullReply)
            self.streams[key] = Stream(self.channels[address], "Push" if push else "Pull", *kinds, hello)
        return self.streams[key]

    def ask(self, server, message, push):
        try:
            return self.stream(server, push).ask(message)
        except (grpc.RpcError, Lost) as error:
            stream = self.streams.pop((self.servers.get(server), push), None)
            if stream is not None:
                stream.close()
            raise Lost(str(error)) from error

    def answers(self, reply, shards):
        """(index of the lane, its exception or None, LSN) for each segment of a reply."""
        header = reply.header
        if header.code != data.OK:  # of the message as a whole
            whole = data.SegmentReply(code=header.code, detail=header.detail, retry_after_ms=header.retry_after_ms)
            return [(index, whole, 0) for index in shards]
        exceptions = {exception.segment: exception for exception in header.exceptions}
        lsns = header.lsns if len(header.lsns) > 1 else [*header.lsns, 0][:1] * len(shards)
        return [(index, exceptions.get(i), lsns[i]) for i, index in enumerate(shards)]

    def until_done(self, table, ids, attempt):
        """Calls attempt(server, lanes, {lane: its ids}) until it returns no lane as refused for now. The ids of refused
        ones are split again, because they may have been cut."""
        limit, delay, left, last = time.monotonic() + self.timeout_s, FIRST_DELAY_S, [(None, ids)], None
        while left:
            if time.monotonic() > limit:
                raise TimeoutError(f"table {table}: not all shards have answered in time: {last}")
            now, left = left, []
            for columns, some in now:
                servers = {}
                try:
                    held = self.tables[table].split(some, columns)
                except Lost as error:
                    left, last = left + [(columns, some)], error
                    continue
                for index in held:
                    servers.setdefault(self.tables[table].records[index].primary.server, []).append(index)
                for server, shards in servers.items():
                    firsts = {index: self.tables[table].records[index].column_first for index in shards}
                    try:
                        shards = attempt(server, shards, held)
                    except Lost as error:
                        last = error
                    left += [(firsts[index], held[index]) for index in shards]
            if left:
                time.sleep(delay)
                delay = min(2 * delay, LAST_DELAY_S)
                self.refresh()

    def refused(self, table, exception):
        """Learns from a refusal; raises if a retry cannot help."""
        if exception.HasField("record"):
            self.tables[table].learn(exception.record)
        if exception.code not in RETRIED:
            raise Refused(f"table {table}: {data.Code.Name(exception.code)}: {exception.detail}")

    def group(self, group, table, shards, counts):
        """Fills the columns that pulls and pushes share."""
        group.table = table
        group.shards.extend(self.tables[table].records[index].shard & 0xFFFFFFFF for index in shards)
        group.epochs.extend(self.tables[table].records[index].epoch for index in shards)
        group.id_counts.extend(counts)
        return group

    def pull(self, table, ids):
        """{id: row} for unique ids, as floats. Rows that were never pushed have their first values."""
        dim = self.tables[table].spec.dim
        rows = {id_: [0.0] * dim for id_ in ids}

        def attempt(server, shards, held):
            request = data.PullRequest()
            group = self.group(request.header.groups.add(), table, shards, [len(held[index]) for index in shards])
            # Read your writes: LSNs of one epoch alone can be compared here.
            lsns = [self.seen.get((table, index), (0, 0)) for index in shards]
            group.lsns_min.extend(lsn if epoch == group.epochs[i] else 0 for i, (epoch, lsn) in enumerate(lsns))
            request.ids = b"".join(struct.pack("<Q", id_) for index in shards for id_ in held[index])
            reply, again, at = self.ask(server, request, push=False), [], 0
            for index, exception, _ in self.answers(reply, shards):
                if exception is not None and exception.code != data.OK:
                    self.refused(table, exception)
                    again.append(index)
                    continue
                record = self.tables[table].records[index]
                first, columns = record.column_first, record.column_limit - record.column_first
                for id_ in held[index]:
                    rows[id_][first:first + columns] = struct.unpack_from(f"<{columns}f", reply.rows, at)
                    at += 4 * columns
            return again

        self.until_done(table, ids, attempt)
        return rows

    def push(self, table, step, gradients, learning_rate=None):
        """Applies {id: gradient} once, whatever happens on the way. Steps of a table grow; one push per step."""

        def attempt(server, shards, held):
            request = data.PushRequest()
            header = request.header
            header.session, header.incarnation = self.session.session, self.session.incarnation
            group = self.group(header.groups.add(), table, shards, [len(held[index]) for index in shards])
            group.step = step
            if learning_rate is not None:
                group.learning_rate = learning_rate
            seqs, bulk = [], []
            for index in shards:
                record, chain = self.tables[table].records[index], self.chains.setdefault((table, index), Chain())
                columns = record.column_limit - record.column_first
                per_number = ROWS_PER_NUMBER if columns <= NARROW else 1
                number = -(-len(held[index]) // per_number)  # of the last rows: the whole step is one part
                seqs.append(step << NUMBER_BITS | number)
                group.numbers.append(number)
                group.distances.append(seqs[-1] - chain.last_seq if chain.last_seq else 0)
                group.opens.append(not chain.opened)
                group.dims.append(columns)
                for id_ in held[index]:
                    bulk.append(struct.pack(f"<{columns}f", *gradients[id_][record.column_first:record.column_limit]))
            group.last_parts.append(True)  # one value, which all segments share
            request.ids = b"".join(struct.pack("<Q", id_) for index in shards for id_ in held[index])
            request.gradients = b"".join(bulk)
            reply, again = self.ask(server, request, push=True), []
            for i, (index, exception, lsn) in enumerate(self.answers(reply, shards)):
                chain = self.chains[table, index]
                if exception is None or exception.code == data.OK:
                    chain.last_seq = max(seqs[i], exception.last_seq if exception is not None else 0)
                    chain.opened = True
                    self.seen[table, index] = (group.epochs[i] if exception is None else exception.epoch, lsn)
                    continue
                self.refused(table, exception)
                if exception.code in GAPS:  # the chain goes on from what the shard has
                    chain.last_seq, chain.opened = exception.last_seq, exception.code == data.GAP
                again.append(index)
            return again

        self.until_done(table, gradients, attempt)

    def close(self):
        for open_one in [*self.streams.values(), self.channel, *self.channels.values()]:
            open_one.close()


def main():
    client = Client(sys.argv[1], "hotbed-wire-example")
    table = client.table(sys.argv[2])
    client.push(table, int(time.time()), {id_: [1.0] * client.tables[table].spec.dim for id_ in (1, 2, 3)})
    print(client.pull(table, [1, 2, 3]))


if __name__ == "__main__":
    main()
