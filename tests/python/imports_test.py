"""Hotbed beside other users of gRPC, protobuf and the C++ runtime: imported before or after, in processes of their own.

HOTBED_EVERY_ORDER=1 runs every order of all of them.
"""

import importlib.util
import itertools
import os
import subprocess
import sys
import unittest

import hotbed

PARTS = {
    'hotbed': '''
def work():
    import numpy
    with hotbed.local(memory="128MiB") as client:
        table = client.create_table("t", dim=4, rows=100, init="zero", optimizer=hotbed.optim.SGD(lr=1.0))
        table.push([1, 1], numpy.ones((2, 4), numpy.float32), step=1)
        assert table.pull([1]).tolist() == [[-2.0] * 4]
    try:
        hotbed.connect("hotbed://127.0.0.1:1", deadline=0.2)
        raise SystemExit("somebody listens on port 1")
    except hotbed.HotbedError:
        pass
''',
    'torch': '''
def work():
    a = torch.randn(64, 64, requires_grad=True)
    (a @ a).sum().backward()
    assert a.grad.shape == (64, 64)
''',
    'grpc': '''
def work():
    from concurrent import futures
    def echo(request, context):
        return request
    class Echo(grpc.GenericRpcHandler):
        def service(self, details):
            return grpc.unary_unary_rpc_method_handler(echo)
    server = grpc.server(futures.ThreadPoolExecutor(1))
    server.add_generic_rpc_handlers((Echo(),))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        assert channel.unary_unary("/a/b")(b"hello", timeout=30) == b"hello"
    server.stop(None).wait()
''',
    'google.protobuf': '''
def work():
    from google.protobuf import descriptor_pb2, struct_pb2, text_format
    value = struct_pb2.Struct()
    value.update({"a": 1.5, "b": ["x", True]})
    assert struct_pb2.Struct.FromString(value.SerializeToString()) == value
    assert "hotbed" not in text_format.MessageToString(descriptor_pb2.FileDescriptorProto(name="n"))
''',
}


def script(order):
    lines = []
    for part in order:
        lines += [f'import {part}', PARTS[part], 'work()', f'work_{part.replace(".", "_")} = work']
    lines += [f'work_{part.replace(".", "_")}()' for part in order] * 2
    return '\n'.join(lines + ['print("worked")'])


class Imports(unittest.TestCase):
    def orders(self):
        there = [p for p in PARTS if importlib.util.find_spec(p.split('.')[0]) is not None]
        if os.environ.get('HOTBED_EVERY_ORDER'):
            return list(itertools.permutations(there))
        others = [p for p in there if p != 'hotbed']
        return [('hotbed', *others), (*others, 'hotbed'), (*others[::-1], 'hotbed'), ('hotbed', *others[::-1])]

    def test_every_library_works_whatever_is_imported_first(self):
        for order in self.orders():
            with self.subTest(order=order):
                done = subprocess.run([sys.executable, '-B', '-c', script(order)], capture_output=True, text=True, timeout=120,
                                      check=False)
                self.assertEqual((done.returncode, done.stdout), (0, 'worked\n'), done.stderr)

    def test_nothing_is_shared_by_name(self):
        """The process maps our copies under their own names, the module exports one symbol, and no copy has a unique one."""
        folder = os.path.dirname(hotbed.__file__)
        module = os.path.join(folder, '_hotbed.abi3.so')
        symbols = subprocess.run(['nm', '-D', '--defined-only', module], check=True, capture_output=True, text=True).stdout
        self.assertEqual([line.split()[-1] for line in symbols.splitlines()], ['PyInit__hotbed'])
        libraries = os.listdir(os.path.join(folder, 'libs'))
        self.assertTrue({'hb_grpc++.so.1.51', 'hb_protobuf.so.32'} <= set(libraries) or len(libraries) > 10, libraries)
        for name in libraries:
            path = os.path.join(folder, 'libs', name)
            dynamic = subprocess.run(['readelf', '-dW', path], check=True, capture_output=True, text=True).stdout
            self.assertIn(f'[{name}]', dynamic)
            table = subprocess.run(['readelf', '--dyn-syms', '-W', path], check=True, capture_output=True, text=True).stdout
            self.assertNotIn(' UNIQUE ', table, name)
        program = 'import hotbed; print(open("/proc/self/maps").read())'
        maps = subprocess.run([sys.executable, '-B', '-c', program], check=True, capture_output=True, text=True).stdout
        mapped = {line.split('/')[-1] for line in maps.splitlines() if '.so' in line}
        self.assertFalse({m for m in mapped if m.startswith(('libgrpc', 'libprotobuf', 'libabsl', 'librocksdb'))}, mapped)

    def test_the_import_is_quick(self):
        """A bound that a slow machine keeps, too; docs/python.md has the measurement."""
        program = 'import time, numpy; b = time.perf_counter(); import hotbed; print(time.perf_counter() - b)'
        times = [float(subprocess.run([sys.executable, '-B', '-c', program], check=True, capture_output=True, text=True).stdout)
                 for _ in range(3)]
        self.assertLess(min(times), 1.0)


if __name__ == '__main__':
    unittest.main()
