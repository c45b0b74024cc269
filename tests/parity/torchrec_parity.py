#!/usr/bin/env python3
"""hotbed.torch beside TorchRec: the same model over both, with TorchRec's fused optimizers, step by step.

torchrec_parity.py [--target hotbed://HOST:PORT] [--steps N], with PYTHONPATH=build/python/package and an interpreter that has
torch, torchrec and fbgemm_gpu (docs/parity.md). Without --target the engine in this process is used. Exits with 1 if a loss or a
weight differs by more than 1e-5.
"""

import argparse
import sys

import numpy as np
import torch
import torchrec
from torchrec.modules.fused_embedding_modules import FusedEmbeddingBagCollection
from torchrec.sparse.jagged_tensor import KeyedJaggedTensor

import hotbed
import hotbed.torch as ht

TABLES = {'user': (2000, 16), 'item': (5000, 32), 'shop': (300, 8)}
SAMPLES = 64
LR = 0.05
BOUND = 1e-5
OPTIMIZERS = {
    'sgd': (torch.optim.SGD, {'lr': LR}, hotbed.optim.SGD(lr=LR)),
    'adagrad': (torch.optim.Adagrad, {'lr': LR, 'eps': 1e-8}, hotbed.optim.Adagrad(lr=LR, eps=1e-8)),
    'row-wise adagrad': (torchrec.optim.RowWiseAdagrad, {'lr': LR, 'eps': 1e-8}, hotbed.optim.RowWiseAdagrad(lr=LR, eps=1e-8)),
}  # the fused optimizers that FBGEMM has without a GPU


def configs(case, pooling):
    return [torchrec.EmbeddingBagConfig(name=f'{case}_{name}', embedding_dim=dim, num_embeddings=rows, feature_names=[f'f_{name}'],
                                        pooling=pooling) for name, (rows, dim) in TABLES.items()]


def batch(random, weighted):
    keys = [f'f_{name}' for name in TABLES]
    lengths = torch.from_numpy(random.integers(0, 6, len(keys) * SAMPLES).astype(np.int32))
    counts = lengths.reshape(len(keys), SAMPLES).sum(1)
    values = torch.cat([torch.from_numpy(random.integers(0, rows, int(n)))
                        for (rows, _), n in zip(TABLES.values(), counts)])
    weights = torch.from_numpy(random.random(len(values)).astype(np.float32)) if weighted else None
    return KeyedJaggedTensor(keys, values, weights, lengths=lengths), torch.from_numpy(random.integers(0, 2, SAMPLES)).float()


class Model(torch.nn.Module):
    def __init__(self, embeddings):
        super().__init__()
        self.embeddings = embeddings
        self.over = torch.nn.Linear(sum(dim for _, dim in TABLES.values()), 1)

    def forward(self, features):
        return self.over(self.embeddings(features).values())[:, 0]


def weights_of(embeddings):
    state = embeddings.state_dict()
    return {key.split('.')[1]: value for key, value in state.items() if key.endswith('.weight')}


def compare(client, name, optimizer, pooling, weighted, steps):
    """(the largest difference of a loss, of a weight)"""
    kind, options, ours_optimizer = optimizer
    tables = configs(name, pooling)
    torch.manual_seed(5)
    theirs = Model(FusedEmbeddingBagCollection(tables, optimizer_type=kind, optimizer_kwargs=options, is_weighted=weighted,
                                               device=torch.device('cpu')))
    ours = Model(ht.EmbeddingBagCollection(tables, client=client, optimizer=ours_optimizer, is_weighted=weighted))
    ours.over.load_state_dict(theirs.over.state_dict())
    for table, weights in weights_of(theirs.embeddings).items():
        ht.import_weights(client, client.table(table), weights.detach())
    dense = [torch.optim.SGD(model.over.parameters(), lr=0.1) for model in (theirs, ours)]
    random = np.random.default_rng(11)
    worst = 0.0
    for _ in range(steps):
        features, labels = batch(random, weighted)
        losses = []
        for model, over in zip((theirs, ours), dense):
            over.zero_grad()
            loss = torch.nn.functional.binary_cross_entropy_with_logits(model(features), labels)
            loss.backward()
            over.step()
            losses.append(float(loss))
        worst = max(worst, abs(losses[0] - losses[1]))
    ht.training(client).wait()
    apart = max(float(np.abs(client.table(table).pull(np.arange(len(weights))) - weights.detach().numpy()).max())
                for table, weights in weights_of(theirs.embeddings).items())
    for table in weights_of(theirs.embeddings):
        client.drop_table(table)
    return worst, apart


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--target', help='hotbed://HOST:PORT; default: the engine in this process')
    parser.add_argument('--steps', type=int, default=100)
    arguments = parser.parse_args()
    client = hotbed.connect(arguments.target, session='torchrec') if arguments.target else \
        hotbed.local(memory='256MiB', session='torchrec')
    print(f'torch {torch.__version__}, torchrec {torchrec.__version__}, {arguments.steps} steps')
    failed = 0
    sums, means = torchrec.PoolingType.SUM, torchrec.PoolingType.MEAN
    for number, (name, optimizer) in enumerate(OPTIMIZERS.items()):
        for pooling, weighted in ((sums, False), (means, False), (sums, True)):
            loss, weight = compare(client, f'case{number}_{pooling.name.lower()}_{int(weighted)}', optimizer, pooling, weighted,
                                   arguments.steps)
            failed += loss > BOUND or weight > BOUND
            print(f'{name:17} {pooling.name.lower():5} {"weighted" if weighted else "":9} loss {loss:.1e}  weights {weight:.1e}',
                  flush=True)
    client.close()
    return 1 if failed else 0


if __name__ == '__main__':
    sys.exit(main())
