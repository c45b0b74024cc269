"""`hotbed up` and the other programs as child processes, for the end-to-end tests. Standard library only."""

import json
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import urllib.error
import urllib.request

BIN = os.environ.get("HOTBED_BIN", "build/bin")
SOURCE = os.environ.get("HOTBED_SOURCE", ".")
WAIT_SECONDS = 60
# Where the tests run in the background of a shell, Ctrl-C is ignored, also by programs that they start: calls would never end.
signal.signal(signal.SIGINT, signal.default_int_handler)


def program(name):
    return os.path.join(BIN, name)


def clean_environment():
    """The caller's environment without variables that configure Hotbed."""
    return {k: v for k, v in os.environ.items() if not k.startswith("HOTBED_")}


def run(name, *args, timeout=WAIT_SECONDS, env=None):
    """Runs a program to its end: (exit code, stdout, stderr)."""
    done = subprocess.run([program(name), *map(str, args)], capture_output=True, text=True, timeout=timeout,
                          env={**clean_environment(), **(env or {})}, stdin=subprocess.DEVNULL, check=False)
    return done.returncode, done.stdout, done.stderr


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def http(address, path, accept="*/*", agent="curl/7", token=""):
    """(status, content type, body) of a GET, errors included."""
    request = urllib.request.Request(f"http://{address}{path}", headers={"Accept": accept, "User-Agent": agent})
    if token:
        request.add_header("Authorization", f"Bearer {token}")
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(request, timeout=10) as reply:
            return reply.status, reply.headers["Content-Type"], reply.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.headers["Content-Type"], error.read().decode()


def eventually(what, check, seconds=WAIT_SECONDS):
    """Waits until check() is true; fails naming `what` and the last answer."""
    limit = time.monotonic() + seconds
    while True:
        try:
            last = check()
        except OSError as error:
            last, ok = error, False
        else:
            ok = bool(last)
        if ok:
            return last
        if time.monotonic() > limit:
            raise AssertionError(f"not within {seconds} s: {what} (last: {last})")
        time.sleep(0.05)


class Up:
    """A running `hotbed up`."""

    def __init__(self, data_dir, *args):
        self.data_dir = data_dir
        self.process = subprocess.Popen(
            [program("hotbed"), "up", "--data-dir", data_dir, "-o", "json", *map(str, args)],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=clean_environment(),
            stdin=subprocess.DEVNULL)
        line = self.process.stdout.readline()
        if not line:
            raise AssertionError(f"hotbed up ended: {self.process.stderr.read()}")
        self.info = json.loads(line)
        self.coordinator = self.info["coordinator"]

    def cli(self, *args, **kwargs):
        return run("hotbed", *args, "--coordinator", self.coordinator, **kwargs)

    def start(self, *args):
        """A command as a process, which the caller ends."""
        return subprocess.Popen([program("hotbed"), *map(str, args), "--coordinator", self.coordinator], text=True,
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=clean_environment(), stdin=subprocess.DEVNULL)

    def json(self, *args, **kwargs):
        code, out, err = self.cli(*args, "-o", "json", **kwargs)
        if code != 0:
            raise AssertionError(f"hotbed {' '.join(map(str, args))} exited {code}: {err}")
        return json.loads(out)

    def pids(self):
        return {p["name"]: p["pid"] for p in self.info["processes"]}

    def stop(self, how=signal.SIGINT):
        """(exit code, text on stderr)."""
        if self.process.poll() is None:
            self.process.send_signal(how)
        _, err = self.process.communicate(timeout=WAIT_SECONDS)
        return self.process.returncode, err


class Directory:
    """A temporary directory, removed at the end."""

    def __init__(self):
        self.path = tempfile.mkdtemp(prefix="hotbed-e2e-")

    def __enter__(self):
        return self.path

    def __exit__(self, *_):
        shutil.rmtree(self.path, ignore_errors=True)
