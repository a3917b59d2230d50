"""Slurm and sshd for one test: configured in a temporary folder, on the hosts of a lab, gone with it."""
import os
import shutil
import subprocess

import lab

WAITS_S = 60  # for a daemon that does not come up


class Folder:
    """What every daemon of a test has: a folder, logs, and its end."""

    def __init__(self, path):
        self.path = path
        self.processes = []

    def write(self, name, text, mode=0o600):
        path = os.path.join(self.path, name)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        os.chmod(path, mode)
        return path

    def start(self, name, command, environment=None):
        log = os.path.join(self.path, name + ".log")
        with open(log, "wb") as file:
            self.processes.append((name, subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=file, stderr=file,
                                                          env=environment)))

    def logs(self):
        texts = []
        for name in sorted(os.listdir(self.path)):
            if name.endswith(".log"):
                with open(os.path.join(self.path, name), encoding="utf-8", errors="replace") as file:
                    texts.append(f"--- {name}\n{file.read()[-4000:]}")
        return "\n".join(texts)

    def close(self):
        for _, process in reversed(self.processes):
            process.terminate()
        for _, process in self.processes:
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def wait_until(what, command, folder, wanted=lambda done: done.returncode == 0):
    """Asks a daemon again and again; the pause is between questions, nothing depends on its length."""
    for _ in range(WAITS_S * 10):
        done = subprocess.run(command, capture_output=True, text=True)
        if wanted(done):
            return done
        subprocess.run(["sleep", "0.1"], check=True)
    raise AssertionError(f"{what} does not come up: {done.stdout}{done.stderr}\n{folder.logs()}")


def needs(*programs, package):
    for program in programs:
        if shutil.which(program, path=os.environ["PATH"] + ":/usr/sbin:/usr/local/sbin") is None:
            lab.skip(f"{program} is missing (package {package})")


# ---- ssh ----

def start_sshd(folder, hosts, addresses):
    """A server on port 22 of each host, and the words of a client that gets in by a key of its own."""
    needs("sshd", "ssh", "ssh-keygen", package="openssh-server")
    for name in ("host_key", "user_key"):
        lab.run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", os.path.join(folder.path, name))
    shutil.copy(os.path.join(folder.path, "user_key.pub"), os.path.join(folder.path, "authorized_keys"))
    os.makedirs("/run/sshd", mode=0o755, exist_ok=True)  # sshd insists on it; the lab has a /run of its own
    config = folder.write("sshd_config", f"""\
Port 22
HostKey {folder.path}/host_key
AuthorizedKeysFile {folder.path}/authorized_keys
PermitRootLogin prohibit-password
PasswordAuthentication no
KbdInteractiveAuthentication no
StrictModes no
UsePAM no
PidFile none
MaxStartups 100
""")
    for host in hosts:
        folder.start(f"sshd-{host.space}", host.command([shutil.which("sshd", path="/usr/sbin:/usr/local/sbin"), "-D", "-e",
                                                         "-f", config]))
    ssh = ["ssh", "-F", "none", "-i", os.path.join(folder.path, "user_key"), "-o", "BatchMode=yes", "-o",
            "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null", "-o", "LogLevel=ERROR"]
    for address in addresses:
        wait_until("sshd", hosts[0].command([*ssh, address, "true"]), folder)
    return ssh


# ---- Slurm ----

def start_slurm(folder, hosts, addresses):
    """munged, slurmctld on the first host, slurmd on each. Returns the environment for srun."""
    needs("slurmctld", "slurmd", "srun", package="slurm-wlm")
    needs("munged", package="munge")
    os.chmod(folder.path, 0o755)
    key = os.path.join(folder.path, "munge.key")
    with open(key, "wb") as file:
        file.write(os.urandom(128))
    os.chmod(key, 0o400)
    socket = os.path.join(folder.path, "munge.socket")
    folder.start("munged", ["munged", "--foreground", "--force", f"--key-file={key}", f"--socket={socket}",
                            f"--pid-file={folder.path}/munged.pid", f"--log-file={folder.path}/munged.log",
                            f"--seed-file={folder.path}/munged.seed"])
    wait_until("munged", ["munge", "-n", "-S", socket], folder)
    nodes = "\n".join(f"NodeName={host.name} NodeAddr={address} CPUs=4 State=UNKNOWN"
                      for host, address in zip(hosts, addresses))
    os.makedirs(os.path.join(folder.path, "state"))
    config = folder.write("slurm.conf", f"""\
ClusterName=lab
SlurmctldHost={hosts[0].name}({addresses[0]})
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={socket}
CredType=cred/munge
StateSaveLocation={folder.path}/state
SlurmdSpoolDir={folder.path}/spool-%n
SlurmctldPidFile={folder.path}/slurmctld.pid
SlurmdPidFile={folder.path}/slurmd-%n.pid
SlurmdParameters=config_overrides
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SchedulerType=sched/builtin
JobAcctGatherType=jobacct_gather/none
MpiDefault=none
ReturnToService=2
{nodes}
PartitionName=all Nodes=ALL Default=YES State=UP MaxTime=INFINITE
""", 0o644)
    # The plugin is loaded even where nothing uses control groups; this one needs none to be there.
    folder.write("cgroup.conf", "CgroupPlugin=cgroup/v1\n", 0o644)
    environment = dict(os.environ, SLURM_CONF=config)
    folder.start("slurmctld", hosts[0].command(["slurmctld", "-D", "-f", config]), environment)
    for host in hosts:
        os.makedirs(os.path.join(folder.path, f"spool-{host.name}"))
        folder.start(f"slurmd-{host.name}", host.command(["slurmd", "-D", "-N", host.name, "-f", config]), environment)
    states = ["env", f"SLURM_CONF={config}", *hosts[0].command(["sinfo", "-h", "-N", "-o", "%T"])]
    wait_until("Slurm", states, folder, lambda done: done.stdout.split() == ["idle"] * len(hosts))
    return {"SLURM_CONF": config}
