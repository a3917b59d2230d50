"""Hosts on one machine: network namespaces joined by a bridge, each with a name of its own.

Everything lives in a private mount, network, name and process space that the test's process enters first (enter()): the
machine's own network is never touched, and whatever happens to the test, the kernel clears away.
"""
import os
import shutil
import subprocess
import sys

SKIPPED = 77  # ctest's SKIP_RETURN_CODE
INSIDE = "UNISONO_TEST_LAB"


def skip(why):
    print(f"skipped: {why}", flush=True)
    sys.exit(SKIPPED)


def enter():
    """Starts this program again inside the private space; returns there."""
    if os.environ.get(INSIDE) != "1":
        for tool in ("unshare", "ip", "tc"):
            if shutil.which(tool, path=os.environ.get("PATH", "") + ":/usr/sbin:/sbin") is None:
                skip(f"{tool} is missing (packages util-linux, iproute2)")
        user = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
        space = ["unshare", *user, "--net", "--mount", "--uts", "--pid", "--fork", "--kill-child", "--mount-proc"]
        probe = subprocess.run([*space, "true"], capture_output=True, text=True)
        if probe.returncode != 0:
            skip(f"no namespaces here: {probe.stderr.strip()}")
        environment = dict(os.environ, **{INSIDE: "1"}, PATH=os.environ.get("PATH", "") + ":/usr/sbin:/sbin")
        os.execvpe(space[0], [*space, sys.executable, *sys.argv], environment)
    run("mount", "-t", "tmpfs", "lab", "/run")  # names of namespaces, and what daemons insist on
    probe = subprocess.run(["ip", "netns", "add", "probe"], capture_output=True, text=True)
    if probe.returncode != 0:
        skip(f"'ip netns add' is not permitted: {probe.stderr.strip()}")
    run("ip", "netns", "delete", "probe")


def run(*command):
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)}: {done.stderr.strip()}")
    return done.stdout


class Lab:
    """The switch is the space's own network namespace: bridges and the near ends of all cables."""

    def __init__(self):
        self.hosts = []
        self.cables = 0
        run("ip", "link", "set", "lo", "up")

    def add_host(self, name=None, loopback=True):
        host = Host(self, len(self.hosts), name)
        self.hosts.append(host)
        if loopback:
            host.ip("link", "set", "lo", "up")
        return host

    def add_bridge(self, name, addresses=()):
        run("ip", "link", "add", name, "type", "bridge", "stp_state", "0", "forward_delay", "0")
        run("ip", "link", "set", name, "up")
        for address in addresses:
            run("ip", "address", "add", address, "dev", name, *(["nodad"] if ":" in address else []))

    def close(self):
        for host in self.hosts:
            run("ip", "netns", "delete", host.space)


class Host:
    def __init__(self, lab, index, name):
        self.lab = lab
        self.index = index
        self.space = f"host{index}"
        self.name = name or self.space
        run("ip", "netns", "add", self.space)
        # Addresses are usable at once: no test waits for duplicate address detection.
        self.shell("sysctl -qw net.ipv6.conf.all.accept_dad=0 net.ipv6.conf.default.accept_dad=0 || true")

    def ip(self, *words):
        return run("ip", "-n", self.space, *words)

    def shell(self, text):
        return run("ip", "netns", "exec", self.space, "sh", "-c", text)

    def plug(self, interface, bridge, addresses, rate=None):
        """A cable from `bridge`, or from nowhere (None), to this host. `rate`: of each direction, as tc names it."""
        near = f"cable{self.lab.cables}"
        self.lab.cables += 1
        run("ip", "link", "add", near, "type", "veth", "peer", "name", interface, "netns", self.space)
        if bridge:
            run("ip", "link", "set", near, "master", bridge)
        run("ip", "link", "set", near, "up")
        self.ip("link", "set", interface, "up")
        for address in addresses:
            self.ip("address", "add", address, "dev", interface, *(["nodad"] if ":" in address else []))
        if rate:
            shape = ["root", "tbf", "rate", rate, "burst", "256kb", "latency", "50ms"]
            run("tc", "qdisc", "add", "dev", near, *shape)
            run("tc", "-n", self.space, "qdisc", "add", "dev", interface, *shape)

    def add_local_bridge(self, interface, address):
        """As a container engine's: up, with a member, and the same address on every host."""
        self.ip("link", "add", interface, "type", "bridge", "stp_state", "0", "forward_delay", "0")
        self.ip("link", "add", interface + "-port", "type", "veth", "peer", "name", interface + "-peer")
        self.ip("link", "set", interface + "-port", "master", interface)
        for end in ("-port", "-peer"):
            self.ip("link", "set", interface + end, "up")
        self.ip("link", "set", interface, "up")
        self.ip("address", "add", address, "dev", interface)

    def command(self, words):
        """`words` as a process of this host, under its name."""
        inner = ["sh", "-c", 'hostname "$0" && exec "$@"', self.name, *words]
        return ["ip", "netns", "exec", self.space, "unshare", "--uts", *inner]
