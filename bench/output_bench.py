#!/usr/bin/env python3
"""The output layer over two servers against PyTorch with two threads, in turns on the same machine.

    PYTHONPATH=build/python/package python3 bench/output_bench.py --bin build/bin

A step is loss, gradient of the hidden states, gradient of the weights and the update by SGD. Prints the median of each, and of
the ratio between neighbours. The roof is PyTorch's own: the weights are in its process, and nothing is logged.
"""

import argparse
import json
import os
import signal
import statistics
import subprocess
import tempfile
import time

import torch

import hotbed
import hotbed.torch as ht


def local_step(weight, optimizer, hidden, targets):
    loss = torch.nn.functional.cross_entropy(hidden @ weight.t(), targets)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    return loss.item()


def hotbed_step(layer, client, hidden, targets):
    loss = layer(hidden, targets)
    begun = time.perf_counter()
    loss.backward()
    between = time.perf_counter()
    ht.training(client).wait()
    return loss.item(), between - begun, time.perf_counter() - between


def timed(call, *arguments):
    begun = time.perf_counter()
    result = call(*arguments)
    return time.perf_counter() - begun, result


def main():
    parser = argparse.ArgumentParser(description=__doc__.split('\n', maxsplit=1)[0])
    parser.add_argument('--bin', default='build/bin', help='the programs; default: %(default)s')
    parser.add_argument('--classes', type=int, default=50257)
    parser.add_argument('--dim', type=int, default=256)
    parser.add_argument('--tokens', type=int, default=512)
    parser.add_argument('--servers', type=int, default=2)
    parser.add_argument('--steps', type=int, default=11)
    parser.add_argument('--threads', type=int, default=2, help="of PyTorch; default: %(default)s")
    parser.add_argument('--durability', default='log')
    parser.add_argument('-o', dest='form', choices=('text', 'json'), default='text')
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    random = torch.Generator().manual_seed(1)
    hidden = torch.randn(arguments.tokens, arguments.dim, generator=random).requires_grad_()
    targets = torch.randint(0, arguments.classes, (arguments.tokens,), generator=random)
    with tempfile.TemporaryDirectory(prefix='hotbed-output-bench-') as directory:
        up = subprocess.Popen([os.path.join(arguments.bin, 'hotbed'), 'up', '--servers', str(arguments.servers), '--data-dir', directory,
                               '--port', '0', '--host-bytes', '1GiB', '-o', 'json'], stdout=subprocess.PIPE, text=True)
        try:
            with hotbed.connect('hotbed://' + json.loads(up.stdout.readline())['coordinator'], session='bench') as client:
                layer = ht.VocabParallelCrossEntropy(arguments.classes, arguments.dim, client=client, name='output', init='normal:0,0.02',
                                                     optimizer=hotbed.optim.SGD(lr=0.1), durability=arguments.durability)
                weight = torch.from_numpy(layer.table.pull(range(arguments.classes)).copy()).requires_grad_()
                optimizer = torch.optim.SGD([weight], lr=0.1)
                rows = []
                for step in range(arguments.steps):
                    local_s, local_loss = timed(local_step, weight, optimizer, hidden, targets)
                    hidden.grad = None
                    ours_s, (loss, backward_s, push_s) = timed(hotbed_step, layer, client, hidden, targets)
                    hidden.grad = None
                    assert abs(loss - local_loss) < 1e-3, (step, loss, local_loss)
                    rows.append((local_s, ours_s, ours_s - backward_s - push_s, backward_s, push_s, ours_s / local_s))
        finally:
            up.send_signal(signal.SIGINT)
            up.communicate(timeout=60)
    names = ('pytorch_s', 'hotbed_s', 'forward_s', 'hidden_gradient_s', 'update_s', 'ratio')
    medians = dict(zip(names, (statistics.median(column) for column in zip(*rows[1:]))))
    if arguments.form == 'json':
        print(json.dumps({**medians, 'wire_bytes_forward': layer.wire_bytes}))
        return
    print(f'{arguments.classes} classes x {arguments.dim}, {arguments.tokens} tokens, {arguments.servers} servers: '
          f'{1000 * medians["hotbed_s"]:.0f} ms (loss {1000 * medians["forward_s"]:.0f}, gradient of hidden '
          f'{1000 * medians["hidden_gradient_s"]:.0f}, update {1000 * medians["update_s"]:.0f}); PyTorch with {arguments.threads} threads '
          f'{1000 * medians["pytorch_s"]:.0f} ms; ratio {medians["ratio"]:.2f}, the bar is 1.3')


if __name__ == '__main__':
    main()
