#!/usr/bin/env python3
"""Several hosts: each layout of networks starts within the library's deadline, goes over the right path and says why.

hosts_test.py LAYOUT BIN_FOLDER; a LAYOUT is a function below. Exit status 77: this machine does not permit namespaces.
"""
import os
import subprocess
import sys

sys.dont_write_bytecode = True  # the tree may be another user's, or read-only
# pylint: disable=wrong-import-position
import job
import lab

SMALL = ["-b", "1000", "-e", "256K", "-f", "16", "-n", "2", "-w", "1", "--batches", "1"]
COLLECTIVES = ["all_reduce", "all_gather", "reduce", "broadcast", "reduce_scatter", "gather", "scatter", "all_to_all",
               "sendrecv", "barrier"]
TWO_LEVEL = ("all_reduce", "broadcast", "reduce", "all_gather", "reduce_scatter", "gather", "scatter",
             "barrier")  # listed only where hosts are known
POWERS_OF_TWO = {("all_gather", "recursive_doubling")}  # of ranks: no partition here has as many
REACHES = r"rank \d+ reaches rank \d+ \({}\) at {}"


class Layouts:
    def __init__(self, folder):
        self.bench = os.path.join(folder, "comm-bench")
        self.run = os.path.join(folder, "uni-run")
        self.plan = os.path.join(folder, "uni-plan")
        self.lab = lab.Lab()

    def hosts(self, count, addresses, name=None, rate=None):
        """`count` hosts on one bridge; "10.1.0.{}/24" for each, numbered from 1."""
        self.lab.add_bridge("switch")
        for number in range(1, count + 1):
            host = self.lab.add_host(name)
            host.plug("eth0", "switch", [text.format(number) for text in addresses], rate)
        return self.lab.hosts

    def job(self, title, hosts, master, words=None, **more):
        return job.run_job(title, self.bench, hosts, master, words or ["all_reduce", *SMALL], **more)

    def exact_on(self, partition, hosts, master):
        """Every collective, by the planner's choice and by each algorithm that has it, on ranks spread like 3+2."""
        spread = [hosts[index] for index, count in enumerate(partition) for _ in range(count)]
        for collective in COLLECTIVES:
            for algorithm in [None, *algorithms_of(self.plan, collective)]:
                title = f"{'+'.join(map(str, partition))} {collective} {algorithm or 'as planned'}"
                words = [collective, *SMALL, *(["--algorithm", algorithm] if algorithm else [])]
                result = self.job(title, spread, master, words)
                result.succeeds()
                if algorithm:
                    result.used(algorithm)
                print(f"{title}: exact", flush=True)
        return spread

    # ---- the layouts ----

    def ipv4(self):
        hosts = self.hosts(3, ["10.1.0.{}/24"])
        result = self.job("three hosts", hosts, "10.1.0.1").succeeds()
        result.says(1, REACHES.format("control", r"10\.1\.0\.1:\d+ from 10\.1\.0\.2 \(eth0\): its only address"))
        result.says(2, REACHES.format("tcp", r"10\.1\.0\.\d:\d+ from 10\.1\.0\.3 \(eth0\): its only address"))
        result.says(None, r"met by tcp://10\.1\.0\.1:29500 \(MASTER_ADDR\), tcp with 2;")

    def ipv6(self):
        hosts = self.hosts(3, ["fd00:1::{}/64"])
        result = self.job("three hosts", hosts, "fd00:1::1").succeeds()
        result.says(1, REACHES.format("control", r"\[fd00:1::1\]:\d+ from \[fd00:1::2\] \(eth0\): its only address"))
        result.says(None, r", tcp with 2;")

    def link_local_only(self):
        """IPv6 without any configuration: an address means something only together with an interface."""
        hosts = self.hosts(2, [])
        address = hosts[0].ip("-6", "-o", "address", "show", "dev", "eth0", "scope", "link").split()[3].split("/")[0]
        result = self.job("two hosts", hosts, f"{address}%eth0").succeeds()
        result.says(1, REACHES.format("control", r"\[fe80::[0-9a-f:]+%eth0\]:\d+ from "))

    def both_families(self):
        hosts = self.hosts(3, ["10.1.0.{}/24", "fd00:1::{}/64"])
        for master in ("10.1.0.1", "fd00:1::1"):
            result = self.job(f"master {master}", hosts, master).succeeds()
            result.says(1, REACHES.format("control", r"\S+ from \S+ \(eth0\): the first of 2 addresses to prove itself"))

    def dead_end(self):
        """The first interface of each host leads to nobody: what is sent to its address disappears at the gateway."""
        self.lab.add_bridge("switch", ["10.1.0.254/24"])
        for number in (1, 2, 3):
            host = self.lab.add_host()
            host.plug("dead0", None, [f"10.9.{number}.1/24"])
            host.plug("eth0", "switch", [f"10.1.0.{number}/24"])
            host.ip("route", "add", "default", "via", "10.1.0.254")
        hosts = self.lab.hosts
        for host in hosts:
            lab.run("ip", "route", "add", "blackhole", f"10.9.{host.index + 1}.0/24")
        result = self.job("dead end", hosts, "10.1.0.1").succeeds()
        result.says(1, REACHES.format("control", r"10\.1\.0\.1:\d+ from 10\.1\.0\.2 \(eth0\): the first of 2 addresses to "
                                                 r"prove itself; not 10\.9\.1\.1:\d+ \("))
        result.never_says(r"\) at 10\.9\.")
        # The id that lies in a file holds three addresses: the dead ends must not be all of them.
        for host in hosts:
            for number in range(3):
                host.plug(f"dead{number + 1}", None, [f"10.8.{host.index * 3 + number}.1/24"])
        self.by_store(hosts)

    def by_store(self, hosts):
        """Through torchrun's store nothing but the id tells where rank 0 is."""
        store = [sys.executable, os.path.join(os.path.dirname(os.path.abspath(__file__)), "torch_store.py")]
        with subprocess.Popen(hosts[0].command([*store, str(job.PORT)]), stdout=subprocess.PIPE, text=True) as server:
            try:
                server.stdout.readline()  # it listens
                result = self.job("agent store", hosts, "10.1.0.1", TORCHELASTIC_USE_AGENT_STORE="True",
                                  TORCHELASTIC_RUN_ID="lab").succeeds()
            finally:
                server.kill()
        result.says(None, r"met by tcp://10\.1\.0\.1:29500 \(torchrun's agent store\), tcp with 2;")
        result.never_says(r"\) at 10\.[89]\.")

    def docker_bridge(self):
        """A bridge with one address on every host: a rank that dials it meets its own host."""
        hosts = self.hosts(3, ["10.1.0.{}/24"])
        for host in hosts:
            host.add_local_bridge("docker0", "172.17.0.1/16")
        result = self.job("docker0", [hosts[0], hosts[0], hosts[1], hosts[2]], "10.1.0.1").succeeds()
        result.says(2, REACHES.format("control", r"10\.1\.0\.1:\d+ from 10\.1\.0\.2 \(eth0\): the first of 2 addresses to "
                                                 r"prove itself; not 172\.17\.0\.1:\d+ \("))
        result.never_says(r"\) at 172\.17\.")
        filtered = self.job("docker0 left out", hosts, "10.1.0.1", UNISONO_INTERFACES="^docker*").succeeds()
        filtered.says(1, REACHES.format("control", r"10\.1\.0\.1:\d+ from 10\.1\.0\.2 \(eth0\): its only address"))

    def no_network(self):
        host = self.lab.add_host()
        result = self.job("loopback", [host] * 3, "127.0.0.1").succeeds()
        result.says(None, r", shm with 2;")
        self.job("loopback, tcp", [host] * 3, "127.0.0.1", UNISONO_TRANSPORTS="tcp").succeeds().says(None, ", tcp with 2;")
        bare = self.lab.add_host(loopback=False)
        words = [self.run, "-n", "3", "--env", "UNISONO_LOG_LEVEL=info", "--env", "UNISONO_TIMEOUT_MS=5000",
                 self.bench, "all_reduce", *SMALL]
        done = subprocess.run(bare.command(words), capture_output=True, text=True, env=job.clean_environment(),
                              stdin=subprocess.DEVNULL, timeout=job.HANGS_AFTER_S)
        result = job.Result("no interface is up", [done.returncode], [done.stdout + done.stderr])
        if done.returncode != 0 or "[0] # Out of bounds values : 0 OK" not in done.stdout:
            result.fail("no results")
        result.says(0, r"met by unix:uni-run-\w+ \(uni-run\), shm with 2;")

    def wrong_settings(self):
        hosts = self.hosts(2, ["10.1.0.{}/24"])
        result = self.job("interfaces", hosts, "10.1.0.1", UNISONO_INTERFACES="ib*").fails()
        result.says(None, r"UNISONO_INTERFACES: no interface with an address matches 'ib\*'; there are .*eth0 \(10\.1\.0\.")
        result = self.job("transports", hosts, "10.1.0.1", UNISONO_TRANSPORTS="infiniband").fails()
        result.says(None, r"infiniband.*(shm|tcp).*(shm|tcp)")
        result = self.job("shm between hosts", hosts, "10.1.0.1", UNISONO_TRANSPORTS="shm").fails()
        result.says(None, r"ranks 0 and 1 have no transport that joins them.*shm joins ranks of one host.*tcp")
        result = self.job("nobody there", [hosts[1]], "10.1.0.77", WORLD_SIZE="2", RANK="1").fails()
        result.says(0, r"MASTER_ADDR 10\.1\.0\.77:29500.*rank 0's meeting point")
        result = self.job("not our address", [hosts[0]], "10.1.0.77", WORLD_SIZE="2").fails()
        result.says(0, r"MASTER_ADDR 10\.1\.0\.77:29500.*10\.1\.0\.1")

    def fake_hosts(self):
        """UNISONO_HOSTID splits one host: shared memory stays within each part."""
        host = self.lab.add_host()
        result = self.job("2+2", [host] * 4, "127.0.0.1", each=lambda rank: {"UNISONO_HOSTID": f"part{rank // 2}"})
        result.succeeds().says(None, r", shm with 1, tcp with 2;")
        self.job("2+2 in two levels", [host] * 4, "127.0.0.1", ["all_reduce", *SMALL, "--algorithm", "two_level"],
                 each=lambda rank: {"UNISONO_HOSTID": f"part{rank // 2}"}).succeeds().used("two_level")

    def same_name(self):
        """Nothing is decided by a host's name."""
        hosts = self.hosts(2, ["10.1.0.{}/24"], name="localhost")
        result = self.job("2+2", [hosts[0], hosts[0], hosts[1], hosts[1]], "10.1.0.1").succeeds()
        result.says(None, r", shm with 1, tcp with 2;")

    def eight_hosts(self):
        hosts = self.hosts(8, ["10.1.0.{}/24", "fd00:1::{}/64"])
        for collective in COLLECTIVES:
            result = self.job(f"eight hosts, {collective}", hosts, "10.1.0.1", [collective, *SMALL]).succeeds()
            result.says(None, r", tcp with 7;")

    def slow_link(self):
        hosts = self.hosts(2, ["10.1.0.{}/24"], rate="100mbit")
        self.job("100 Mbit/s", [hosts[0], hosts[0], hosts[1]], "10.1.0.1", ["all_reduce", "-b", "4M", "-n", "1", "-w", "0",
                                                                            "--batches", "1"]).succeeds()

    def partition_3_2(self):
        self.exact_on([3, 2], self.hosts(2, ["10.1.0.{}/24"]), "10.1.0.1")

    def partition_1_4(self):
        self.exact_on([1, 4], self.hosts(2, ["10.1.0.{}/24"]), "10.1.0.1")

    def partition_2_2_1(self):
        self.exact_on([2, 2, 1], self.hosts(3, ["10.1.0.{}/24"]), "10.1.0.1")


def algorithms_of(plan, collective):
    words = [line.split() for line in subprocess.run([plan, "list"], check=True, capture_output=True,
                                                      text=True).stdout.splitlines()]
    names = [row[0] for row in words if len(row) > 1 and row[1] == collective]
    names += ["two_level"] if collective in TWO_LEVEL else []
    return [name for name in names if (collective, name) not in POWERS_OF_TWO]


def main():
    layout, folder = sys.argv[1:]
    lab.enter()
    getattr(Layouts(folder), layout)()
    print("ok")


if __name__ == "__main__":
    main()
