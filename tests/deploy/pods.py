"""Pods as a kubelet would run them, from rendered manifests: the same command lines, variables, files, probes and hooks, each in a
root folder, network namespace and address of its own. For use inside tests/fault/sandbox.enter().

A pod that is started again has another address, as in Kubernetes. Names are those of services; a hosts file stands for the DNS.
"""

import os
import random
import re
import shutil
import signal
import stat
import subprocess
import threading
import time
import urllib.error
import urllib.request

from network import run
from sandbox import die_with_parent

USER = 65532
NAMESPACE = "test"
PROXY_LAG_SECONDS = 1
ETC = ("nsswitch.conf", "host.conf", "gai.conf", "ld.so.cache", "ld.so.conf", "ld.so.conf.d", "passwd", "group", "localtime")


class Cluster:
    """Nodes, names and volumes. `objects`: the manifests by kind and name."""

    def __init__(self, objects, bin_dir, directory, network, nodes):
        self.objects, self.directory, self.network = objects, directory, network
        self.nodes = [f"node-{i}" for i in range(nodes)]
        self.pods = {}
        self.names = {}  # to lists of addresses
        self.killed_by_liveness, self.unready = [], []
        self.hosts_file = os.path.join(directory, "hosts")
        self.shared = os.path.join(directory, "shared")  # in each pod, in the place of an object store
        os.makedirs(self.shared)
        os.chmod(self.shared, 0o777)
        self.write_hosts()
        run("mount", "--bind", self.hosts_file, "/etc/hosts")
        self.programs = {}
        self.helps = {}
        self.use_programs(bin_dir)
        self.ended = threading.Event()
        self.kubelet = threading.Thread(target=self._probe_liveness, daemon=True)
        self.kubelet.start()

    def use_programs(self, bin_dir):
        """For pods that start from now on: the image that they name."""
        usr = os.path.join(self.directory, f"usr-{len(self.programs)}")
        os.makedirs(os.path.join(usr, "bin"))
        for program in ("hotbed", "hotbed-server", "hotbed-coordinator"):
            try:
                os.link(os.path.join(bin_dir, program), os.path.join(usr, "bin", program))
            except OSError:
                shutil.copy2(os.path.join(bin_dir, program), os.path.join(usr, "bin", program))
        self.programs[usr] = bin_dir

    def help_of(self, *command):
        """What a program, or a command of it, says of its flags and commands."""
        if command not in self.helps:
            self.helps[command] = subprocess.run([*command, "--help"], capture_output=True, text=True, timeout=60, check=True).stdout
        return self.helps[command]

    def write_hosts(self):
        with open(self.hosts_file, "w", encoding="ascii") as file:  # the same file: it is mounted
            file.write("127.0.0.1 localhost\n" + "".join(f"{address} {name}\n" for name, addresses in self.names.items() for address in addresses))
        os.chmod(self.hosts_file, 0o644)

    def name_pod(self, pod):
        service = pod.controller["spec"]["serviceName"]
        self.names[f"{pod.name}.{service}.{NAMESPACE}.svc"] = [pod.host.address]
        if self.objects["Service", service]["spec"].get("clusterIP") == "None":
            kin = [p for p in self.pods.values() if p.controller is pod.controller and p.host is not None]
            self.names[service] = [p.host.address for p in kin]
        else:
            self.names[service] = [pod.host.address]  # one pod behind it
        self.write_hosts()

    def pod(self, controller, ordinal, node=None):
        """A pod of a StatefulSet, not started: on the node with the fewest of its kind, unless it is told."""
        if node is None:
            used = [p.node for p in self.pods.values() if p.controller["metadata"]["name"] == controller]
            node = min(self.nodes, key=used.count)
        pod = Pod(self, self.objects["StatefulSet", controller], ordinal, node)
        self.pods[pod.name] = pod
        return pod

    def endpoint(self, service):
        """The address of some pod behind a service, as a proxy of the node has it: which pods stop is known a second later."""
        selector = self.objects["Service", service]["spec"]["selector"].items()
        pods = [p for p in self.pods.values() if selector <= p.controller["spec"]["template"]["metadata"]["labels"].items()
                and (p.ready or p.deleting and time.monotonic() < p.deleted_at + PROXY_LAG_SECONDS)]
        return random.choice(pods).host.address

    def _probe_liveness(self):
        failures = {}
        while not self.ended.wait(1):
            for pod in list(self.pods.values()):
                if not pod.started or pod.deleting:
                    failures.pop(pod.name, None)
                    continue
                if pod.ready and pod.refuses(pod.container["readinessProbe"]) and pod.ready:
                    self.unready.append(pod.name)
                probe = pod.container["livenessProbe"]
                failures[pod.name] = 0 if pod.probe(probe) else failures.get(pod.name, 0) + 1
                if failures[pod.name] == probe["failureThreshold"] and pod.started and not pod.deleting:
                    self.killed_by_liveness.append(pod.name)

    def close(self):
        self.ended.set()
        self.kubelet.join()
        for pod in self.pods.values():
            pod.kill()


