#!/usr/bin/env python3
"""Each hook puts on the wire what it says: the kernel's count of bytes, in a network of the test's own (`unshare --net`).

Usage: hook_wire_test.py DDP_DIGITS UNI_RUN
Two ranks train over TCP; what a hook sends less than the average without one must be what the reducer's statistics say. Not
permitted here: skipped, exit status 77.
"""

import os
import re
import shutil
import subprocess
import sys

DIGITS, UNI_RUN = sys.argv[1:3]
SKIPPED = 77
RANKS = 2
EPOCHS = 2
STEPS = 29 * EPOCHS
HIDDEN = (256, 128)  # large beside headers and acknowledgements
PARAMETERS = 65 * HIDDEN[0] + (HIDDEN[0] + 1) * HIDDEN[1] + (HIDDEN[1] + 1) * 10
INSIDE = "UNISONO_TEST_INSIDE"


def enter():
    """Runs this program again as the only user of a network."""
    user = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
    space = ["unshare", *user, "--net"]
    if None in (shutil.which("unshare"), shutil.which("ip")) or subprocess.run([*space, "true"], capture_output=True, check=False).returncode != 0:
        print("skipped: a network namespace is not permitted here")
        return SKIPPED
    return subprocess.run([*space, sys.executable, *sys.argv], env={**os.environ, INSIDE: "1"}, check=False).returncode


def sent():
    """Bytes that have left through the loopback device."""
    with open("/proc/self/net/dev", encoding="ascii") as devices:
        (line,) = (line for line in devices if line.strip().startswith("lo:"))
    return int(line.split(":")[1].split()[8])


def train(hook, kind):
    """What the statistics say of a step, and what a run has sent."""
    clean = {key: value for key, value in os.environ.items() if not key.startswith(("UNISONO_", "RANK", "WORLD"))}
    command = [UNI_RUN, "-n", str(RANKS), "--no-prefix", "--bind", "none", DIGITS, "--hook", hook, "--type", kind, "--epochs",
               str(EPOCHS), "--hidden", *map(str, HIDDEN), "--bucket-kib", "64"]
    before = sent()
    done = subprocess.run(command, capture_output=True, text=True, env={**clean, "UNISONO_TRANSPORTS": "tcp"}, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return int(re.search(r"^reducer: .*\bwire (\d+)", done.stdout, re.M).group(1)), sent() - before


def main():
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    for kind, width in (("f32", 4), ("f64", 8)):
        said, plain = train("none", kind)
        assert said == PARAMETERS * width, said
        # A sum on two ranks: each sends as much as it has.
        whole = STEPS * RANKS * said
        print(f"{kind} none: {said} bytes a step, {plain} sent, {whole} of them gradients")
        assert whole <= plain < 1.1 * whole, "what is sent is not what the statistics say"
        for hook, bytes_each in (("allreduce", width), ("fp16", 2), ("bf16", 2)):
            said, bytes_sent = train(hook, kind)
            print(f"{kind} {hook}: {said} bytes a step, {bytes_sent} sent")
            assert said == PARAMETERS * bytes_each, said
            spared = STEPS * RANKS * PARAMETERS * (width - bytes_each)
            assert abs(plain - bytes_sent - spared) < 0.03 * plain, f"{spared} bytes should have been spared"
    return 0


if __name__ == "__main__":
    sys.exit(main() if os.environ.get(INSIDE) == "1" else enter())
