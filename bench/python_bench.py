#!/usr/bin/env python3
"""The Python package beside the C++ client and beside torch, on this machine.

python_bench.py [--only client|dlrm|torchrec|import|touches|limit|expiry] [--seconds S] [--rounds N], with PYTHONPATH=build/python/package and
HOTBED_BIN=build/bin (./dev build).

client: pulls and pushes of 2,048 ids x 64 on one server, in turns with `hotbed bench`.
dlrm: examples/python/dlrm.py with 26 tables of 400,000 rows x 16 and Adagrad: torch.nn.EmbeddingBag(sparse=True), the
engine in the process, and one server, the last two also with --prefetch 2; and the embeddings alone, forward and backward.
torchrec (only by --only, with an interpreter that has TorchRec, docs/parity.md): the same 26 tables through TorchRec's
FusedEmbeddingBagCollection and through hotbed.torch.EmbeddingBagCollection on the engine in the process, forward and backward.
touches (only by --only): pushes and pulls of a hashed table in the engine, with touches, and with admission after two by exact
counts and by a filter, in turns with the same table without; as CPU time, so that other work on the machine counts less.
limit (only by --only): a table held at 1,000,000 rows, LFU, while 10,000,000 ids of Zipf 1.05 pass, and the same without a limit;
the hit ratio is compared with that of the 1,000,000 most frequent ids of these, held from their first touch on, a miss.
expiry (only by --only): half of 10,000,000 rows of a server expire while pushes go on; --rows N for fewer.
import: the time of `import hotbed` beyond numpy's.

Runs take turns; a ratio is that of the medians.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time

import numpy as np

import hotbed

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'tests', 'e2e'))
import local  # noqa: E402  (tests/e2e)

ROWS, DIM, BATCH = 1_000_000, 64, 2048


def compiled(kind, coordinator, seconds):
    """Rows per second of the C++ client."""
    code, out, err = local.run('hotbed', 'bench', kind, '--coordinator', coordinator, '--tables', 1, '--dim', DIM, '--rows', ROWS,
                               '--batch', BATCH, '--in-flight', 1, '--seconds', seconds, '--repeats', 1, '--no-roofs', '--preload',
                               '-o', 'json', timeout=300)
    if code != 0:
        raise SystemExit(err)
    return json.loads(out)['rows_per_s'] if 'rows_per_s' in json.loads(out) else out


def python(table, kind, seconds, random, step, **of_pull):
    batches = [random.integers(0, ROWS, BATCH) for _ in range(16)]
    rows = np.zeros((BATCH, DIM), np.float32)
    calls, begin = 0, time.perf_counter()
    while time.perf_counter() - begin < seconds:
        ids = batches[calls % 16]
        if kind == 'pull':
            table.pull(ids, rows, **of_pull)
        else:
            step += 1
            table.push(ids, rows, step=step)
        calls += 1
    return calls * BATCH / (time.perf_counter() - begin), step


def client_part(arguments):
    random = np.random.default_rng(1)
    step = 0
    with tempfile.TemporaryDirectory() as directory:
        up = local.Up(directory, '--servers', 1, '--port', 0, '--host-bytes', '2GiB')
        try:
            with hotbed.connect(f'hotbed://{up.coordinator}') as client:
                table = client.create_table('python', dim=DIM, rows=ROWS, optimizer=hotbed.optim.RowWiseAdagrad(lr=0.01))
                for first in range(0, ROWS, 8192):  # every row exists, as in the C++ runs
                    step += 1
                    ids = np.arange(first, min(first + 8192, ROWS))
                    table.push(ids, np.zeros((len(ids), DIM), np.float32), step=step)
                for kind in ('pull', 'push'):
                    cpp, own = [], []
                    for _ in range(arguments.rounds):
                        cpp.append(compiled(kind, up.coordinator, arguments.seconds))
                        rate, step = python(table, kind, arguments.seconds, random, step)
                        own.append(rate)
                    ratio = statistics.median(own) / statistics.median(cpp)
                    print(f'{kind}: Python {statistics.median(own):,.0f} rows/s, C++ {statistics.median(cpp):,.0f}, ratio {ratio:.3f}')
        finally:
            up.stop()


EXAMPLE = os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'examples', 'python', 'dlrm.py')
MODEL = ('--rows', '400000', '--optimizer', 'adagrad', '--steps', '200')


def trained(*extra):
    """Examples per second of the example's whole step."""
    out = subprocess.run([sys.executable, EXAMPLE, *MODEL, *extra], check=True, capture_output=True, text=True).stdout
    return float(out.rsplit(' examples/s', 1)[0].rsplit(' ', 1)[1].replace(',', ''))


