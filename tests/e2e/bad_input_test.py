"""Bad input to whole processes: each is refused, naming the thing, the value and the next step."""

import json
import os
import re
import socket
import subprocess
import time
import unittest

import local

DAEMONS = ("hotbed-server", "hotbed-coordinator")


class Daemon:
    """A daemon in the foreground, its output in one string."""

    def __init__(self, name, *args):
        self.process = subprocess.Popen([local.program(name), *map(str, args)], stdout=subprocess.PIPE,
                                        stderr=subprocess.STDOUT, text=True, env=local.clean_environment())
        self.said = ""

    def first_line_with(self, words, seconds=local.WAIT_SECONDS):
        limit = time.monotonic() + seconds
        while time.monotonic() < limit:
            line = self.process.stdout.readline()
            self.said += line
            if words in line:
                return line
            if not line:
                break
        raise AssertionError(f"'{words}' was not said: {self.said}")

    def end(self, seconds=local.WAIT_SECONDS):
        """(exit code, output) of a daemon that must end by itself."""
        out, _ = self.process.communicate(timeout=seconds)
        return self.process.returncode, self.said + out

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.kill()
        self.process.communicate()


def coordinator(directory, name="c"):
    daemon = Daemon("hotbed-coordinator", "--listen=127.0.0.1:0", "--admin-listen=127.0.0.1:0",
                    f"--data-dir={directory}/{name}")
    daemon.address = re.search(r"127\.0\.0\.1:\d+", daemon.first_line_with("serving")).group(0)
    return daemon


def server_args(directory, address, name="s0", data=None):
    return (f"--name={name}", f"--coordinator={address}", "--listen=127.0.0.1:0", "--admin-listen=127.0.0.1:0",
            f"--data-dir={data or directory + '/' + name}", "--host-bytes=128MiB")


class CommandLines(unittest.TestCase):
    def test_unknown_flag_names_the_nearest(self):
        for name in DAEMONS:
            with self.subTest(name):
                code, out, err = local.run(name, "--admin-lisen=127.0.0.1:0")
                self.assertEqual(code, 2)
                self.assertEqual(out, "")
                self.assertIn("admin-lisen", err)
                self.assertIn("admin-listen", err)

    def test_unknown_key_of_a_file_names_the_nearest(self):
        with local.Directory() as directory:
            path = os.path.join(directory, "config.yaml")
            with open(path, "w", encoding="utf-8") as file:
                file.write("listen: 127.0.0.1:0\ndata-dri: /tmp\n")
            for name in DAEMONS:
                with self.subTest(name):
                    code, _, err = local.run(name, f"--config={path}")
                    self.assertEqual(code, 2)
                    self.assertIn("data-dri", err)
                    self.assertIn("data-dir", err)
                    self.assertIn(path, err)

    def test_bad_values_name_flag_and_limits(self):
        code, _, err = local.run("hotbed-server", "--host-bytes=1MiB")
        self.assertEqual(code, 2)
        self.assertIn("host-bytes", err)
        self.assertIn("64", err)

    def test_sample_configurations_hold_every_key(self):
        for name in DAEMONS:
            with self.subTest(name):
                path = os.path.join(local.SOURCE, "deploy", f"{name}.yaml")
                code, out, err = local.run(name, f"--config={path}", "--print-config")
                self.assertEqual(code, 0, err)
                keys = re.findall(r"^([a-z][a-z0-9-]*):", out, re.M)
                with open(path, encoding="utf-8") as file:
                    sample = re.findall(r"^(?:# )?([a-z][a-z0-9-]*): ", file.read(), re.M)
                self.assertEqual(sorted(set(sample)), sorted(set(keys)))


