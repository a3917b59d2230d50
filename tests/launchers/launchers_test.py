#!/usr/bin/env python3
"""Every launcher starts comm-bench, on one host and over hosts, and all results are exact.

launchers_test.py CASE BIN_FOLDER; a CASE is a function below. Exit status 77: the launcher's package is missing, or this
machine does not permit namespaces.
"""
import concurrent.futures
import os
import re
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True  # the tree may be another user's, or read-only
HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "hosts"))
# pylint: disable=wrong-import-position
import daemons
import job
import lab

WORDS = ["all_reduce", "-b", "1000", "-e", "256K", "-f", "16", "-n", "2", "-w", "1", "--batches", "1"]
SETTINGS = {"UNISONO_LOG_LEVEL": "info", "UNISONO_TIMEOUT_MS": "20000"}


class Cases:
    def __init__(self, bin_folder, folder):
        self.bench = os.path.join(bin_folder, "comm-bench")
        self.uni_run = os.path.join(bin_folder, "uni-run")
        self.folder = folder
        self.lab = lab.Lab()

    def hosts(self, count):
        self.lab.add_bridge("switch")
        hosts = []
        for number in range(1, count + 1):
            host = self.lab.add_host()
            host.plug("eth0", "switch", [f"10.1.0.{number}/24"])
            hosts.append(host)
        names = "".join(f"10.1.0.{host.index + 1} {host.name}\n" for host in hosts)
        lab.run("mount", "--bind", self.folder.write("hosts", "127.0.0.1 localhost\n" + names, 0o644), "/etc/hosts")
        return hosts

    def start(self, host, words, **variables):
        """A launcher on a host; its whole output."""
        environment = {**job.clean_environment(), **SETTINGS, "UNISONO_JOB_SECRET": "of a test", **variables}
        done = subprocess.run(host.command(words), capture_output=True, text=True, env=environment,
                              stdin=subprocess.DEVNULL, timeout=job.HANGS_AFTER_S)
        return job.Result(os.path.basename(words[0]), [done.returncode], [done.stdout + done.stderr])

    def exact(self, result, ranks, met_by, over):
        text = result.outputs[0]
        if result.codes != [0] or not re.search(r"# Out of bounds values : 0 OK", text):
            result.fail(f"exit status {result.codes}, or no exact results\n{self.folder.logs()}")
        if not re.search(rf"rank {ranks - 1} of {ranks} on \S+; met by {met_by}", text):
            result.fail(f"no rank of {ranks} says that it has met by {met_by}")
        if not re.search(over, text):
            result.fail(f"no rank says {over}")

    # ---- the cases ----

    def torchrun(self):
        """torchrun's environment and a store that speaks its protocol; PyTorch itself is not needed."""
        hosts = self.hosts(2)
        store = [sys.executable, os.path.join(HERE, "..", "hosts", "torch_store.py"), str(job.PORT)]
        with subprocess.Popen(hosts[0].command(store), stdout=subprocess.PIPE, text=True) as server:
            try:
                server.stdout.readline()
                result = job.run_job("torchrun", self.bench, [hosts[0], hosts[0], hosts[1], hosts[1]], "10.1.0.1", WORDS,
                                     lambda rank: {"LOCAL_RANK": rank % 2}, LOCAL_WORLD_SIZE=2, TORCHELASTIC_RUN_ID="job",
                                     TORCHELASTIC_RESTART_COUNT=0, TORCHELASTIC_USE_AGENT_STORE="True")
            finally:
                server.kill()
        result.succeeds().says(None, r"met by tcp://10\.1\.0\.1:29500 \(torchrun's agent store\), shm with 1, tcp with 2;")

    def torchrun_itself(self):
        """PyTorch's own launcher, found by UNISONO_TORCH_PYTHON, tools/torch-env's folder or PATH."""
        home = os.environ.get("UNISONO_TORCH_HOME") or os.path.expanduser("~/.cache/unisono-torch")
        python = os.environ.get("UNISONO_TORCH_PYTHON") or os.path.join(home, "venv", "bin", "python")
        torchrun = os.path.join(os.path.dirname(python), "torchrun")
        if not os.path.exists(torchrun):
            daemons.needs("torchrun", package="torch, of PyPI")
            torchrun = "torchrun"
        hosts = self.hosts(2)
        words = [torchrun, "--nproc-per-node", "3", "--no-python", self.bench, *WORDS]
        variables = {"OMP_NUM_THREADS": "1"}
        self.exact(self.start(hosts[0], [*words[:1], "--standalone", *words[1:]], **variables), 3,
                   r"tcp://\S+ \(torchrun's agent store\)", "shm with 2")
        words[1:3] = ["--nnodes", "2", "--nproc-per-node", "2", "--rdzv-backend", "c10d", "--rdzv-endpoint",
                      f"10.1.0.1:{job.PORT}", "--rdzv-id", "test"]
        with concurrent.futures.ThreadPoolExecutor() as pool:
            nodes = [pool.submit(self.start, host, [*words[:1], "--local-addr", f"10.1.0.{host.index + 1}", *words[1:]],
                                 **variables) for host in hosts]
            nodes = [node.result() for node in nodes]
        both = job.Result("torchrun on two hosts", [max(code for node in nodes for code in node.codes)],
                          ["".join(node.outputs[0] for node in nodes)])
        self.exact(both, 4, r"tcp://\S+ \(torchrun's agent store\)", "shm with 1, tcp with 2")

    def open_mpi(self):
        daemons.needs("mpirun.openmpi", package="openmpi-bin")
        hosts = self.hosts(2)
        words = ["mpirun.openmpi", "--allow-run-as-root", "--oversubscribe", "-n", "3", self.bench, *WORDS]
        self.exact(self.start(hosts[0], words), 3, r"unix:unisono-job-\w+ \(one host, openmpi\)", "shm with 2")
        ssh = daemons.start_sshd(self.folder, hosts, ["10.1.0.1", "10.1.0.2"])
        words[1:1] = ["--host", "10.1.0.1:2,10.1.0.2:2", "--mca", "plm_rsh_agent", " ".join(ssh), "-x", "UNISONO_LOG_LEVEL",
                      "-x", "UNISONO_TIMEOUT_MS", "-x", "UNISONO_JOB_SECRET"]
        words[words.index("-n") + 1] = "4"
        self.exact(self.start(hosts[0], words), 4, "PMIx", "shm with 1, tcp with 2")

    def mpich(self):
        daemons.needs("mpirun.mpich", package="mpich")
        hosts = self.hosts(2)
        words = ["mpirun.mpich", "-n", "3", self.bench, *WORDS]
        self.exact(self.start(hosts[0], words), 3, r"unix:unisono-job-\w+ \(one host, pmi\)", "shm with 2")
        ssh = daemons.start_sshd(self.folder, hosts, ["10.1.0.1", "10.1.0.2"])
        wrapper = self.folder.write("ssh.sh", "#!/bin/sh\nexec " + " ".join(ssh) + ' "$@"\n', 0o700)
        words = ["mpirun.mpich", "-launcher", "ssh", "-launcher-exec", wrapper, "-hosts", "10.1.0.1:2,10.1.0.2:2", "-n", "4",
                 self.bench, *WORDS]
        self.exact(self.start(hosts[0], words), 4, r"PMI-1 \(PMI_FD \d+\)", "shm with 1, tcp with 2")

    def slurm(self):
        hosts = self.hosts(2)
        variables = daemons.start_slurm(self.folder, hosts, ["10.1.0.1", "10.1.0.2"])
        words = ["srun", "-N", "1", "-n", "3", self.bench, *WORDS]
        self.exact(self.start(hosts[0], words, **variables), 3, r"unix:unisono-job-\w+ \(one host, slurm\)", "shm with 2")
        words = ["srun", "-N", "2", "--ntasks-per-node", "2", self.bench, *WORDS]
        self.exact(self.start(hosts[0], words, **variables), 4, r"tcp://host0:\d+ \(Slurm's node list\)",
                   "shm with 1, tcp with 2")

    def uni_run_local(self):
        host = self.lab.add_host()
        words = [self.uni_run, "-n", "3", self.bench, *WORDS]
        self.exact(self.start(host, words), 3, r"unix:uni-run-\w+ \(uni-run\)", "shm with 2")

    def over_ssh(self):
        """uni-run and three hosts of 2, 1 and 2 slots: the words before its own options."""
        hosts = self.hosts(3)
        ssh = daemons.start_sshd(self.folder, hosts, ["10.1.0.1", "10.1.0.2", "10.1.0.3"])
        file = self.folder.write("hostfile", "# all of them\n10.1.0.1 slots=2\n\nroot@host1\n10.1.0.3:2 # the last\n")
        return hosts, [self.uni_run, "--hosts", file, "--ssh", " ".join(ssh)]

    def uni_run_ssh(self):
        hosts, words = self.over_ssh()
        result = self.start(hosts[0], [*words, self.bench, *WORDS])
        self.exact(result, 5, r"tcp://10\.1\.0\.1:\d+ \(uni-run\)", "shm with 1, tcp with 3")
        result.says(0, r"\[2\] .* rank 2 of 5 on host1;").never_says("unauthenticated start")
        result = self.start(hosts[0], [*words, "-n", "3", self.bench, *WORDS])
        self.exact(result, 3, r"tcp://10\.1\.0\.1:\d+ \(uni-run\)", "shm with 1, tcp with 1")

    def uni_run_ssh_environment(self):
        """What reaches a rank elsewhere, whatever is in it; the secret is on no command line."""
        hosts, words = self.over_ssh()
        value = "it's a \"test\" of $HOME `and` \\ * ; & more"
        show = ('echo "<$1> <$PLAIN> <$UNISONO_ALGORITHM> $RANK $LOCAL_RANK $WORLD_SIZE $LOCAL_WORLD_SIZE $GROUP_RANK '
                '$GROUP_WORLD_SIZE $MASTER_ADDR $(pwd)"; tr "\\0" " " < /proc/$PPID/cmdline; echo')
        result = self.start(hosts[0], [*words, "--env", "PLAIN=" + value, "sh", "-c", show, "sh", value],
                            UNISONO_ALGORITHM="ring", UNISONO_JOB_SECRET="never on a command line")
        if result.codes != [0]:
            result.fail("it failed")
        for rank, local, size, node in ((0, 0, 2, 0), (1, 1, 2, 0), (2, 0, 1, 1), (3, 0, 2, 2), (4, 1, 2, 2)):
            line = f"[{rank}] <{value}> <{value}> <ring> {rank} {local} 5 {size} {node} 3 10.1.0.1 {os.getcwd()}"
            result.says(0, "(?m)^" + re.escape(line) + "$")
        result.never_says("never on a command line")

    def uni_run_ssh_failure(self):
        """The first failure ends all hosts, by whatever way it comes, and nothing is left anywhere."""
        hosts, words = self.over_ssh()
        # Two processes a rank, which only a signal ends; rank 2 fails once all are there.
        there = "touch there-$RANK; while test $(ls there-* | wc -l) -lt 5; do sleep 0.05; done; "
        wait = 'trap "exit 7" TERM; sleep 1000 & wait'
        os.chdir(self.folder.path)
        result = self.start(hosts[0], [*words, "sh", "-c", there + f"test $RANK = 2 && exit 3; {wait}"])
        if result.codes != [3]:
            result.fail("it must end with rank 2's status")
        result.says(0, r"uni-run: rank 2 \(pid \d+\) exited with status 3")
        result.says(0, r"uni-run: host root@host1 \(pid \d+\) exited with status 3: ending the other hosts")
        self.nothing_is_left(result)

        result = self.start(hosts[0], [*words, "-n", "6", "true"])
        result.says(0, "6 ranks, but the hosts have 5 slots")
        result = self.start(hosts[0], [*words[:1], "-H", "10.1.0.1,10.1.0.99", *words[3:], "sh", "-c", wait])
        if result.codes != [255]:
            result.fail("ssh's own failure ends it")
        result.says(0, r"10\.1\.0\.99.*No route to host")
        self.nothing_is_left(result)

    def uni_run_ssh_signals(self):
        """A signal reaches the ranks of all hosts; whoever kills uni-run ends them too."""
        hosts, words = self.over_ssh()
        ready = 'trap "echo got it; exit 0" USR1; echo ready; while :; do sleep 0.05; done'
        for signal in ("USR1", "KILL"):
            job_words = hosts[0].command([*words, "sh", "-c", ready])
            with subprocess.Popen(job_words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True,
                                  env=job.clean_environment()) as uni_run:
                lines = [uni_run.stdout.readline() for _ in range(5)]
                os.kill(uni_run.pid, getattr(__import__("signal"), "SIG" + signal))
                lines += uni_run.stdout.readlines()
            text = "".join(sorted(lines))
            result = job.Result(f"SIG{signal}", [uni_run.returncode], [text])
            for rank in range(5):
                result.says(0, rf"(?m)^\[{rank}\] ready$")
                if signal == "USR1":
                    result.says(0, rf"(?m)^\[{rank}\] got it$")
            if signal == "USR1" and uni_run.returncode != 0:
                result.fail("every rank has ended well")
            self.nothing_is_left(result)

    def nothing_is_left(self, result):
        """Waits until no process of a job is in this lab, which has a process space of its own."""
        left = []
        for _ in range(daemons.WAITS_S * 10):
            left = [words for words in command_lines() if any(mark in words for mark in ("uni-run", "sleep 1000", "got it"))]
            if not left:
                return
            subprocess.run(["sleep", "0.1"], check=True)
        result.fail(f"left behind: {left}")

    def kubernetes(self):
        """The environment of an indexed Job's pods, as docs/clusters.md's manifest gives it."""
        hosts = self.hosts(3)
        environment = {"WORLD_SIZE": "3", "MASTER_ADDR": "host0", "MASTER_PORT": str(job.PORT), **SETTINGS}
        result = job.run_job("indexed job", self.bench, hosts, "host0", WORDS,
                             lambda rank: {"JOB_COMPLETION_INDEX": rank, "RANK": ""}, **environment)
        result.succeeds().says(None, r"met by tcp://host0:29500 \(MASTER_ADDR\), tcp with 2;")


def command_lines():
    """Of all processes but zombies, which have none, and this one."""
    lines = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/cmdline", "rb") as file:
                words = file.read().replace(b"\0", b" ").decode(errors="replace")
        except FileNotFoundError:
            continue
        if words and int(pid) != os.getpid():
            lines.append(words)
    return lines


def main():
    case, bin_folder = sys.argv[1:]
    lab.enter()
    if os.getuid() != 0:
        lab.skip("needs root")
    with tempfile.TemporaryDirectory(prefix="unisono-launchers-") as path:
        folder = daemons.Folder(path)
        try:
            getattr(Cases(os.path.abspath(bin_folder), folder), case)()
        finally:
            folder.close()
    print("ok")


if __name__ == "__main__":
    main()
