"""Cases for hotbed-parity (docs/parity.md) from numpy arrays, and the cluster that many of them share."""

import json
import os
import subprocess
import sys
import tempfile
import time
import unittest

BIN = os.environ.get("HOTBED_BIN", "build/bin")
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "e2e"))
SKIPPED = 77  # what CTest takes for a skip
WAIT_SECONDS = 120
_cluster = None
_tables = 0


def skip_all(reason):
    """Ends the script as skipped, in the words that ./dev test counts."""
    name = os.path.splitext(os.path.basename(sys.argv[0]))[0]
    print(f"tests/parity/{name}.py:1: Skipped\n{reason}\n[  SKIPPED ] parity.{name} (0 ms)")
    sys.exit(SKIPPED)


try:
    import numpy as np
except ImportError:
    skip_all("numpy is missing: apt-get install python3-numpy (./dev test does)")


class Failed(Exception):
    """hotbed-parity said no; `.result` is what it wrote, if it did."""

    def __init__(self, text, code, result):
        super().__init__(text)
        self.code = code
        self.result = result


def use_cluster(servers=2):
    """Starts one cluster for all cases of this script that name none."""
    global _cluster
    import local
    directory = tempfile.TemporaryDirectory(prefix="hotbed-parity-")
    up = local.Up(directory.name, "--servers", servers, "--port", 0)

    class Cluster:
        address = up.coordinator

        @staticmethod
        def stop():
            up.stop()
            directory.cleanup()

    _cluster = Cluster
    unittest.addModuleCleanup(Cluster.stop)


def table_name(stem="t"):
    """A name that no other case of the shared cluster has."""
    global _tables
    _tables += 1
    return f"{stem}{_tables}.{os.getpid()}"


def _stored(value, directory, counter):
    """The case with its arrays in files next to it."""
    if isinstance(value, np.ndarray):
        counter.append(f"in{len(counter)}.npy")
        np.save(os.path.join(directory, counter[-1]), np.ascontiguousarray(value))
        return counter[-1]
    if isinstance(value, dict):
        return {str(k): _stored(v, directory, counter) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [_stored(v, directory, counter) for v in value]
    if isinstance(value, np.generic):
        return value.item()
    return value


def _loaded(value, directory):
    """The result with its files as arrays."""
    if isinstance(value, str) and value.endswith(".npy"):
        return np.load(os.path.join(directory, value))
    if isinstance(value, dict):
        return {k: _loaded(v, directory) for k, v in value.items()}
    if isinstance(value, list):
        return [_loaded(v, directory) for v in value]
    return value


def run(case, *flags, own=False):
    """Runs a case, on the shared cluster unless `own`; the result with numpy arrays. Failed where it does. Tables begin with zeros
    unless the case says how."""
    if "tables" in case:
        case = {**case, "tables": [t if t.get("existing") else {"init": "zero", **t} for t in case["tables"]]}
    target = [] if own else ["--coordinator", _cluster.address]
    with tempfile.TemporaryDirectory(prefix="hotbed-case-") as directory:
        path, out = os.path.join(directory, "case.json"), os.path.join(directory, "out")
        with open(path, "w", encoding="utf-8") as file:
            json.dump(_stored(case, directory, []), file)
        env = {k: v for k, v in os.environ.items() if not k.startswith("HOTBED_")}
        done = subprocess.run([os.path.join(BIN, "hotbed-parity"), path, "--out", out, *target, *map(str, flags)],
                              capture_output=True, text=True, timeout=WAIT_SECONDS, check=False, env=env)
        result = None
        if os.path.exists(os.path.join(out, "result.json")):
            with open(os.path.join(out, "result.json"), encoding="utf-8") as file:
                result = _loaded(json.load(file), out)
    if done.returncode != 0:
        raise Failed(done.stderr.strip(), done.returncode, result)
    return result


def batch(lengths, ids, keys=("f",), weights=None):
    """A batch of a case; ids may be any integers of numpy or Python."""
    ids = np.asarray(ids)
    out = {"keys": list(keys), "lengths": np.asarray(lengths, dtype="<u4").reshape(-1),
           "ids": (ids if ids.size else ids.astype("<i8")).reshape(-1)}
    if weights is not None:
        out["weights"] = np.asarray(weights, dtype="<f4").reshape(-1)
    return out


class SeededTest(unittest.TestCase):
    """A test with self.random; a failure prints the seed and the command that replays it."""

    fallback_seed = 1

    def setUp(self):
        self.seed = int(os.environ.get("HOTBED_TEST_SEED", self.fallback_seed))
        self.random = np.random.default_rng(self.seed)
        self.begin = time.monotonic()

    def replay(self):
        script = os.path.basename(sys.argv[0])
        return f"replay: HOTBED_BIN={BIN} HOTBED_TEST_SEED={self.seed} python3 tests/parity/{script} {self.id().split('.', 1)[1]}"

    def run(self, result=None):
        result = result if result is not None else self.defaultTestResult()
        before = len(result.failures) + len(result.errors)
        super().run(result)
        if len(result.failures) + len(result.errors) > before:
            print(self.replay(), file=sys.stderr, flush=True)
        return result

    def assert_close(self, got, wanted, what, tolerance=1e-6, scale=1.0):
        """Within `tolerance`, absolute below 1 (or `scale`, as an array of the same shape) and relative above."""
        got, wanted = np.asarray(got, dtype=np.float64), np.asarray(wanted, dtype=np.float64)
        self.assertEqual(got.shape, wanted.shape, what)
        error = np.abs(got - wanted) / np.maximum(np.maximum(1.0, scale), np.abs(wanted))
        if got.size and not error.max() <= tolerance:
            at = np.unravel_index(np.nanargmax(np.where(np.isnan(error), np.inf, error)), error.shape)
            self.fail(f"{what}: at {tuple(int(i) for i in at)} {got[at]!r}, expected {wanted[at]!r}; "
                      f"{int((~(error <= tolerance)).sum())} of {got.size} differ by more than {tolerance}")

    def assert_bits(self, got, wanted, what):
        """Equal to the byte."""
        self.assertEqual((got.dtype, got.shape), (wanted.dtype, wanted.shape), what)
        if got.tobytes() != wanted.tobytes():
            width = np.dtype(f"u{got.dtype.itemsize}")
            different = np.argwhere(got.view(width) != wanted.view(width))
            at = tuple(int(i) for i in different[0])
            self.fail(f"{what}: {len(different)} of {got.size} elements differ, first at {at}: "
                      f"{got[at]!r} and {wanted[at]!r}")


def main():
    unittest.main(verbosity=2)
