"""A Docker engine of the test's own: its data, its socket, no networks of its own, and a Debian base image made by debootstrap."""

import os
import shutil
import subprocess
import tempfile
import time

PROGRAMS = ("dockerd", "docker", "debootstrap", "tar")
# As in the official slim images, which leave the same out of packages that come later.
LEFT_OUT = ("usr/share/doc", "usr/share/man", "usr/share/locale", "usr/share/info", "usr/share/lintian", "var/cache/apt",
            "var/lib/apt/lists", "var/log")
DPKG_RULES = "".join(f"path-exclude /usr/share/{folder}/*\n" for folder in ("doc", "man", "locale", "info", "lintian")) + \
    "path-include /usr/share/doc/*/copyright\n"


class Unusable(Exception):
    """An engine cannot run here; the text says why."""


def run(*command, env=None, seconds=600, stdin=None):
    """Its output. RuntimeError: it failed."""
    done = subprocess.run(list(map(str, command)), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=env,
                          timeout=seconds, stdin=stdin or subprocess.DEVNULL, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(map(str, command))} ended with {done.returncode}:\n{done.stdout[-4000:]}")
    return done.stdout


class Engine:
    def __init__(self):
        if os.geteuid() != 0:
            raise Unusable("a Docker engine needs root")
        for program in PROGRAMS:
            if shutil.which(program) is None:
                raise Unusable(f"no program {program} (Debian: docker.io, debootstrap)")
        self.directory = tempfile.mkdtemp(prefix="hotbed_docker_")
        self.host = f"unix://{self.directory}/docker.sock"
        self.env = {**os.environ, "DOCKER_HOST": self.host, "DOCKER_BUILDKIT": "1"}
        self.log = os.path.join(self.directory, "dockerd.log")
        with open(self.log, "wb") as log:
            self.daemon = subprocess.Popen(
                ["dockerd", "--data-root", f"{self.directory}/data", "--exec-root", f"{self.directory}/exec", "--pidfile",
                 f"{self.directory}/pid", "--host", self.host, "--iptables=false", "--bridge=none"], stdout=log, stderr=log)
        try:
            self._wait()
        except Unusable:
            self.close()
            raise

    def _wait(self):
        deadline = time.monotonic() + 60
        while subprocess.run(["docker", "info"], env=self.env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                             check=False).returncode != 0:
            if self.daemon.poll() is not None or time.monotonic() > deadline:
                with open(self.log, errors="replace") as log:
                    raise Unusable(f"dockerd does not run here: {log.read()[-500:].strip()}")
            time.sleep(0.2)

    def docker(self, *command, seconds=600):
        # The client of the engine's own version: others build with a plugin.
        return run("/usr/bin/docker" if os.path.exists("/usr/bin/docker") else "docker", *command, env=self.env, seconds=seconds)

    def make_base(self, name):
        """Debian's smallest system, imported under the name of the image that a Dockerfile begins with."""
        root = os.path.join(self.directory, "root")
        run("debootstrap", "--variant=minbase", "bookworm", root, seconds=900)
        for folder in LEFT_OUT:
            shutil.rmtree(os.path.join(root, folder), ignore_errors=True)
            os.makedirs(os.path.join(root, folder))
        os.makedirs(os.path.join(root, "var/cache/apt/archives/partial"), exist_ok=True)
        with open(os.path.join(root, "etc/dpkg/dpkg.cfg.d/slim"), "w", encoding="ascii") as rules:
            rules.write(DPKG_RULES)
        self.import_folder(root, name)
        shutil.rmtree(root)

    def import_folder(self, folder, name):
        with subprocess.Popen(["tar", "-C", folder, "-c", "."], stdout=subprocess.PIPE) as tar:
            run("docker", "import", "-", name, env=self.env, stdin=tar.stdout)

    def close(self):
        self.daemon.terminate()
        try:
            self.daemon.wait(60)
        except subprocess.TimeoutExpired:
            self.daemon.kill()
            self.daemon.wait()
        with open("/proc/self/mounts", encoding="utf-8") as file:
            mounted = [line.split()[1] for line in file if line.split()[1].startswith(self.directory)]
        for path in reversed(mounted):  # namespaces of networks, and layers
            subprocess.run(["umount", path], check=False)
        shutil.rmtree(self.directory, ignore_errors=True)