class DataDirectories(unittest.TestCase):
    def test_not_writable(self):
        for name in DAEMONS:
            with self.subTest(name):
                args = ["--listen=127.0.0.1:0", "--admin-listen=127.0.0.1:0", "--data-dir=/proc/hotbed"]
                if name == "hotbed-server":
                    args += ["--name=s0", "--coordinator=127.0.0.1:1"]
                code, _, err = local.run(name, *args)
                self.assertNotEqual(code, 0)
                self.assertIn("/proc/hotbed", err)

    def test_in_use(self):
        with local.Directory() as directory, coordinator(directory) as first:
            with Daemon("hotbed-coordinator", "--listen=127.0.0.1:0", "--admin-listen=127.0.0.1:0",
                        f"--data-dir={directory}/c") as second:
                code, said = second.end()
                self.assertNotEqual(code, 0)
                self.assertIn(f"{directory}/c", said)
            with Daemon("hotbed-server", *server_args(directory, first.address)) as server:
                server.first_line_with("serving")
                args = server_args(directory, first.address, name="other", data=f"{directory}/s0")
                with Daemon("hotbed-server", *args) as second:
                    code, said = second.end()
                    self.assertNotEqual(code, 0)
                    self.assertIn(f"{directory}/s0", said)
                    self.assertIn("use", said)

    def test_of_another_version(self):
        with local.Directory() as directory:
            with coordinator(directory) as first:
                with Daemon("hotbed-server", *server_args(directory, first.address)) as server:
                    server.first_line_with("serving")
                path = self.change_version(os.path.join(directory, "s0"))
                with Daemon("hotbed-server", *server_args(directory, first.address)) as server:
                    code, said = server.end()
                    self.assertNotEqual(code, 0)
                    self.assertIn("version", said)
                    self.assertIn(path, said)
            with open(os.path.join(directory, "c", "VERSION"), "w", encoding="utf-8") as file:
                file.write("hotbed-coordinator 99\n")
            with Daemon("hotbed-coordinator", "--listen=127.0.0.1:0", "--admin-listen=127.0.0.1:0",
                        f"--data-dir={directory}/c") as second:
                code, said = second.end()
                self.assertNotEqual(code, 0)
                self.assertIn("hotbed-coordinator 99", said)

    def change_version(self, directory):
        """Writes a later version into the server's identity file and returns its path."""
        for root, _, names in os.walk(directory):
            for name in names:
                path = os.path.join(root, name)
                with open(path, "rb") as file:
                    content = file.read()
                if b"\nversion: " in content[:200]:
                    with open(path, "wb") as file:
                        file.write(re.sub(rb"\nversion: \d+", b"\nversion: 999", content))
                    return path
        raise AssertionError(f"no identity file in {directory}")

    def test_of_another_cluster(self):
        with local.Directory() as directory, coordinator(directory, "c1") as one, coordinator(directory, "c2") as two:
            with Daemon("hotbed-server", *server_args(directory, one.address)) as server:
                server.first_line_with("serving")
            # A coordinator without servers might have lost its metadata: there it waits to be adopted.
            with local.Directory() as other, Daemon("hotbed-server", *server_args(other, two.address)) as first:
                first.first_line_with("serving")
                with Daemon("hotbed-server", *server_args(directory, two.address)) as server:
                    code, said = server.end()
                    self.assertNotEqual(code, 0)
                    self.assertIn("has a data directory of cluster", said)

    def test_up_with_less_servers_than_stored(self):
        with local.Directory() as directory:
            data = os.path.join(directory, "data")
            up = local.Up(data, "--servers", 2, "--port", 0, "--host-bytes", "128MiB")
            self.assertEqual(up.stop()[0], 0)
            code, _, err = local.run("hotbed", "up", "--data-dir", data, "--servers", 1)
            self.assertEqual(code, 1)
            self.assertIn("holds 2 servers", err)


class Ports(unittest.TestCase):
    def setUp(self):
        self.taken = socket.socket()
        self.taken.bind(("127.0.0.1", 0))
        self.taken.listen()
        self.address = f"127.0.0.1:{self.taken.getsockname()[1]}"

    def tearDown(self):
        self.taken.close()

    def test_in_use_is_named(self):
        with local.Directory() as directory, coordinator(directory) as first:
            for flag in ("--listen", "--admin-listen"):
                with self.subTest(flag):
                    args = [arg for arg in server_args(directory, first.address) if not arg.startswith(f"{flag}=")]
                    with Daemon("hotbed-server", *args, f"{flag}={self.address}") as d:
                        code, said = d.end()
                        self.assertNotEqual(code, 0)
                        self.assertIn(self.address, said)
                    other = "--admin-listen" if flag == "--listen" else "--listen"
                    with Daemon("hotbed-coordinator", f"{other}=127.0.0.1:0", f"--data-dir={directory}/c9",
                                f"{flag}={self.address}") as d:
                        code, said = d.end()
                        self.assertNotEqual(code, 0)
                        self.assertIn(self.address, said)

    def test_in_use_by_up(self):
        with local.Directory() as directory:
            code, out, err = local.run("hotbed", "up", "--data-dir", os.path.join(directory, "d"), "--port",
                                       self.address.split(":")[1])
            self.assertEqual((code, out), (1, ""))
            self.assertIn(f"{self.address} (coordinator) is in use", err)


class Cli(unittest.TestCase):
    def test_wrong_words_exit_with_two_and_name_the_nearest(self):
        for words, near in ((("stauts",), "status"), (("table", "creat", "x"), "create"),
                            (("status", "--coordinater=x:1"), "--coordinator")):
            code, out, err = local.run("hotbed", *words)
            self.assertEqual((code, out), (2, ""))
            self.assertIn(f"did you mean '{near}'", err)

    def test_errors_as_json(self):
        code, out, err = local.run("hotbed", "status", "-o", "json", "--coordinator", "127.0.0.1:1", "--timeout", "1s")
        self.assertEqual((code, out), (1, ""))
        self.assertEqual(json.loads(err)["error"]["code"], "UNAVAILABLE")


if __name__ == "__main__":
    unittest.main()