def embeddings_alone(kind, seconds):
    """Examples per second of the example's embeddings, forward and backward, without a dense part."""
    sys.path.insert(0, os.path.dirname(EXAMPLE))
    import dlrm
    import torch
    client = None if kind == 'torch' else hotbed.local(memory='3GiB')
    if client is None:
        model = dlrm.TorchEmbeddings(400_000, 16)
        optimizer = torch.optim.Adagrad(model.parameters(), lr=0.05)
    else:
        model = dlrm.HotbedEmbeddings(client, 400_000, 16, hotbed.optim.Adagrad(lr=0.05))
    batches = [sparse for _, sparse, _ in dlrm.synthetic(16, BATCH, 400_000, 1)]
    gradient = torch.randn(BATCH, 26 * 16) * 1e-3
    calls = 0
    for call in range(10**9):
        if call == len(batches):
            begin = time.perf_counter()
        if call > len(batches) and time.perf_counter() - begin > seconds:
            break
        model(batches[call % len(batches)]).backward(gradient)
        if client is None:
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        calls += call >= len(batches)
    rate = calls * BATCH / (time.perf_counter() - begin)
    if client is not None:
        del model
        client.close()
    return rate


def dlrm_part(arguments):
    early = ('--prefetch', '2')
    rates = {}
    with tempfile.TemporaryDirectory() as directory:
        up = local.Up(directory, '--servers', 1, '--port', 0, '--host-bytes', '3GiB')
        try:
            for turn in range(arguments.rounds):
                served = ('--target', f'hotbed://{up.coordinator}', '--session', f'turn{turn}')
                for name, rate in (
                        ('torch', lambda: trained('--embeddings', 'torch')), ('local', lambda: trained('--memory', '3GiB')),
                        ('local, prefetch', lambda: trained('--memory', '3GiB', *early)),
                        ('one server', lambda: trained(*served)), ('one server, prefetch', lambda: trained(*served, *early)),
                        ('embeddings alone: torch', lambda: embeddings_alone('torch', arguments.seconds)),
                        ('embeddings alone: local', lambda: embeddings_alone('local', arguments.seconds))):
                    rates.setdefault(name, []).append(rate())
        finally:
            up.stop()
    middle = {name: statistics.median(r) for name, r in rates.items()}
    for name, rate in middle.items():
        roof = middle['embeddings alone: torch' if name.startswith('embeddings') else 'torch']
        print(f'dlrm, {name}: {rate:,.0f} examples/s, {rate / roof:.2f} of torch')


def torchrec_part(arguments):
    import torch
    import torchrec
    from torchrec.modules.fused_embedding_modules import FusedEmbeddingBagCollection

    import hotbed.torch as ht
    torch.set_num_threads(os.cpu_count())
    rows, dim, features = 400_000, 16, [f'f{n}' for n in range(26)]
    tables = [torchrec.EmbeddingBagConfig(name=f't_{name}', embedding_dim=dim, num_embeddings=rows, feature_names=[name])
              for name in features]
    random = np.random.default_rng(1)
    batches = [torchrec.KeyedJaggedTensor(features, torch.from_numpy((rows * random.random(26 * BATCH) ** 4).astype(np.int64)),
                                          lengths=torch.ones(26 * BATCH, dtype=torch.int32)) for _ in range(16)]
    gradient = torch.randn(BATCH, 26 * dim) * 1e-3
    client = hotbed.local(memory='3GiB')
    models = {'torchrec': FusedEmbeddingBagCollection(tables, optimizer_type=torch.optim.Adagrad, optimizer_kwargs={'lr': 0.05},
                                                      device=torch.device('cpu')),
              'local': ht.EmbeddingBagCollection(tables, client=client, optimizer=hotbed.optim.Adagrad(lr=0.05))}
    rates = {name: [] for name in models}
    for _ in range(arguments.rounds):
        for name, model in models.items():
            for call in range(64):
                if call == len(batches):
                    begin = time.perf_counter()
                model(batches[call % len(batches)]).values().backward(gradient)
            rates[name].append((64 - len(batches)) * BATCH / (time.perf_counter() - begin))
    client.close()
    middle = {name: statistics.median(r) for name, r in rates.items()}
    for name, rate in middle.items():
        print(f'embeddings, {name}: {rate:,.0f} examples/s, {rate / middle["torchrec"]:.2f} of TorchRec')


