"""The layers of docs/architecture.md as a table of allowed includes, checked on include lines."""

import os
import re

import cpp_source

# Layer of a file: the longest prefix wins.
LAYER_OF_FOLDER = {
    'common/': 'common',
    'row_math/': 'row_math',
    'device/': 'device',
    'config/': 'config',
    'proto/': 'proto',
    'places/servers/': 'servers_place',
    'places/': 'places',
    'checkpoint/': 'checkpoint',
    'kv/': 'kv',
    'admin/': 'admin',
    'ports/': 'ports',
    'serving/rows/': 'served_rows',
    'serving/': 'serving',
    'server/kernels/': 'kernels',
    'server/tiers/': 'tiers',
    'server/shard_log/': 'shard_log',
    'server/protocol/': 'shard',
    'server/shard/': 'shard',
    'server/host/': 'shard',
    'server/salvage/': 'salvage',
    'server/': 'server',
    'client/include/': 'public',
    'client/': 'client',
    'planner/coordinator/metadata/': 'metadata',
    'planner/coordinator/state/keys.h': 'metadata',
    'planner/coordinator/': 'coordinator',
    'planner/': 'planner',
    'local/': 'local',
    'python/': 'python',
    'trainer/': 'trainer',
    'terminal/': 'terminal',
    'cli/': 'cli',
    'examples/': 'examples',
}
_SHARD_AND_BELOW = ['shard', 'tiers', 'shard_log', 'kernels', 'row_math', 'common']
# Layer -> layers that it may include in addition to itself.
MAY_SEE = {
    'common': ['row_math'],
    'row_math': [],
    'device': ['row_math'],
    'terminal': ['common'],
    'config': ['common'],
    'proto': ['common', 'row_math'],
    'places': ['common'],
    'servers_place': ['places', 'proto', 'common'],
    'checkpoint': ['places', 'proto', 'common', 'row_math'],
    'kv': ['common'],
    'admin': ['common'],
    'ports': ['common'],
    'kernels': ['row_math'],
    'tiers': ['device', 'kernels', 'row_math', 'common', 'kv'],
    'shard_log': ['row_math', 'common'],
    'shard': _SHARD_AND_BELOW,
    'salvage': _SHARD_AND_BELOW + ['kv'],
    'server': _SHARD_AND_BELOW + ['device', 'proto', 'places', 'servers_place', 'checkpoint', 'config', 'admin', 'ports',
                                 'serving'],
    'served_rows': ['tiers', 'device', 'row_math', 'common', 'kv'],
    'serving': ['served_rows', 'tiers', 'public', 'client', 'places', 'checkpoint', 'proto', 'ports', 'admin', 'config', 'common', 'row_math'],
    'public': ['common', 'row_math'],
    'client': ['public', 'proto', 'places', 'servers_place', 'checkpoint', 'row_math', 'common'],
    'planner': ['common', 'row_math'],
    'metadata': ['coordinator', 'kv', 'config', 'common'],
    'coordinator': ['metadata', 'planner', 'public', 'client', 'checkpoint', 'places', 'servers_place', 'proto', 'kv', 'admin', 'ports', 'config', 'common', 'row_math'],
    'local': ['public', 'client', 'places', 'server', 'coordinator', 'planner', 'proto', 'ports', 'kv'] + _SHARD_AND_BELOW,
    'python': ['public', 'cli', 'proto', 'common', 'row_math'],
    'trainer': ['public', 'config', 'terminal', 'common', 'row_math'],
    'cli': ['public', 'proto', 'places', 'servers_place', 'checkpoint', 'config', 'terminal', 'common', 'row_math', 'trainer', 'planner',
            'salvage', 'metadata'],
    'examples': ['public', 'config', 'terminal', 'common', 'row_math', 'trainer', 'cli'],
}
# Headers from outside the repository, and the layers that may include them.
OUTSIDE = [
    (r'rocksdb/', ['kv'], 'RocksDB stays in kv/; use kv/kv_store.h'),
    (r'(prometheus/)', ['admin'], 'it stays in admin/; use common/metrics.h'),
    (r'yaml-cpp/', ['config'], 'yaml-cpp stays in config/; use config/config.h'),
    (r'zstd\.h', ['checkpoint'], 'zstd stays in checkpoint/; use checkpoint/block_packer.h'),
    (r'curl/', ['places'], 'libcurl stays in places/; use places/place.h'),
    (r'grpc', ['proto', 'servers_place', 'ports', 'server', 'serving', 'client', 'coordinator', 'local', 'cli'], 'gRPC stays at the edges'),
    (r'google/protobuf/', ['proto', 'checkpoint', 'server', 'client', 'coordinator', 'cli'], 'protobuf stays at the edges'),
    (r'(cuda|cub/|thrust/)', ['device'], 'CUDA stays in device/'),
    (r'(thread|chrono|fstream|mutex|future)$', [l for l in MAY_SEE if l not in ('planner', 'row_math')],
     'the planner is pure and row_math is plain arithmetic'),
    (r'absl/', [l for l in MAY_SEE if l not in ('row_math', 'device', 'kernels')], 'compiled by nvcc: no Abseil'),
]
_IMPURE = ('common/clock.h', 'common/files/file_system.h')


def layer_of(path):
    folders = [f for f in LAYER_OF_FOLDER if path.startswith(f)]
    return LAYER_OF_FOLDER[max(folders, key=len)] if folders else None


def check(path, text, sources):
    """Yields (line, message). `sources` are all paths: what is not among them comes from outside."""
    layer = layer_of(path)
    if layer is None:
        return
    for line, name, quoted in cpp_source.includes(text):
        inside = f'client/include/{name}' if name.startswith('hotbed/') else name
        if inside in sources or name.endswith('.pb.h'):
            target = layer_of(inside)
            if target not in (layer, None) and target not in MAY_SEE[layer]:
                yield line, f'{layer} may not include "{name}" of {target}; see tests/tidy/include_rules.py'
            if layer == 'planner' and inside in _IMPURE:
                yield line, f'the planner is pure: no "{name}"; pass values in'
        else:
            for pattern, layers, why in OUTSIDE:
                if re.match(pattern, name) and layer not in layers:
                    yield line, f'{layer} may not include {name}: {why}'
            if quoted and '/' not in name:
                yield line, f'"{name}": include paths begin at the root of the repository'