class Pod:
    def __init__(self, cluster, controller, ordinal, node):
        self.cluster, self.controller, self.node = cluster, controller, node
        self.name = f"{controller['metadata']['name']}-{ordinal}"
        self.spec = controller["spec"]["template"]["spec"]
        (self.container,) = self.spec["containers"]
        self.root = os.path.join(cluster.directory, self.name)
        self.log = os.path.join(cluster.directory, f"{self.name}.log")
        self.child = self.host = self.bin_dir = None
        self.started = self.ready = self.deleting = False
        self.deleted_at = 0.0
        self.exit_status = None

    def _mount(self):
        """The container's files: the image read-only, and its volumes."""
        if not os.path.exists(self.root):
            for folder in ("usr", "etc/hotbed", "data", "tmp", "proc", "dev", "volumes"):
                os.makedirs(os.path.join(self.root, folder))
            for link in ("bin", "lib", "lib64", "sbin"):
                os.symlink(f"usr/{link}", os.path.join(self.root, link))
            for name in ETC:
                if os.path.isdir(f"/etc/{name}"):
                    shutil.copytree(f"/etc/{name}", f"{self.root}/etc/{name}")
                elif os.path.exists(f"/etc/{name}"):
                    shutil.copy(f"/etc/{name}", f"{self.root}/etc/{name}")
            open(f"{self.root}/etc/hosts", "w", encoding="ascii").close()
            run("mount", "-t", "proc", "proc", f"{self.root}/proc")
            run("mount", "--bind", self.cluster.hosts_file, f"{self.root}/etc/hosts")
            for name, minor in (("null", 3), ("zero", 5), ("random", 8), ("urandom", 9)):
                os.mknod(f"{self.root}/dev/{name}", 0o666 | stat.S_IFCHR, os.makedev(1, minor))
                os.chmod(f"{self.root}/dev/{name}", 0o666)
            self._mount_volumes()
        else:
            run("umount", "-l", f"{self.root}/usr")
        newest, self.bin_dir = list(self.cluster.programs.items())[-1]
        run("mount", "-t", "overlay", "overlay", "-o", f"ro,lowerdir={newest}:/usr", f"{self.root}/usr")
        self._write_config()

    def _mount_volumes(self):
        kinds = {v["name"]: v for v in self.spec["volumes"]}
        for mount in self.container["volumeMounts"]:
            target = self.root + mount["mountPath"]
            os.makedirs(target, exist_ok=True)
            if {"configMap", "secret"} & set(kinds.get(mount["name"], {})):
                continue
            source = f"{self.root}/volumes/{mount['name']}"
            os.makedirs(source)
            # fsGroup: the volume belongs to the user's group.
            os.chown(source, 0, self.spec["securityContext"]["fsGroup"])
            os.chmod(source, 0o2775)
            run("mount", "--bind", source, target)
        os.makedirs(self.root + self.cluster.shared)
        run("mount", "--bind", self.cluster.shared, self.root + self.cluster.shared)

    def _write_config(self):
        kinds = {v["name"]: v for v in self.spec["volumes"]}
        for mount in self.container["volumeMounts"]:
            if "secret" in kinds.get(mount["name"], {}):
                secret = kinds[mount["name"]]["secret"]
                for name, text in self.cluster.objects["Secret", secret["secretName"]]["stringData"].items():
                    path = f"{self.root}{mount['mountPath']}/{name}"
                    with open(path, "w", encoding="ascii") as file:
                        file.write(text)
                    os.chown(path, 0, self.spec["securityContext"]["fsGroup"])
                    os.chmod(path, secret["defaultMode"])
            if "configMap" in kinds.get(mount["name"], {}):
                data = self.cluster.objects["ConfigMap", kinds[mount["name"]]["configMap"]["name"]]["data"]
                for name, text in data.items():
                    with open(f"{self.root}{mount['mountPath']}/{name}", "w", encoding="utf-8") as file:
                        file.write("".join(line for line in text.splitlines(True) if self._knows(line)))

    def _help(self, program, *words):
        """Of a program of the image, by its path there."""
        return self.cluster.help_of(os.path.join(self.bin_dir, os.path.basename(program)), *words)

    def _knows(self, line):
        """Whether the program has the key of a line of its configuration. That of an earlier version's manifests has no later keys."""
        key = re.match(r"[a-z][a-z0-9-]*(?=:)", line)
        return key is None or f"--{key[0]}=" in self._help(self.container["command"][0])

    def _hook(self):
        """The preStop hook, without what an earlier version has not."""
        hook = self.container.get("lifecycle", {}).get("preStop")
        if hook is None or f"\n  {hook['exec']['command'][1]} " not in self._help(hook["exec"]["command"][0]):
            return None
        program, *words = hook["exec"]["command"]
        known = self._help(program, *(w for w in words if not w.startswith("--"))) + self._help(program)
        return [program, *(w for w in words if not w.startswith("--") or w.partition("=")[0] in known)]

    def environment(self):
        fields = {"metadata.name": self.name, "metadata.namespace": NAMESPACE, "spec.nodeName": self.node}
        # gRPC's own resolver takes one address of a name from a file; the system's takes all, as both do from DNS.
        env = {"GRPC_DNS_RESOLVER": "native"}
        for variable in self.container["env"]:
            if "valueFrom" in variable:
                env[variable["name"]] = fields[variable["valueFrom"]["fieldRef"]["fieldPath"]]
            else:
                env[variable["name"]] = re.sub(r"\$\((\w+)\)", lambda m: env.get(m[1], m[0]), variable["value"])
        return env

    def _enter(self):
        """In a child before its program."""
        self.host.enter()
        os.chroot(self.root)
        os.chdir("/")
        os.setgroups([self.spec["securityContext"]["fsGroup"]])
        os.setgid(self.spec["securityContext"]["runAsGroup"])
        os.setuid(self.spec["securityContext"]["runAsUser"])
        die_with_parent()

    def begin(self):
        """Starts its container, and waits for nothing."""
        self.host = self.cluster.network.host()
        self._mount()
        self.cluster.name_pod(self)
        self.deleting = False
        with open(self.log, "ab") as log:
            self.child = subprocess.Popen(self.container["command"], stdout=log, stderr=log, env=self.environment(),
                                          preexec_fn=self._enter)

    def execute(self, command, seconds=120):
        """A program in the container, as a hook or 'kubectl exec' runs it: (exit status, output)."""
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=self.environment(),
                              preexec_fn=self._enter, timeout=seconds, check=False)
        return done.returncode, done.stdout

    def get(self, probe, seconds):
        port = next(p["containerPort"] for p in self.container["ports"] if p["name"] == probe["httpGet"]["port"])
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(f"http://{self.host.address}:{port}{probe['httpGet']['path']}", timeout=seconds):
            pass

    def probe(self, probe, seconds=None):
        try:
            self.get(probe, seconds or probe.get("timeoutSeconds", 1))
            return True
        except (urllib.error.URLError, OSError):
            return False

    def refuses(self, probe):
        """Whether it is answered, by an error: a pod that is slow does not count."""
        try:
            self.get(probe, seconds=5)
            return False
        except urllib.error.HTTPError:
            return True
        except OSError:
            return False

    def wait_ready(self, seconds=60):
        """Until the startup probe and then the readiness probe succeed. They are asked more often than the manifest says."""
        deadline = time.monotonic() + seconds
        for kind in ("startupProbe", "readinessProbe"):
            while not self.probe(self.container[kind]):
                if self.child.poll() is not None or time.monotonic() > deadline:
                    raise RuntimeError(f"{self.name} is not up ({kind}) after {seconds} s, exit status {self.child.poll()}:\n{self.tail()}")
                time.sleep(0.1)
            self.started = True
        self.ready = True

    def delete(self):
        """preStop hook, SIGTERM, and SIGKILL after the grace period, which is an error here: seconds taken."""
        begin = time.monotonic()
        self.deleted_at = begin
        self.deleting, self.ready = True, False
        hook = self._hook()
        if hook is not None:
            status, said = self.execute(hook)
            if status != 0:
                raise RuntimeError(f"{self.name}: its preStop hook ended with {status}: {said}")
        self.child.send_signal(signal.SIGTERM)
        rest = self.spec["terminationGracePeriodSeconds"] - (time.monotonic() - begin)
        try:
            self.exit_status = self.child.wait(rest)
        except subprocess.TimeoutExpired as error:
            raise RuntimeError(f"{self.name} did not end within its grace period:\n{self.tail()}") from error
        self.started = False
        if self.exit_status != 0:
            raise RuntimeError(f"{self.name} ended with {self.exit_status}:\n{self.tail()}")
        return time.monotonic() - begin

    def kill(self):
        """As its node goes down."""
        self.started = self.ready = False
        if self.child is not None and self.child.poll() is None:
            self.child.kill()
            self.child.wait()

    def tail(self):
        with open(self.log, errors="replace") as file:
            return file.read()[-3000:]