def import_part(_):
    program = 'import time, numpy; b = time.perf_counter(); import hotbed; print(time.perf_counter() - b)'
    times = [float(subprocess.run([sys.executable, '-c', program], check=True, capture_output=True, text=True).stdout)
             for _ in range(9)]
    print(f'import beyond numpy: {1e3 * statistics.median(times):.0f} ms')


def touches_part(arguments):
    """Times of the engine alone: the network would hide the difference. The first table of an engine gets the best memory."""
    random = np.random.default_rng(1)
    kinds = {'plain': {}, 'touches': dict(touches=True), 'admission': dict(touches=True, admit_after=2),
             'filter': dict(touches=True, admit_after=2, admit_by='bloom', admit_ids=ROWS)}
    exists = np.zeros(BATCH, np.uint8)  # readers that ask for it pay for candidates
    times = {(kind, name): [] for kind in ('push', 'pull') for name in kinds}
    for order in (list(kinds), list(kinds)[::-1]):
        with hotbed.local(memory='3GiB') as client:
            step, tables = 0, {}
            for name in order:
                tables[name] = client.create_table(name, dim=DIM, hashed=True, optimizer=hotbed.optim.RowWiseAdagrad(lr=0.01),
                                                   **kinds[name])
                for first in (*range(0, ROWS, 8192), *range(0, ROWS, 8192)):  # every row exists and is admitted
                    step += 1
                    ids = np.arange(first, min(first + 8192, ROWS))
                    tables[name].push(ids, np.zeros((len(ids), DIM), np.float32), step=step)
            for kind in ('push', 'pull'):
                for _ in range(arguments.rounds):
                    for name in order:
                        begin = time.process_time()
                        rate, step = python(tables[name], kind, arguments.seconds, random, step, exists=exists)
                        times[kind, name].append(1e9 * (time.process_time() - begin) / (rate * arguments.seconds))
    for kind in ('push', 'pull'):
        middle = {name: statistics.median(times[kind, name]) for name in kinds}
        print(f'{kind}:', ', '.join(f'{name} {ns:.0f} ns per row, {ns / middle["plain"]:.3f}' for name, ns in middle.items()))


def zipf_ids(random, count, exponent=1.05, universe=100_000_000):
    """By inverting the integral of x^-exponent over 1..universe."""
    power = 1 - exponent
    low, high = 1.0, (universe + 1.0) ** power
    return ((low + random.random(count) * (high - low)) ** (1 / power)).astype(np.uint64)


def limit_part(_):
    held, passes, batch, dim = 1_000_000, 10_000_000, 8192, 16
    ids = zipf_ids(np.random.default_rng(1), passes)
    counts = np.unique(ids, return_counts=True)[1]
    best = (np.sort(counts)[-held:] - 1).sum() / passes
    rates = {}
    with hotbed.local(memory='3GiB') as client:
        for name, options in (('unlimited', {}), ('limited', dict(rows_max=held, evict_by='lfu'))):
            table = client.create_table(name, dim=dim, hashed=True, touches=True, optimizer=hotbed.optim.RowWiseAdagrad(lr=0.01),
                                        **options)
            gradients, hits, pushing = np.zeros((batch, dim), np.float32), 0, 0.0
            for step, first in enumerate(range(0, passes, batch), 1):
                some = ids[first:first + batch]
                if name == 'limited':
                    exists = np.zeros(len(some), np.uint8)
                    table.pull(some, exists=exists)
                    hits += int(np.count_nonzero(exists))
                begin = time.perf_counter()
                table.push(some, gradients[:len(some)], step=step)
                pushing += time.perf_counter() - begin
            rates[name] = passes / pushing
            print(f'{name}: {rates[name]:,.0f} ids/s pushed, {table.count_by_life()["rows"]:,} rows at the end')
    print(f'push rate {rates["limited"] / rates["unlimited"]:.2f} of the unlimited; hit ratio {hits / passes:.3f}, '
          f'the best by hindsight {best:.3f}, {hits / passes / best:.3f} of it')


def disk_bytes(directory):
    sizes = 0
    for folder, _, files in os.walk(directory):
        for name in files:
            try:
                sizes += os.path.getsize(os.path.join(folder, name))
            except OSError:
                pass  # it was deleted meanwhile
    return sizes


