"""How far uni-plan simulate is from a real network: ring, trees and halving/doubling between network namespaces whose
cables are shaped to a rate, beside the simulator's times for the same. For a quiet machine, by hand; no test, as a busy
machine would fail it.

    tests/hosts/simulator_check.py FOLDER_OF_PROGRAMS [--ranks 2,4,8] [--sizes 8K,128K,1M,16M] [--gbit 1]

The latency is measured first (a small send and receive between two hosts), what it costs to go from one rank to
another on the same core (the same again, both ranks on one core), and what a core moves through sockets (long ones over a
cable without a limit, both ranks on one core); all other inputs are the simulator's own.
--keep FILE writes what was measured; --measured FILE compares the simulator with it again, without a network.
Exit status 1 if a time is off by more than --within (25 %)."""
import argparse
import json
import os
import subprocess
import sys
import tempfile

import job
import lab

# Of 1514 bytes that the shaper counts for a full frame, TCP carries so many for us.
PAYLOAD = 1448 / 1514
ALGORITHMS = ["ring", "binomial_tree", "double_binary_tree", "recursive_halving"]


class Check:
    def __init__(self, options):
        self.options = options
        self.bench = os.path.join(options.programs, "comm-bench")
        self.plan = os.path.join(options.programs, "uni-plan")

    def measured(self, hosts, words, on=(), master="10.9.0.1"):
        """Microseconds by size, of comm-bench with a rank on each of `hosts`; `on`: words before it."""
        with tempfile.TemporaryDirectory() as folder:
            file = os.path.join(folder, "times.json")
            words = [*words, "-w", "3", "-n", "10", "--batches", "3", "-c", "0", "-a", "3", "-J", file]
            title = " ".join(words)
            first, *rest = [*on, self.bench, *words]
            result = job.run_job(title, first, hosts, master, rest,
                                 UNISONO_TIMEOUT_MS=60000, UNISONO_LOG_LEVEL="warn")
            if any(result.codes):
                result.fail("failed")
            with open(file) as text:
                return {row["size"]: row["out_of_place"]["time"] for row in json.load(text)["results"]}

    def simulated(self, ranks, algorithm, sizes, inputs):
        words = [self.plan, "simulate", "--collective", "all_reduce", "--hosts", str(ranks), "--algorithms", algorithm,
                 "--nic-gbit", str(self.options.gbit * PAYLOAD), "--nic-burst-bytes", str(256 << 10), "--calls", "10",
                 "--cores", str(os.cpu_count()), "--overhead-us", str(self.options.overhead_us), *inputs,
                 "--sizes", ",".join(map(str, sizes)), "--json"]
        found = json.loads(subprocess.run(words, check=True, capture_output=True, text=True).stdout)
        return [row["us"] for row in found["algorithms"][0]["times"]]

    def run(self):
        space = lab.Lab()
        space.add_bridge("switch")
        hosts = []
        for number in range(max(self.options.ranks)):
            hosts.append(space.add_host())
            hosts[-1].plug("eth0", "switch", [f"10.9.0.{number + 1}/24"], rate=f"{self.options.gbit}gbit")
        unlimited = [space.add_host(), space.add_host()]
        for number, host in enumerate(unlimited):
            host.plug("eth0", "switch", [f"10.9.0.{number + 101}/24"])
        # BBR, where the machine prefers it, paces short bursts at what it last measured: a ring hardly notices, while
        # halving and doubling take twice as long. The simulator knows no congestion control.
        for host in hosts + unlimited:
            subprocess.run(host.command(["sysctl", "-qw", "net.ipv4.tcp_congestion_control=reno"]), check=True)
        try:
            return self.measure(hosts, unlimited)
        finally:
            space.close()

    def measure(self, hosts, unlimited):
        def exchange(between, size, on=(), master="10.9.0.1"):
            words = ["sendrecv", "-b", str(size), "-e", str(size), "--transport", "tcp"]
            return min(self.measured(between, words, on, master).values())

        one_core = ["taskset", "-c", "0"]
        long_bytes = 1 << 20
        inputs = {"one_way_us": exchange(hosts[:2], 8), "one_way_on_one_core_us": exchange(hosts[:2], 8, one_core),
                  "long_bytes": long_bytes, "long_on_one_core_us": exchange(unlimited, long_bytes, one_core, "10.9.0.101")}
        times = []
        for ranks in self.options.ranks:
            for algorithm in ALGORITHMS:
                for size in self.options.sizes:
                    found = self.measured(hosts[:ranks], ["all_reduce", "-b", str(size), "-e", str(size), "--transport", "tcp",
                                                  "--algorithm", algorithm])
                    times += [[algorithm, ranks, *pair] for pair in found.items()]
        return {"gbit": self.options.gbit, "cores": os.cpu_count(), **inputs, "times": times}


def compare(check, measured, within):
    one_way, overhead_us = measured["one_way_us"], check.options.overhead_us
    switch_us = max(measured["one_way_on_one_core_us"] - one_way, 0)
    latency_us = max(one_way - 2 * overhead_us, 1)
    # Each of two ranks sends and receives: four times the bytes.
    message_gbytes = 4e-3 * measured["long_bytes"] / measured["long_on_one_core_us"]
    print(f"{measured['gbit']} Gbit/s, one way {one_way:.1f} us: latency {latency_us:.1f} us, overhead {overhead_us} us, "
          f"{measured['cores']} cores, {switch_us:.1f} us to another rank on one, "
          f"{message_gbytes:.2f} GB/s into or out of sockets")
    print(f"{'algorithm':>20} {'ranks':>5} {'bytes':>10} {'measured us':>12} {'simulated us':>12} {'off':>6}")
    inputs = ["--nic-latency-us", str(latency_us), "--switch-us", str(switch_us), "--message-gbytes", str(message_gbytes)]
    offs = []
    for algorithm, ranks, size, us in measured["times"]:
        (model,) = check.simulated(ranks, algorithm, [size], inputs)
        offs.append(model / us - 1)
        print(f"{algorithm:>20} {ranks:>5} {size:>10} {us:>12.1f} {model:>12.1f} {offs[-1]:>+6.0%}", flush=True)
    near = sum(abs(off) <= within for off in offs)
    print(f"{near} of {len(offs)} within {within:.0%}, at most {max(map(abs, offs)):.0%} off")
    return 0 if near == len(offs) else 1


def size(word):
    shifts = {"K": 10, "M": 20}
    return int(word[:-1]) << shifts[word[-1]] if word[-1] in shifts else int(word)


def listed(kind):
    return lambda text: [kind(word) for word in text.split(",")]


parser = argparse.ArgumentParser()
parser.add_argument("programs", type=os.path.abspath)
parser.add_argument("--ranks", type=listed(int), default=[2, 4, 8])
parser.add_argument("--sizes", type=listed(size), default=listed(size)("8K,128K,1M,16M"))
parser.add_argument("--gbit", type=float, default=1)
parser.add_argument("--overhead-us", type=float, default=5)
parser.add_argument("--within", type=float, default=0.25)
parser.add_argument("--keep", metavar="FILE")
parser.add_argument("--measured", metavar="FILE")
chosen = parser.parse_args()
check = Check(chosen)
if chosen.measured:
    with open(chosen.measured) as text:
        found = json.load(text)
else:
    lab.enter()
    found = check.run()
if chosen.keep:
    with open(chosen.keep, "w") as text:
        json.dump(found, text, indent=1)
sys.exit(compare(check, found, chosen.within))
