"""Who may include whom: the table of DESIGN section 2 and DECISIONS T1, checked on include lines."""

import os
import re

import cpp_source

# Layer of a file: the longest prefix wins. server/ holds two layers; its build file says which sources are the shard's.
LAYER_OF_FOLDER = {
    'common/': 'common',
    'row_math/': 'row_math',
    'device/': 'device',
    'config/': 'config',
    'proto/': 'proto',
    'kv/': 'kv',
    'admin/': 'admin',
    'server/kernels/': 'kernels',
    'server/tiers/': 'tiers',
    'server/shard_log/': 'shard_log',
    'server/': 'server',
    'client/include/': 'public',
    'client/': 'client',
    'planner/coordinator/': 'coordinator',
    'planner/': 'planner',
    'trainer/': 'trainer',
    'cli/': 'cli',
    'examples/': 'examples',
}
_SHARD_AND_BELOW = ['shard', 'tiers', 'shard_log', 'kernels', 'row_math', 'common']
# Layer -> layers that it may include beside itself.
MAY_SEE = {
    'common': ['row_math'],
    'row_math': [],
    'device': ['row_math'],
    'config': ['common'],
    'proto': ['common', 'row_math'],
    'kv': ['common'],
    'admin': ['common'],
    'kernels': ['row_math'],
    'tiers': ['device', 'kernels', 'row_math', 'common', 'kv'],
    'shard_log': ['row_math', 'common'],
    'shard': _SHARD_AND_BELOW,
    'server': _SHARD_AND_BELOW + ['device', 'proto', 'config', 'admin'],
    'public': ['common', 'row_math'],
    'client': ['public', 'proto', 'row_math', 'common'],
    'planner': ['common', 'row_math'],
    'coordinator': ['planner', 'proto', 'kv', 'admin', 'config', 'common', 'row_math'],
    'trainer': ['public', 'config', 'common', 'row_math'],
    'cli': ['public', 'proto', 'config', 'common', 'row_math', 'trainer', 'planner'],
    'examples': ['public', 'config', 'common', 'row_math', 'trainer', 'cli'],
}
# What comes from outside, and the layers that may see it.
OUTSIDE = [
    (r'rocksdb/', ['kv'], 'RocksDB stays in kv/; use kv/kv_store.h'),
    (r'(prometheus/|civetweb|CivetServer)', ['admin'], 'it stays in admin/; use common/metrics.h'),
    (r'yaml-cpp/', ['config'], 'yaml-cpp stays in config/; use config/config.h'),
    (r'grpc', ['proto', 'server', 'client', 'coordinator', 'cli'], 'gRPC stays at the edges'),
    (r'google/protobuf/', ['proto', 'server', 'client', 'coordinator', 'cli'], 'protobuf stays at the edges'),
    (r'(cuda|cub/|thrust/)', ['device'], 'CUDA stays in device/'),
    (r'(thread|chrono|fstream|mutex|future)$', [l for l in MAY_SEE if l not in ('planner', 'row_math')],
     'the planner is pure and row_math is plain arithmetic'),
    (r'absl/', [l for l in MAY_SEE if l not in ('row_math', 'device', 'kernels')], 'compiled by nvcc: no Abseil'),
]
_IMPURE = ('common/clock.h', 'common/file_system.h')


def shard_stems(root):
    """Stems of the sources that server/shard.cmake lists: the shard layer, with their headers."""
    path = os.path.join(root, 'server/shard.cmake')
    if not os.path.exists(path):
        return set()
    with open(path, encoding='utf-8') as file:
        return set(re.findall(r'\b(\w+)\.cc\b', file.read()))


def layer_of(path, stems):
    folders = [f for f in LAYER_OF_FOLDER if path.startswith(f)]
    if not folders:
        return None
    folder = max(folders, key=len)
    stem = os.path.splitext(path[len(folder):])[0]
    return 'shard' if folder == 'server/' and stem in stems else LAYER_OF_FOLDER[folder]


def check(path, text, stems, sources):
    """Yields (line, message). `sources` are all paths: what is not among them comes from outside."""
    layer = layer_of(path, stems)
    if layer is None:
        return
    for line, name, quoted in cpp_source.includes(text):
        inside = f'client/include/{name}' if name.startswith('hotbed/') else name
        if inside in sources or name.endswith('.pb.h'):
            # A header of server/ without a source of its own is a seam that both layers may see.
            target = layer_of(inside, stems)
            seam = layer == 'shard' and target == 'server' and inside.replace('.h', '.cc') not in sources
            if target not in (layer, None) and target not in MAY_SEE[layer] and not seam:
                yield line, f'{layer} may not include "{name}" of {target}; see tests/tidy/include_rules.py'
            if layer == 'planner' and inside in _IMPURE:
                yield line, f'the planner is pure: no "{name}"; pass values in'
        else:
            for pattern, layers, why in OUTSIDE:
                if re.match(pattern, name) and layer not in layers:
                    yield line, f'{layer} may not include {name}: {why}'
            if quoted and '/' not in name:
                yield line, f'"{name}": include paths begin at the root of the repository'
