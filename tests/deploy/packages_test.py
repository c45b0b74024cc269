#!/usr/bin/env python3
"""The Debian packages in a fresh system that debootstrap makes: installed by apt, started as the services' user, used, removed.

  packages_test.py --packages build/packages

Exit status: 0 all well; 77 no such system can be made here (it says why).
"""

import argparse
import glob
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time

SOURCE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.append(os.path.join(SOURCE, "tests", "fault"))

from cluster import free_ports  # noqa: E402
from docker_engine import run  # noqa: E402
from sandbox import die_with_parent  # noqa: E402

PACKAGES = ("hotbed-server", "hotbed-coordinator", "hotbed-cli")


class System:
    """A folder with a Debian in it."""

    def __init__(self, directory):
        self.root = os.path.join(directory, "root")
        run("debootstrap", "--variant=minbase", "bookworm", self.root, seconds=900)
        run("mount", "-t", "proc", "proc", f"{self.root}/proc")
        shutil.copy("/etc/resolv.conf", f"{self.root}/etc/resolv.conf")

    def run(self, *command, seconds=600):
        env = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "DEBIAN_FRONTEND": "noninteractive", "LC_ALL": "C"}
        return run("chroot", self.root, *command, env=env, seconds=seconds)

    def service(self, name, settings):
        """Starts what the unit starts, as the unit's user, with settings on top of the installed configuration."""
        with open(f"{self.root}/usr/lib/systemd/system/{name}.service", encoding="utf-8") as file:
            unit = file.read()
        command = re.search(r"^ExecStart=(.*)$", unit, re.M)[1].split()
        user = re.search(r"^User=(.*)$", unit, re.M)[1]
        # As StateDirectory= would.
        state = f"{self.root}/var/lib/{re.search(r'^StateDirectory=(.*)$', unit, re.M)[1]}"
        os.makedirs(state, exist_ok=True)
        self.run("chown", f"{user}:{user}", state.removeprefix(self.root))
        return subprocess.Popen(["/usr/sbin/chroot", f"--userspec={user}:{user}", self.root, *command], preexec_fn=die_with_parent,
                                env={"PATH": "/usr/bin", **{f"HOTBED_{key}": value for key, value in settings.items()}},
                                stdout=subprocess.PIPE, text=True)

    def close(self):
        run("umount", f"{self.root}/proc")


def expect(told, holds, found=""):
    if not holds:
        raise RuntimeError(f"{told}: not so. {found}")
    print(told, flush=True)


def install(system, packages):
    os.makedirs(f"{system.root}/packages")
    for path in glob.glob(os.path.join(packages, "*.deb")):
        shutil.copy(path, f"{system.root}/packages")
    system.run("apt-get", "update")
    system.run("apt-get", "install", "-y", "--no-install-recommends",
               *(f"/packages/{os.path.basename(p)}" for name in PACKAGES for p in glob.glob(f"{packages}/{name}_*.deb")))
    said = system.run("apt-get", "install", "--simulate",
                      *(f"/packages/{os.path.basename(p)}" for p in glob.glob(f"{packages}/libhotbed-dev_*.deb")))
    expect("the client library's package can be installed", "libgrpc++-dev" in said and "Inst libhotbed-dev" in said, said)
    for path in ("etc/hotbed/server.yaml", "etc/hotbed/serving.yaml", "etc/hotbed/coordinator.yaml", "usr/share/bash-completion/completions/hotbed"):
        expect(f"/{path} is there", os.path.exists(f"{system.root}/{path}"))


def use(system):
    ports = [f"127.0.0.1:{port}" for port in free_ports(7)]
    coordinator = system.service("hotbed-coordinator", {"LISTEN": ports[0], "ADMIN_LISTEN": ports[1]})
    server = system.service("hotbed-server", {"COORDINATOR": ports[0], "LISTEN": ports[2], "ADMIN_LISTEN": ports[3],
                                              "HOST_BYTES": "128MiB"})
    serving = system.service("hotbed-serving", {"COORDINATOR": ports[0], "LISTEN": ports[4], "ADMIN_LISTEN": ports[5],
                                                "HTTP_LISTEN": ports[6], "HOST_BYTES": "128MiB"})
    try:
        expect("the coordinator serves", "serving" in coordinator.stdout.readline())
        expect("the server serves", "serving" in server.stdout.readline())
        expect("the serving server has an HTTP port", f"http {ports[6]}" in serving.stdout.readline())
        hotbed = ("hotbed", f"--coordinator={ports[0]}")
        system.run(*hotbed, "table", "create", "t", "--dim=4", "--rows=100")
        time.sleep(1)
        expect("a row is read", "17" in system.run(*hotbed, "row", "get", "t", "17"))
        system.run(*hotbed, "health", "--ready", f"--admin={ports[3]}")
        expect("settings of the package are in force", "/var/lib/hotbed/s0" in system.run("hotbed", "config", "print", "server"))
        for process in (serving, server, coordinator):
            process.terminate()
            expect("a service that is stopped ends well", process.wait(45) == 0)
    finally:
        for process in (serving, server, coordinator):
            process.kill()
            process.wait()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--packages", required=True)
    args = parser.parse_args()
    if os.geteuid() != 0 or shutil.which("debootstrap") is None:
        print("SKIPPED: debootstrap needs root, and to be there")
        return 77
    with tempfile.TemporaryDirectory(prefix="hotbed_packages_", ignore_cleanup_errors=True) as directory:
        system = System(directory)
        try:
            install(system, args.packages)
            use(system)
            system.run("apt-get", "remove", "-y", *PACKAGES)
            expect("what an operator has written stays", os.path.exists(f"{system.root}/etc/hotbed/server.yaml"))
            return 0
        except RuntimeError as error:
            print(f"FAILED: {error}")
            return 1
        finally:
            system.close()


if __name__ == "__main__":
    sys.exit(main())
