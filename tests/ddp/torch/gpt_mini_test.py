#!/usr/bin/env python3
"""ddp-gpt-mini learns, and learns the same alone, as DataParallel and as DistributedDataParallel, with each hook and after a
resume. Usage: gpt_mini_test.py DDP_GPT_MINI UNI_RUN"""

import os
import subprocess
import sys
import tempfile
import unittest

PROGRAM, UNI_RUN = "", ""
STEPS = 40
SMALL = ["--context", "32", "--width", "32", "--batch", "8"]
TIMEOUT_S = 200
SAME = 2e-4  # sums in another order, grown over the steps
ROUNDED = 0.05


class GptMini(unittest.TestCase):
    def setUp(self):
        self.scratch = tempfile.TemporaryDirectory()
        self.addCleanup(self.scratch.cleanup)

    def path(self, name):
        return os.path.join(self.scratch.name, name)

    def losses(self, *arguments, ranks=1, steps=STEPS):
        file = self.path("losses.txt")
        command = [PROGRAM, *SMALL, "--steps", str(steps), "--losses", file, *arguments]
        if ranks > 1:
            command = [UNI_RUN, "-n", str(ranks), "--timeout", str(TIMEOUT_S), *command, "--bucket-kib", "16"]
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=TIMEOUT_S + 60, check=False)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertIn("final loss", done.stdout)
        with open(file, encoding="utf-8") as lines:
            return [float(line.split()[1]) for line in lines]

    def assert_close(self, ours, theirs, tolerance):
        self.assertEqual(len(ours), len(theirs))
        apart = max(abs(a - b) for a, b in zip(ours, theirs))
        self.assertLessEqual(apart, tolerance)

    def test_learns_the_same_in_every_way(self):
        alone = self.losses()
        self.assertLess(alone[-1], alone[0] - 0.4)
        self.assert_close(self.losses("--dp", "2"), alone, SAME)
        self.assert_close(self.losses(ranks=2), alone, SAME)
        self.assert_close(self.losses("--bucket-views", ranks=2), alone, SAME)
        self.assert_close(self.losses("--hook", "allreduce", ranks=2), alone, SAME)
        for hook in ("fp16", "bf16"):
            self.assert_close(self.losses("--hook", hook, ranks=2), alone, ROUNDED)

    def test_a_resumed_run_continues_the_same_curve(self):
        whole = self.losses(ranks=2)
        checkpoint = ["--checkpoint", self.path("gpt.pt")]
        self.losses(*checkpoint, ranks=2, steps=STEPS // 2)
        self.assert_close(self.losses(*checkpoint, ranks=2), whole, SAME)

    def test_draws_the_losses(self):
        self.losses("--plot", self.path("losses.svg"), steps=3)
        with open(self.path("losses.svg"), encoding="utf-8") as file:
            self.assertTrue(file.read().startswith("<svg"))


if __name__ == "__main__":
    PROGRAM, UNI_RUN = sys.argv[1:3]
    unittest.main(argv=sys.argv[:1] + sys.argv[3:])
