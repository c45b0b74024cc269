#!/usr/bin/env python3
"""DLRM over Hotbed: bottom and top MLP, dot interaction, 26 categorical features of the Criteo format.

    dlrm.py                                       # synthetic clicks, the engine in this process
    dlrm.py --data clicks.csv                     # 13 numbers and 26 categories per line, as `hotbed datagen criteo` writes
    dlrm.py --target hotbed://127.0.0.1:7400      # a cluster
    torchrun --nproc-per-node 2 dlrm.py --target hotbed://...   # two trainers, the dense part by DistributedDataParallel
    dlrm.py --prefetch 2                          # the rows of the next two batches are pulled while this one computes
    dlrm.py --embeddings torch                    # the same model over torch.nn.EmbeddingBag, for comparison

Prints the loss as it goes, and the examples/s of the second half of the steps at the end.
"""

import argparse
import contextlib
import csv
import os
import time
import zlib

import numpy as np
import torch

import hotbed
import hotbed.torch as ht

DENSE, FEATURES = 13, 26


class Dlrm(torch.nn.Module):
    def __init__(self, embeddings, dim):
        super().__init__()
        self.embeddings = embeddings
        self.dim = dim
        self.bottom = torch.nn.Sequential(torch.nn.Linear(DENSE, 64), torch.nn.ReLU(), torch.nn.Linear(64, dim), torch.nn.ReLU())
        self.pairs = torch.tril_indices(FEATURES + 1, FEATURES + 1, -1)
        self.top = torch.nn.Sequential(torch.nn.Linear(dim + self.pairs.shape[1], 64), torch.nn.ReLU(), torch.nn.Linear(64, 1))

    def forward(self, dense, sparse):
        pooled = self.embeddings(sparse)
        bottom = self.bottom(dense)
        vectors = torch.cat([bottom, pooled], 1).reshape(len(dense), FEATURES + 1, self.dim)
        dots = torch.bmm(vectors, vectors.transpose(1, 2))[:, self.pairs[0], self.pairs[1]]
        return self.top(torch.cat([bottom, dots], 1))[:, 0]


class HotbedEmbeddings(torch.nn.Module):
    def __init__(self, client, rows, dim, optimizer):
        super().__init__()
        self.collection = ht.EmbeddingBagCollection(
            [ht.EmbeddingBagConfig(rows, dim, f'c{i}', [f'c{i}']) for i in range(FEATURES)], client=client, optimizer=optimizer,
            init='uniform:-0.05,0.05')

    def forward(self, sparse):
        return self.collection(self.features(sparse)).values()

    @staticmethod
    def features(sparse):
        samples = len(sparse)
        return ht.KeyedJaggedTensor([f'c{i}' for i in range(FEATURES)], sparse.t().reshape(-1),
                                    lengths=torch.ones(FEATURES * samples, dtype=torch.int32))


class TorchEmbeddings(torch.nn.Module):
    def __init__(self, rows, dim):
        super().__init__()
        self.bags = torch.nn.ModuleList(torch.nn.EmbeddingBag(rows, dim, mode='sum', sparse=True) for _ in range(FEATURES))
        for bag in self.bags:
            torch.nn.init.uniform_(bag.weight, -0.05, 0.05)

    def forward(self, sparse):
        return torch.cat([bag(sparse[:, i:i + 1]) for i, bag in enumerate(self.bags)], 1)


def synthetic(batches, samples, rows, seed):
    """Clicks that depend on the numbers and on hidden tastes; categories by a power law."""
    random = np.random.default_rng(seed)
    taste = random.normal(size=(FEATURES, 1024)).astype(np.float32)
    for _ in range(batches):
        dense = random.normal(size=(samples, DENSE)).astype(np.float32)
        sparse = (rows * random.random((samples, FEATURES)) ** 4).astype(np.int64)
        score = dense[:, 0] + np.sum(taste[np.arange(FEATURES), sparse % 1024], 1) / 3
        label = (random.random(samples) < 1 / (1 + np.exp(-score))).astype(np.float32)
        yield torch.from_numpy(dense), torch.from_numpy(sparse), torch.from_numpy(label)


def of_file(path, samples, rows):
    """Comma- or tab-separated: label, 13 numbers, 26 words. A word's id is its checksum modulo the rows."""
    with open(path, encoding='utf-8', newline='') as file:
        lines = csv.reader(file, delimiter='\t' if '\t' in file.readline() else ',')
        file.seek(0)
        chunk = []
        for line in lines:
            if line[0].isdigit():
                chunk.append(line)
            if len(chunk) == samples:
                yield parsed(chunk, rows)
                chunk = []
        if chunk:
            yield parsed(chunk, rows)


def parsed(chunk, rows):
    numbers = np.array([[float(v or 0) for v in line[1:1 + DENSE]] for line in chunk], np.float32)
    words = np.array([[zlib.crc32(v.encode()) % rows for v in line[1 + DENSE:1 + DENSE + FEATURES]] for line in chunk])
    return (torch.from_numpy(np.log1p(np.maximum(numbers, 0))), torch.from_numpy(words),
            torch.tensor([float(line[0]) for line in chunk]))


