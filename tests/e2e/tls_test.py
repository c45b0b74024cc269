#!/usr/bin/env python3
"""A cluster with TLS: roles, tokens, rules that change, certificates that change, and strangers."""

import glob
import json
import os
import socket
import ssl
import subprocess
import threading
import time
import unittest

import local

RULES = """rules:
  - role: reader
    methods: [%s]
  - role: operator
    methods: [%s]
%stokens:
  - name: dashboard
    role: reader
    sha256: %s
"""
BY_TABLE = """  - role: reader
    methods: [Lookup, ListRows, ReadChanges]
    tables: ["ads.*"]
  - role: trainer
    methods: [GetClusterMap, WatchClusterMap, OpenSession]
  - role: trainer
    methods: [CreateTable, CreateTables, AlterTable, DropTable, Push]
    tables: ["ads.*", "bench-*"]
"""
READS = "Lookup, Pull, GetClusterMap, WatchClusterMap"
PUSHES = ("bench", "push", "--rows", "1000", "--repeats", "1", "--no-roofs", "-o", "json", "--seconds")


class Tls(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.directory = local.Directory()
        cls.path = cls.directory.__enter__()
        cls.token = os.path.join(cls.path, "token")
        with open(cls.token, "w", encoding="utf-8") as file:
            file.write("a token nobody guesses\n")
        code, out, err = local.run("hotbed", "cert", "hash-token", cls.token)
        assert code == 0, err
        cls.hash = out.strip()
        cls.rules = os.path.join(cls.path, "rules.yaml")
        cls.data = os.path.join(cls.path, "cluster")
        cls.allow(READS)
        cls.up = local.Up(cls.data, "--servers", 2, "--port", 0, "--tls", "--access-rules", cls.rules)
        cls.ok("operator", "table", "create", "t", "--dim", 8, "--rows", 100000, "--durability", "replicated=2")

    @classmethod
    def tearDownClass(cls):
        cls.up.stop()
        cls.directory.__exit__(None, None, None)

    @classmethod
    def allow(cls, reader, operator="'*'", more=""):
        with open(cls.rules + ".new", "w", encoding="utf-8") as file:
            file.write(RULES % (reader, operator, more, cls.hash))
        before = cls.changes_of_rules()
        os.rename(cls.rules + ".new", cls.rules)
        local.eventually("every process has the rules", lambda: all(
            count > before[process] for process, count in cls.changes_of_rules().items()))

    @classmethod
    def changes_of_rules(cls):
        """By process: how often it has taken changed rules."""
        counts = {}
        for path in glob.glob(os.path.join(cls.data, "logs", "*.log")):
            with open(path, encoding="utf-8", errors="replace") as log:
                counts[path] = log.read().count("its rules hold from now on")
        return counts

    def allow_reads(self):
        self.allow(READS)
        local.eventually("the reader is back", lambda: self.call("reader", "row", "get", "t", "7")[0] == 0)

    @classmethod
    def files(cls, who):
        folder = os.path.join(cls.data, "tls")
        env = dict(local.clean_environment(), HOTBED_TLS_CA=os.path.join(folder, "ca.crt"))
        if who == "token":
            return dict(env, HOTBED_TOKEN_FILE=cls.token)
        return dict(env, HOTBED_TLS_CERT=os.path.join(folder, who + ".crt"), HOTBED_TLS_KEY=os.path.join(folder, who + ".key"))

    @classmethod
    def call(cls, who, *args):
        env = cls.files(who) if who else local.clean_environment()
        return local.run("hotbed", "--coordinator", cls.up.coordinator, "--timeout", "5s", *args, env=env)

    @classmethod
    def ok(cls, who, *args):
        code, out, err = cls.call(who, *args)
        assert code == 0, err
        return out

    def refused(self, who, said, *args):
        code, _, err = self.call(who, *args)
        self.assertEqual(code, 1, err)
        for text in said:
            self.assertIn(text, err)

    def test_each_role_may_do_its_work_and_no_more(self):
        self.ok("operator", *PUSHES, "0.2")
        self.ok("reader", "row", "get", "t", "5")
        self.ok("token", "row", "get", "t", "5")
        self.refused("trainer", ['"trainer" may not call DropTable'], "table", "drop", "t", "--yes")
        self.refused("reader", ['"reader" may not call CreateTable', "rules.yaml line 2"], "table", "create", "u", "--dim", 2, "--rows", 10)
        self.refused("token", ['"dashboard" may not call CreateTable'], "table", "create", "u", "--dim", 2, "--rows", 10)
        self.refused("server", ['"server" may not call CreateTable'], "table", "create", "u", "--dim", 2, "--rows", 10)
        code, out, err = self.call("operator", "doctor", "-o", "json")
        self.assertEqual(code, 0, err + out)

    def test_strangers_learn_nothing(self):
        self.refused(None, ["coordinator at", "--tls-ca"], "table", "list")
        # A certificate of another authority.
        other = os.path.join(self.path, "other")
        for args in (("create-ca", "--dir", other), ("create", "--dir", other, "--name", "spy", "--role", "operator")):
            self.assertEqual(local.run("hotbed", "cert", *args)[0], 0)
        env = dict(self.files("operator"), HOTBED_TLS_CERT=os.path.join(other, "spy.crt"), HOTBED_TLS_KEY=os.path.join(other, "spy.key"))
        code, _, err = local.run("hotbed", "--coordinator", self.up.coordinator, "--timeout", "2s", "table", "list", env=env)
        self.assertEqual(code, 1)
        self.assertIn("not signed by", err)
        # Bytes that are no TLS, half a handshake, and idle connections leave the cluster as it was.
        host, port = self.up.coordinator.rsplit(":", 1)
        opened = []
        for garbage in (b"GET / HTTP/1.1\r\n\r\n", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"\x16\x03\x01\x02\x00\x01", bytes(range(256)) * 64, b""):
            opened.append(socket.create_connection((host, int(port)), timeout=5))
            self.addCleanup(opened[-1].close)
            opened[-1].sendall(garbage)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        context.set_alpn_protocols(["h2"])
        with socket.create_connection((host, int(port)), timeout=5) as plain, context.wrap_socket(plain) as encrypted:
            self.assertIn(encrypted.version(), ("TLSv1.2", "TLSv1.3"))
        self.ok("reader", "row", "get", "t", "5")

    def test_rules_that_change_hold_for_open_connections(self):
        self.addCleanup(self.allow_reads)
        pushing = subprocess.Popen([local.program("hotbed"), "--coordinator", self.up.coordinator, *PUSHES, "60"],
                                   env=self.files("operator"), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        local.eventually("the table of the pushes", lambda: "bench" in self.ok("operator", "table", "list"))
        self.allow("GetClusterMap, WatchClusterMap", "CreateTable, CreateTables, DropTable, OpenSession, GetClusterMap, WatchClusterMap, Pull")
        _, err = pushing.communicate(timeout=50)
        self.assertIn('may not call Push', err)
        # Not at once: the change closes connections, that of such a call as well.
        local.eventually("the reader is refused", lambda: '"reader" may not call Lookup' in self.call("reader", "row", "get", "t", "7")[2])

    def test_rules_hold_for_single_tables(self):
        self.addCleanup(self.allow_reads)
        for table in ("ads.user", "other"):
            self.ok("operator", "table", "create", table, "--dim", 4, "--rows", 100)
        self.allow("GetClusterMap, WatchClusterMap", more=BY_TABLE)
        other = '"reader" may not call Lookup with table other'
        # A process that takes rules closes connections, also those of these calls.
        local.eventually("the rules hold", lambda: other in self.call("reader", "row", "get", "other", "7")[2])
        local.eventually("the token is refused", lambda: "dashboard" in self.call("token", "row", "get", "other", "7")[2])
        for who in ("reader", "token"):
            local.eventually(f"the {who} reads", lambda who=who: self.call(who, "row", "get", "ads.user", "7")[0] == 0)
        self.refused("token", ['"dashboard" may not call Lookup with table other', "rules.yaml line 2, line 6"], "row", "get", "other", "7")
        self.ok("reader", "table", "scan", "ads.user")
        self.refused("reader", ['"reader" may not call ListRows with table other'], "table", "scan", "other")
        self.ok("trainer", "table", "create", "ads.item", "--dim", 4, "--rows", 100)
        self.refused("trainer", ["may not call CreateTable", "with table item"], "table", "create", "item", "--dim", 4, "--rows", 100)
        self.ok("trainer", "table", "alter", "ads.item", "--at-step", 10, "--learning-rate", "0.5")
        self.refused("trainer", ["may not call AlterTable with table other"], "table", "alter", "other", "--at-step", 10, "--learning-rate", "0.5")
        self.refused("trainer", ["may not call DropTable with table other"], "table", "drop", "other", "--yes")
        self.ok("trainer", "table", "drop", "ads.item", "--yes")
        self.ok("trainer", *PUSHES, "0.2")
        for table in ("ads.user", "other"):
            self.ok("operator", "table", "drop", table, "--yes")
        text = "".join(local.http(s["admin_address"], "/metrics")[2]
                       for s in json.loads(self.ok("operator", "status", "-o", "json"))["servers"])
        self.assertRegex(text, r'hotbed_access_refused_total\{port="data"\} [1-9]')

    def test_new_certificates_are_taken_under_load(self):
        results = []

        def push():
            results.append(self.call("operator", *PUSHES, "4"))

        pusher = threading.Thread(target=push)
        pusher.start()
        time.sleep(1)
        folder = os.path.join(self.data, "tls")
        for who in ("server", "trainer", "operator"):
            code, _, err = local.run("hotbed", "cert", "create", "--dir", folder, "--name", who, "--role", who, "--days", "7", "--replace")
            self.assertEqual(code, 0, err)
        pusher.join()
        self.assertEqual(results[0][0], 0, results[0][2])
        shown = json.loads(local.run("hotbed", "cert", "show", os.path.join(folder, "server.crt"), "-o", "json")[1])
        host, port = self.up.coordinator.rsplit(":", 1)

        def served():
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            context.load_verify_locations(os.path.join(folder, "ca.crt"))
            context.check_hostname = False
            context.set_alpn_protocols(["h2"])
            with socket.create_connection((host, int(port)), timeout=5) as plain, context.wrap_socket(plain) as encrypted:
                return ssl.cert_time_to_seconds(encrypted.getpeercert()["notAfter"]) == shown[0]["not_after_s"]

        local.eventually("the coordinator shows the new certificate", served)
        self.ok("operator", "table", "list")


class AdminTokens(unittest.TestCase):
    def write(self, token):
        """Makes it the one token of the file of tokens."""
        with open(self.token, "w", encoding="utf-8") as file:
            file.write(token + "\n")
        code, out, err = local.run("hotbed", "cert", "hash-token", self.token)
        self.assertEqual(code, 0, err)
        with open(self.tokens + ".new", "w", encoding="utf-8") as file:
            file.write(f"tokens:\n  - name: prometheus\n    role: reader\n    sha256: {out.strip()}\n")
        os.rename(self.tokens + ".new", self.tokens)

    def page(self, path, token=""):
        return local.http(self.admin, path, token=token)

    def test_pages_need_a_token_of_a_file_that_may_change(self):
        with local.Directory() as directory:
            self.token, self.tokens = os.path.join(directory, "token"), os.path.join(directory, "tokens.yaml")
            port, admin_port = local.free_port(), local.free_port()
            self.admin = f"127.0.0.1:{admin_port}"
            command = ["hotbed-coordinator", f"--listen=127.0.0.1:{port}", f"--admin-listen={self.admin}", f"--data-dir={directory}/c",
                       f"--admin-tokens={self.tokens}"]
            with open(self.tokens, "w", encoding="utf-8") as file:
                file.write("tokens: []\n")
            code, _, err = local.run(*command)
            self.assertEqual(code, 1)
            self.assertIn("it lists no token", err)
            self.write("the first token of this test")
            with open(os.path.join(directory, "log"), "w", encoding="utf-8") as log:
                process = subprocess.Popen([local.program(command[0]), *command[1:]], stdout=log, stderr=log, env=local.clean_environment())
            self.addCleanup(process.wait)
            self.addCleanup(process.kill)
            local.eventually("the coordinator is ready", lambda: self.page("/readyz")[0] == 200)
            for path in ("/metrics", "/api/cluster", "/console", "/"):
                status, _, body = self.page(path)
                self.assertEqual(status, 401)
                self.assertIn("--admin-tokens", body)
                self.assertEqual(self.page(path, "another token of this test")[0], 401)
            self.assertRegex(self.page("/metrics", "the first token of this test")[2], r'hotbed_access_refused_total\{port="admin"\} 8\b')
            self.assertEqual(local.run("hotbed", "health", "--admin", self.admin)[0], 0)
            doctor = ("hotbed", "--coordinator", f"127.0.0.1:{port}", "doctor")
            self.assertIn("answers 401", local.run(*doctor)[1])
            self.assertNotIn("answers 401", local.run(*doctor, "--admin-token-file", self.token)[1])
            self.write("the second token of this test")
            local.eventually("the new token is taken", lambda: self.page("/metrics", "the second token of this test")[0] == 200)
            self.assertEqual(self.page("/metrics", "the first token of this test")[0], 401)
            with open(os.path.join(directory, "log"), encoding="utf-8") as log:
                self.assertIn("access refused on the admin port: a request without a token", log.read())


class Refusals(unittest.TestCase):
    def test_plaintext_is_for_loopback_and_bad_files_are_named(self):
        with local.Directory() as directory:
            code, _, err = local.run("hotbed-coordinator", "--listen=0.0.0.0:0", "--admin-listen=127.0.0.1:0", f"--data-dir={directory}/c")
            self.assertEqual(code, 1)
            self.assertIn("--secure=off-beyond-loopback", err)
            missing = os.path.join(directory, "none.crt")
            code, _, err = local.run("hotbed-coordinator", "--listen=127.0.0.1:0", "--admin-listen=127.0.0.1:0", f"--data-dir={directory}/c",
                                     f"--tls-ca={missing}", f"--tls-cert={missing}", f"--tls-key={missing}")
            self.assertEqual(code, 1)
            self.assertIn("none.crt", err)
            code, _, err = local.run("hotbed", "cert", "create", "--dir", directory, "--name", "x", "--role", "king")
            self.assertEqual(code, 2)
            code, _, err = local.run("hotbed", "cert", "create", "--dir", directory, "--name", "x", "--role", "reader")
            self.assertEqual(code, 1)
            self.assertIn("ca.crt", err)


if __name__ == "__main__":
    unittest.main()
