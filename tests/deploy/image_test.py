#!/usr/bin/env python3
"""Builds the image with a Docker engine of its own, and trains on a cluster of containers of which one is killed.

  image_test.py --bin-dir build/bin [--packages build/packages]

The containers run as compose.yaml says: read-only, no capability, a numeric user; on the host's network, because the engine may
make none. Load comes from hotbed-load-meter, which counts every acknowledged push. --packages takes Debian packages that are there
already; otherwise the sources are compiled in the image. Exit status: 0 all well; 77 no engine can run here (it says why).
"""

import argparse
import json
import os
import re
import sys
import tempfile
import time

SOURCE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.append(os.path.join(SOURCE, "tests", "fault"))

from cluster import free_ports  # noqa: E402
from docker_engine import Engine, Unusable  # noqa: E402
from meter import Table  # noqa: E402

BYTES_MAX = 150_000_000
ROWS, DIM = 40_000, 64
SAFE = ("--read-only", "--tmpfs=/tmp", "--cap-drop=ALL", "--security-opt=no-new-privileges:true", "--network=host")


def version():
    with open(os.path.join(SOURCE, "CMakeLists.txt"), encoding="utf-8") as file:
        return re.search(r"project\(hotbed VERSION ([0-9.]+)", file.read())[1]


def expect(told, holds, found=""):
    if not holds:
        raise RuntimeError(f"{told}: not so. {found}")
    print(f"{told}{': ' + str(found) if found != '' else ''}", flush=True)


def build(engine, packages):
    """The image's name."""
    engine.make_base("debian:bookworm-slim")
    arguments = []
    if packages:
        with tempfile.TemporaryDirectory() as directory:
            os.makedirs(os.path.join(directory, "root", "packages"))
            for name in os.listdir(packages):
                if name.endswith(".deb") and name.startswith("hotbed-"):
                    os.link(os.path.join(packages, name), os.path.join(directory, "root", "packages", name))
            engine.import_folder(os.path.join(directory, "root"), "hotbed-programs:given")
        arguments = ["--build-arg", "PROGRAMS=hotbed-programs:given"]
    name = f"hotbed:{version()}"
    begin = time.monotonic()
    engine.docker("build", "--network=host", "-f", os.path.join(SOURCE, "docker", "Dockerfile"), "--target", "runtime", "-t", name,
                  "--build-arg", f"VERSION={version()}", *arguments, SOURCE, seconds=5400)
    print(f"built in {time.monotonic() - begin:.0f} s", flush=True)
    return name


def check_image(engine, image):
    told = json.loads(engine.docker("image", "inspect", image))[0]
    expect(f"smaller than {BYTES_MAX} bytes", told["Size"] < BYTES_MAX, told["Size"])
    config = told["Config"]
    expect("a numeric user that is not root", re.fullmatch(r"[1-9]\d*:[1-9]\d*", config["User"]), config["User"])
    expect("a health check without a shell", config["Healthcheck"]["Test"][:2] == ["CMD", "/usr/bin/hotbed"])
    expect("the version is a label", config["Labels"]["org.opencontainers.image.version"] == version())
    sbom = json.loads(engine.docker("run", "--rm", *SAFE, image, "cat", "/usr/share/hotbed/sbom.spdx.json"))
    names = {package["name"] for package in sbom["packages"]}
    expect("the SBOM names our packages and their libraries", {"hotbed-server", "hotbed-cli", "librocksdb7.8", "libc6"} <= names,
           f"{len(names)} packages")
    for program in ("hotbed", "hotbed-server", "hotbed-coordinator", "hotbed-train-ctr"):
        expect(f"{program} finds its libraries", "--" in engine.docker("run", "--rm", *SAFE, image, f"/usr/bin/{program}", "--help"))