def expiry_part(arguments):
    rows, dim, batch, kept = arguments.rows, 16, 8192, 4096
    random = np.random.default_rng(1)
    with tempfile.TemporaryDirectory() as directory:
        up = local.Up(directory, '--servers', 1, '--port', 0, '--host-bytes', '1GiB')
        try:
            with hotbed.connect(f'hotbed://{up.coordinator}') as client:
                gap, ttl = 1_000_000, 1_200_000  # steps between the halves, and until the first one expires
                table = client.create_table('expiry', dim=dim, hashed=True, touches=True, ttl_steps=ttl,
                                            optimizer=hotbed.optim.RowWiseAdagrad(lr=0.01))
                step, gradients = 0, np.zeros((batch, dim), np.float32)
                for first in range(0, rows, batch):  # the first half is not touched again
                    step += 1
                    some = np.arange(first, min(first + batch, rows))
                    table.push(some, gradients[:len(some)], step=step)

                def pushes(seconds):
                    nonlocal step
                    times, end = [], time.perf_counter() + seconds
                    while time.perf_counter() < end:
                        step += 1
                        begin = time.perf_counter()
                        table.push(random.integers(rows // 2, rows, kept), gradients[:kept], step=step)
                        times.append(time.perf_counter() - begin)
                    return np.percentile(times, 99)

                step += gap
                for first in range(rows // 2, rows, batch):
                    step += 1
                    some = np.arange(first, min(first + batch, rows))
                    table.push(some, gradients[:len(some)], step=step)
                quiet = pushes(10)
                before = disk_bytes(os.path.join(directory, 's0', 'spill'))
                asked, exists = random.integers(0, rows // 2, 2000), np.ones(2000, np.uint8)
                begin, busy = time.perf_counter(), []
                step = ttl + rows // batch + 2
                while exists.any() and time.perf_counter() - begin < 600:
                    busy.append(pushes(5))
                    table.pull(asked, exists=exists)
                expired = time.perf_counter() - begin
                lowest = before
                while lowest > 0.65 * before and time.perf_counter() - begin < expired + 120:
                    pushes(2)
                    lowest = min(lowest, disk_bytes(os.path.join(directory, 's0', 'spill')))
                print(f'expiry: {rows - table.count_by_life()["rows"]:,} of {rows:,} rows gone after {expired:.0f} s; p99 of pushes {1e3 * quiet:.1f} ms before, '
                      f'{1e3 * max(busy):.1f} ms meanwhile; rows on the disk {before / 2**20:,.0f} MiB before, '
                      f'{lowest / 2**20:,.0f} MiB {time.perf_counter() - begin - expired:.0f} s after')
        finally:
            up.stop()


def vocabulary_part(_):
    """Look-ups of Zipf keys by one client and by two, where the numbers are in the log of one server, or of two."""
    keys, batch = 1 << 20, 8192
    with tempfile.TemporaryDirectory() as directory:
        up = local.Up(directory, '--servers', 2, '--port', 0, '--host-bytes', '1GiB')
        try:
            target = f'hotbed://{up.coordinator}'
            for durability in ('log', 'replicated=2'):
                for clients in (1, 2):
                    name = f'words-{len(durability)}-{clients}'
                    with hotbed.connect(target) as client:
                        client.create_vocabulary(name, 1_000_000, durability=durability)
                        parts = zipf_ids(np.random.default_rng(1), keys).reshape(clients, -1)
                        looks = [threading.Thread(target=look_up, args=(target, name, part, batch)) for part in parts]
                        begin = time.perf_counter()
                        for look in looks:
                            look.start()
                        for look in looks:
                            look.join()
                        seconds = time.perf_counter() - begin
                        print(f'vocabulary, {durability}, {clients} clients: {keys / seconds:,.0f} keys/s in batches of {batch:,}, '
                              f'{len(client.vocabulary(name)):,} numbers given')
        finally:
            up.stop()


def look_up(target, name, keys, batch):
    with hotbed.connect(target) as client:
        words = client.vocabulary(name)
        for first in range(0, len(keys), batch):
            words(keys[first:first + batch])


PARTS = {'client': client_part, 'dlrm': dlrm_part, 'import': import_part}
ALL_PARTS = {**PARTS, 'torchrec': torchrec_part, 'touches': touches_part, 'limit': limit_part, 'expiry': expiry_part,
             'vocabulary': vocabulary_part}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split('\n', maxsplit=1)[0])
    parser.add_argument('--only', choices=tuple(ALL_PARTS), help='one part; by default the first three')
    parser.add_argument('--seconds', type=float, default=2)
    parser.add_argument('--rounds', type=int, default=5)
    parser.add_argument('--rows', type=int, default=10_000_000, help='of expiry')
    arguments = parser.parse_args()
    for part in [ALL_PARTS[arguments.only]] if arguments.only else PARTS.values():
        part(arguments)


if __name__ == '__main__':
    main()
