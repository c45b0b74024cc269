"""An authority, certificates by role, and the flags of processes that use them."""

import os
import subprocess
import time

ROLES = ("server", "operator", "trainer", "reader")


class Certificates:
    def __init__(self, bin_dir, directory, name="tls"):
        self.bin_dir, self.directory = bin_dir, os.path.join(directory, name)
        self.run("create-ca")
        for role in ROLES:
            self.make(role)

    def run(self, *args, env=None):
        done = subprocess.run([os.path.join(self.bin_dir, "hotbed"), "cert", args[0], "--dir", self.directory, *map(str, args[1:])],
                              capture_output=True, text=True, timeout=60, env=dict(os.environ, **(env or {})), check=False)
        if done.returncode != 0:
            raise RuntimeError(f"hotbed cert {' '.join(map(str, args))}: {done.stderr}")

    def make(self, role, name="", replace=False):
        """The certificate of that role, and its key."""
        self.run("create", f"--name={name or role}", f"--role={role}", *(["--replace"] if replace else []))

    def make_expired(self, role, name):
        """One that was valid until the day before yesterday."""
        clock = os.path.join(self.directory, "clock")
        with open(clock, "w", encoding="ascii") as file:
            file.write(f"{-3 * 86400}\n")
        self.run("create", f"--name={name}", f"--role={role}", "--days=1",
                 env={"LD_PRELOAD": os.path.join(self.bin_dir, "libhotbed-clock-shim.so"), "HOTBED_CLOCK_SHIM": clock})

    def file(self, name):
        return os.path.join(self.directory, name)

    def flags(self, role="server"):
        return (f"--tls-ca={self.file('ca.crt')}", f"--tls-cert={self.file(role + '.crt')}", f"--tls-key={self.file(role + '.key')}")

    def environment(self, role):
        """Of callers."""
        return {"HOTBED_TLS_CA": self.file("ca.crt"), "HOTBED_TLS_CERT": self.file(role + ".crt"), "HOTBED_TLS_KEY": self.file(role + ".key")}

    def give_to(self, cluster):
        """To the processes of a cluster.Cluster that has not been started."""
        for process in cluster.processes():
            process.command += self.flags()

    def replace_all(self):
        for role in ROLES:
            self.make(role, replace=True)

    def replace_until(self, ended, every_seconds):
        """How often all were replaced before the event `ended`."""
        count = 0
        while not ended.wait(every_seconds):
            self.replace_all()
            count += 1
        return count


def wait_for(what, holds, seconds=60):
    deadline = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > deadline:
            raise RuntimeError(f"not within {seconds} s: {what}")
        time.sleep(0.05)