class Containers:
    """A coordinator and three servers."""

    def __init__(self, engine, image):
        self.engine, self.image = engine, image
        ports = free_ports(8)
        self.address = f"127.0.0.1:{ports[0]}"
        self.start("coordinator", ["/usr/bin/hotbed-coordinator"], ports[0], ports[1], {})
        self.servers = [f"server-{i}" for i in range(3)]
        for i, name in enumerate(self.servers):
            self.start(name, ["/usr/bin/hotbed-server"], ports[2 + 2 * i], ports[3 + 2 * i], {
                "NAME": name, "COORDINATOR": self.address, "FAILURE_DOMAIN": name, "HOST_BYTES": "256MiB"})

    def start(self, name, command, port, admin, settings):
        settings = {**settings, "LISTEN": f"127.0.0.1:{port}", "ADMIN_LISTEN": f"127.0.0.1:{admin}", "DATA_DIR": "/data/hotbed"}
        self.engine.docker("run", "--detach", "--name", name, *SAFE, "--volume", f"{name}:/data", "--health-interval=1s",
                           *(f"--env=HOTBED_{key}={value}" for key, value in settings.items()), self.image, *command)

    def wait_healthy(self, seconds=90):
        deadline = time.monotonic() + seconds
        for name in ("coordinator", *self.servers):
            while self.engine.docker("inspect", "--format={{.State.Health.Status}}", name).strip() != "healthy":
                if time.monotonic() > deadline:
                    raise RuntimeError(f"{name} is not healthy after {seconds} s:\n{self.engine.docker('logs', name)[-2000:]}")
                time.sleep(0.3)

    def job(self, *command, volume="job:/data"):
        return self.engine.docker("run", "--rm", *SAFE, "--volume", volume, f"--env=HOTBED_COORDINATOR={self.address}", self.image,
                                  *command)


def train_and_kill(args, containers):
    containers.job("/usr/bin/hotbed", "datagen", "criteo", "--rows=60000", "--seed=1", "--out=/data/clicks.tsv")
    table = Table(args.bin_dir, containers.address, "kept", ROWS, DIM, "replicated=2", shards=6)
    table.wait_for(replicas=2)
    pushed = table.meter("fill").result()["ids_acknowledged"]
    load = table.meter("shards", "--seconds=300", "--pace-ms=50", "--ids=4")
    trainer = containers.engine.docker("run", "--detach", "--name=trainer", *SAFE, "--volume=job:/data", "--no-healthcheck",
                                       f"--env=HOTBED_COORDINATOR={containers.address}", containers.image,
                                       "/usr/bin/hotbed-train-ctr", "--format=criteo", "--train=/data/clicks.tsv",
                                       "--test-fraction=0.1").strip()
    time.sleep(2)
    containers.engine.docker("kill", "server-1")
    time.sleep(1)
    containers.engine.docker("start", "server-1")
    status = containers.engine.docker("wait", trainer).strip()
    said = containers.engine.docker("logs", trainer)
    expect("the trainer trained through the kill", status == "0" and "AUC" in said.upper(), said.strip().splitlines()[-1])
    table.wait_for(replicas=2)
    told = load.stop()
    pushed += told["ids_acknowledged"]
    expect("no call failed", told["errors"] == 0, f"{told['pushes']} pushes, the longest {told['push_us_p100'] / 1e3:.0f} ms")
    expect("the sum of the table is that of all acknowledged pushes", table.sum() == pushed, pushed)
    containers.wait_healthy()
    said = containers.job("/usr/bin/hotbed", "server", "retire", "server-0", "--wait=30s")
    expect("server-0 may be stopped", "may be stopped" in said, said.strip())
    containers.engine.docker("stop", "--time=45", "server-0")
    status = containers.engine.docker("inspect", "--format={{.State.ExitCode}}", "server-0").strip()
    expect("a container that is stopped ends by itself", status == "0", f"exit status {status}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--bin-dir", required=True)
    parser.add_argument("--packages")
    args = parser.parse_args()
    args.bin_dir = os.path.abspath(args.bin_dir)
    try:
        engine = Engine()
    except Unusable as why:
        print(f"SKIPPED: {why}")
        return 77
    try:
        image = build(engine, args.packages)
        check_image(engine, image)
        containers = Containers(engine, image)
        containers.wait_healthy()
        train_and_kill(args, containers)
        return 0
    except RuntimeError as error:
        print(f"FAILED: {error}")
        return 1
    finally:
        for name in engine.docker("ps", "--all", "--quiet").split():
            engine.docker("rm", "--force", name)
        engine.close()


if __name__ == "__main__":
    sys.exit(main())
