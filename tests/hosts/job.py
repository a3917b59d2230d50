"""One job of comm-bench whose ranks stand on given hosts, and what is expected of it."""
import os
import re
import subprocess

STARTS_WITHIN_MS = 5000  # the library's own deadline for start-up and each call: it fails, not a clock of the test
HANGS_AFTER_S = 120  # only against a test that never ends
PORT = 29500  # every lab has network namespaces of its own: nobody else is there


class Result:
    def __init__(self, title, codes, outputs):
        self.title, self.codes, self.outputs = title, codes, outputs

    @property
    def text(self):
        return "".join(f"[{rank}] {line}\n" for rank, output in enumerate(self.outputs) for line in output.splitlines())

    def fail(self, why):
        raise AssertionError(f"{self.title}: {why}\n{self.text}")

    def succeeds(self):
        if any(self.codes):
            self.fail(f"exit statuses {self.codes}")
        found = re.search(r"# Out of bounds values : (\d+) (\w+)", self.outputs[0])
        if not found or found.groups() != ("0", "OK"):
            self.fail("no results, or wrong ones")
        return self

    def fails(self):
        if not all(self.codes):
            self.fail(f"exit statuses {self.codes}, though every rank must fail")
        return self

    def says(self, rank, pattern):
        """Rank `rank`, or each of them (None), has written something that matches."""
        for number in range(len(self.outputs)) if rank is None else [rank]:
            if not re.search(pattern, self.outputs[number]):
                self.fail(f"rank {number} does not say: {pattern}")
        return self

    def used(self, algorithm):
        """Every row of the table was measured by it."""
        rows = [line.split() for line in self.outputs[0].splitlines() if re.match(r"\s+\d+\s", line)]
        if not rows or any(row[-1] != algorithm for row in rows):
            self.fail(f"does not use {algorithm}")
        return self

    def never_says(self, pattern):
        found = re.search(pattern, self.text)
        if found:
            self.fail(f"says: {found.group(0)}")
        return self


def clean_environment():
    """Without what a launcher around the test may have set."""
    ours = ("UNISONO_", "OMPI_", "PMI", "SLURM_", "TORCHELASTIC_", "MASTER_")
    place = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")
    return {name: value for name, value in os.environ.items() if not name.startswith(ours) and name not in place}


def run_job(title, bench, hosts, master, words, each=lambda rank: {}, **variables):
    """Rank r of `bench words` on hosts[r]. Variables go to all ranks, each(rank)'s to one."""
    ranks = []
    for rank, host in enumerate(hosts):
        environment = clean_environment()
        environment.update(RANK=str(rank), WORLD_SIZE=str(len(hosts)), UNISONO_LOG_LEVEL="info",
                           UNISONO_TIMEOUT_MS=str(STARTS_WITHIN_MS), UNISONO_JOB_SECRET="of a test")
        if master:
            environment.update(MASTER_ADDR=master, MASTER_PORT=str(PORT))
        environment.update({name: str(value) for name, value in {**variables, **each(rank)}.items()})
        ranks.append(subprocess.Popen(host.command([bench, *words]), env=environment, stdin=subprocess.DEVNULL,
                                      stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True))
    outputs, codes = [], []
    for rank in ranks:
        try:
            outputs.append(rank.communicate(timeout=HANGS_AFTER_S)[0])
        except subprocess.TimeoutExpired:
            rank.kill()
            outputs.append((rank.communicate()[0] or "") + "\n(killed: it hung)")
        codes.append(rank.returncode)
    return Result(title, codes, outputs)