def build(arguments):
    """(model, dense optimizers, client or None)"""
    torch.manual_seed(arguments.seed)
    if arguments.embeddings == 'torch':
        model = Dlrm(TorchEmbeddings(arguments.rows, arguments.dim), arguments.dim)
        sparse = torch.optim.SparseAdam(model.embeddings.parameters()) if arguments.optimizer == 'adam' else \
            torch.optim.Adagrad(model.embeddings.parameters(), lr=arguments.lr)
        dense = [p for name, p in model.named_parameters() if not name.startswith('embeddings')]
        return model, [torch.optim.Adagrad(dense, lr=arguments.lr), sparse], None
    options = {'adam': hotbed.optim.Adam(lr=1e-3), 'adagrad': hotbed.optim.Adagrad(lr=arguments.lr),
               'rowwise': hotbed.optim.RowWiseAdagrad(lr=arguments.lr)}[arguments.optimizer]
    if arguments.target:
        client = ht.connect(arguments.target, job=arguments.session)
    else:
        client = hotbed.local(arguments.directory, session=arguments.session, memory=arguments.memory)
    model = Dlrm(HotbedEmbeddings(client, arguments.rows, arguments.dim, options), arguments.dim)
    return model, [torch.optim.Adagrad([p for p in model.parameters()], lr=arguments.lr)], client


@contextlib.contextmanager
def ahead(batches, model, arguments):
    """The batches, with their rows pulled early where that is asked for."""
    if not arguments.prefetch:
        yield batches
        return
    with ht.prefetch(batches, model, lambda batch: HotbedEmbeddings.features(batch[1]), depth=arguments.prefetch,
                     behind=arguments.behind) as early:
        yield early


def train(model, optimizers, batches, quiet=False):
    """(losses, seconds per step of the second half)"""
    losses, times = [], []
    for step, (dense, sparse, label) in enumerate(batches):
        for optimizer in optimizers:
            optimizer.zero_grad(set_to_none=True)
        loss = torch.nn.functional.binary_cross_entropy_with_logits(model(dense, sparse), label)
        loss.backward()
        for optimizer in optimizers:
            optimizer.step()
        losses.append(float(loss))
        times.append(time.perf_counter())
        if not quiet and step % 20 == 0:
            print(f'step {step}: loss {losses[-1]:.5f}', flush=True)
    half = times[len(times) // 2:]  # rows that no step touched before are made in the first steps
    return losses, (half[-1] - half[0]) / max(len(half) - 1, 1)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split('\n', maxsplit=1)[0])
    parser.add_argument('--data', help='file of clicks; default: synthetic ones')
    parser.add_argument('--steps', type=int, default=100)
    parser.add_argument('--samples', type=int, default=2048, help='per step')
    parser.add_argument('--rows', type=int, default=100_000, help='per table')
    parser.add_argument('--dim', type=int, default=16)
    parser.add_argument('--embeddings', choices=('hotbed', 'torch'), default='hotbed')
    parser.add_argument('--optimizer', choices=('rowwise', 'adagrad', 'adam'), default='rowwise')
    parser.add_argument('--lr', type=float, default=0.05)
    parser.add_argument('--target', help='hotbed://HOST:PORT; default: the engine in this process')
    parser.add_argument('--directory', help='of the engine in this process; default: memory')
    parser.add_argument('--memory', default='1GiB')
    parser.add_argument('--session', default='dlrm')
    parser.add_argument('--prefetch', type=int, default=0, help='batches whose rows are pulled early; 0: none')
    parser.add_argument('--behind', type=int, default=0, help="own pushes that such rows may miss")
    parser.add_argument('--seed', type=int, default=1)
    arguments = parser.parse_args()
    rank = int(os.environ.get('RANK', 0))
    if 'RANK' in os.environ:
        torch.distributed.init_process_group('gloo')
    model, optimizers, client = build(arguments)
    if 'RANK' in os.environ:
        model = torch.nn.parallel.DistributedDataParallel(model)
    if arguments.data:
        batches = (b for _, b in zip(range(arguments.steps), of_file(arguments.data, arguments.samples, arguments.rows)))
    else:
        batches = synthetic(arguments.steps, arguments.samples, arguments.rows, arguments.seed + rank)
    if client is None and arguments.prefetch:
        parser.error('--prefetch pulls rows of Hotbed; it takes --embeddings hotbed')
    with ahead(batches, model, arguments) as early:
        losses, seconds = train(model, optimizers, early, quiet=rank > 0)
    if client is not None:
        ht.training(client).wait()
        client.close()
    print(f'rank {rank}: loss {losses[0]:.5f} -> {np.mean(losses[-10:]):.5f}, '
          f'{arguments.samples / max(seconds, 1e-9):,.0f} examples/s, {len(losses)} steps')


if __name__ == '__main__':
    main()
