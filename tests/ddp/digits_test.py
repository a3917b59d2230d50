#!/usr/bin/env python3
"""ddp-digits as its users run it: the same training on 1, 2 and 4 ranks, killed and resumed, with every hook.

Usage: digits_test.py DDP_DIGITS UNI_RUN [unittest's arguments]
"""

import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import unittest
import xml.etree.ElementTree

DIGITS, UNI_RUN = sys.argv[1:3]
EPOCHS = 15
STEPS_AN_EPOCH = 29  # 1438 images to train on, in batches of 48
PARAMETERS = 64 * 64 + 64 + 64 * 32 + 32 + 32 * 10 + 10
TOLERANCE = {"f32": 1e-5, "f64": 1e-12}


def environment():
    """Alone: no launcher's variables, no settings of the caller."""
    return {key: value for key, value in os.environ.items() if not key.startswith(("UNISONO_", "RANK", "WORLD"))}


def command(ranks, *arguments):
    launcher = [UNI_RUN, "-n", str(ranks), "--no-prefix", "--bind", "none"] if ranks > 1 else []
    return [*launcher, DIGITS, *map(str, arguments)]


def read_losses(file):
    with open(file, encoding="utf-8") as lines:
        pairs = [line.split() for line in lines]
    assert [int(step) for step, _ in pairs] == list(range(1, len(pairs) + 1)), "steps are not 1, 2, 3, ..."
    return [loss for _, loss in pairs]


def processes_of(pid):
    """pid and all that descend from it, as the kernel has them now."""
    found = [pid]
    for parent in found:
        try:
            with open(f"/proc/{parent}/task/{parent}/children", encoding="ascii") as children:
                found += map(int, children.read().split())
        except OSError:  # it has just ended
            pass
    return found


class DigitsTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.mkdtemp(prefix="digits_test.")
        cls.references = {}

    @classmethod
    def tearDownClass(cls):
        shutil.rmtree(cls.folder)

    def path(self, name):
        return os.path.join(self.folder, name)

    def run_digits(self, ranks, *arguments, status=0):
        done = subprocess.run(command(ranks, *arguments), capture_output=True, text=True, env=environment(), check=False)
        self.assertEqual(done.returncode, status, f"{arguments} on {ranks}: {done.stdout}{done.stderr}")
        return done

    def train(self, ranks, *arguments):
        """The losses of a run, as texts of 17 digits, and what it printed."""
        losses = self.path("losses")
        done = self.run_digits(ranks, "--losses", losses, *arguments)
        return read_losses(losses), done.stdout

    def reference(self, kind, epochs=EPOCHS):
        """One process, made once."""
        if (kind, epochs) not in self.references:
            self.references[kind, epochs] = self.train(1, "--type", kind, "--epochs", epochs)
        return self.references[kind, epochs]

    def assert_agree(self, losses, wanted, tolerance):
        self.assertEqual(len(losses), len(wanted))
        worst = max((abs(float(a) / float(b) - 1), step) for step, (a, b) in enumerate(zip(losses, wanted), 1))
        self.assertLess(worst[0], tolerance, f"step {worst[1]}")

    def assert_learned(self, output):
        accuracy = float(re.search(r"^done: .* test accuracy ([\d.]+) %", output, re.M).group(1))
        self.assertGreater(accuracy, 95)

    def assert_refused(self, words, ranks, *arguments, status=1, output=None):
        done = self.run_digits(ranks, *arguments, status=status)
        self.assertIn(words, done.stderr)
        if output is not None:
            self.assertEqual(output, done.stdout)

    def test_several_processes_have_the_losses_of_one_step_by_step(self):
        for kind in ("f32", "f64"):
            wanted, output = self.reference(kind)
            self.assertEqual(len(wanted), EPOCHS * STEPS_AN_EPOCH)
            self.assert_learned(output)
            for ranks in (2, 4):
                with self.subTest(type=kind, ranks=ranks):
                    losses, output = self.train(ranks, "--type", kind)
                    self.assert_agree(losses, wanted, TOLERANCE[kind])
                    self.assert_learned(output)

    def test_a_run_repeats_itself_to_the_last_bit(self):
        first, again = (self.train(2, "--epochs", 2)[0] for _ in range(2))
        self.assertEqual(first, again)

    def test_gradients_in_bucket_views_are_the_same_ones(self):
        self.assertEqual(self.train(2, "--epochs", 2, "--bucket-views")[0], self.train(2, "--epochs", 2)[0])

    def test_data_parallel_replicas_have_the_losses_of_one_process(self):
        for replicas in (1, 3):
            losses, output = self.train(1, "--type", "f64", "--dp", replicas)
            self.assert_agree(losses, self.reference("f64")[0], TOLERANCE["f64"])
            self.assert_learned(output)

    def test_each_hook_converges_with_the_bytes_on_the_wire_that_it_promises(self):
        for hook, kind, bytes_each in (("none", "f32", 4), ("allreduce", "f32", 4), ("fp16", "f32", 2), ("bf16", "f32", 2),
                                       ("none", "f64", 8), ("fp16", "f64", 2)):
            with self.subTest(hook=hook, type=kind):
                _, output = self.train(2, "--hook", hook, "--type", kind)
                self.assert_learned(output)
                wire = int(re.search(r"^reducer: .*\bwire (\d+)", output, re.M).group(1))
                self.assertEqual(wire, PARAMETERS * bytes_each)

    def test_gradients_leave_in_buckets_while_backward_runs(self):
        output = self.train(2, "--epochs", 1)[1]
        buckets, rebuilt = re.search(r"^reducer: 6 parameters in (\d+) buckets, rebuilt (\d)", output, re.M).groups()
        self.assertGreater(int(buckets), 1)
        self.assertEqual(rebuilt, "1")

    def kill_at(self, checkpoint_step, *arguments):
        """Ends every process of the job with SIGKILL once it has said that it has that checkpoint."""
        with subprocess.Popen(command(2, *arguments), stdout=subprocess.PIPE, text=True, env=environment()) as job:
            for line in job.stdout:
                self.assertFalse(line.startswith("done"), "the job ended before it was killed")
                if line == f"checkpoint: step {checkpoint_step}\n":
                    break
            else:
                self.fail("the checkpoint was not written")
            for pid in processes_of(job.pid):
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass
            self.assertNotIn("done", job.stdout.read())  # until the last of them has closed it
        self.assertEqual(job.returncode, -signal.SIGKILL)

    def test_a_killed_job_resumes_the_same_curve_exactly(self):
        for kind in ("f32", "f64"):
            with self.subTest(type=kind):
                checkpoint, losses = self.path(f"killed.{kind}"), self.path("killed.losses")
                run = ["--type", kind, "--losses", losses, "--checkpoint", checkpoint, "--checkpoint-every", 7]
                # In the middle of the third epoch, or later: the job goes on until the signal is there.
                self.kill_at(2 * STEPS_AN_EPOCH + 5, *run, "--epochs", 1000000)
                before = len(read_losses(losses))
                epochs = before // STEPS_AN_EPOCH + 3
                output = self.run_digits(2, *run, "--epochs", epochs).stdout
                resumed = int(re.search(r"^resumed from .*, step (\d+)$", output, re.M).group(1))
                self.assertGreaterEqual(resumed, 63)
                self.assertTrue(resumed % 7 == 0 or resumed % STEPS_AN_EPOCH == 0)
                self.assertEqual(read_losses(losses), self.train(2, "--type", kind, "--epochs", epochs)[0])
                self.assertEqual([name for name in os.listdir(self.folder) if name.endswith(".new")], [])

    def test_a_checkpoint_goes_on_with_another_number_of_ranks(self):
        checkpoint = self.path("other_ranks")
        self.train(2, "--type", "f64", "--epochs", 2, "--checkpoint", checkpoint)
        losses, output = self.train(4, "--type", "f64", "--epochs", 4, "--checkpoint", checkpoint)
        self.assertIn(f"resumed from {checkpoint}: epoch 3, step {2 * STEPS_AN_EPOCH}", output)
        self.assert_agree(losses, self.reference("f64")[0][:4 * STEPS_AN_EPOCH], TOLERANCE["f64"])
        finished = self.run_digits(1, "--type", "f64", "--epochs", 4, "--checkpoint", checkpoint).stdout
        self.assertIn(f"done: {4 * STEPS_AN_EPOCH} steps", finished)

    def test_a_checkpoint_that_does_not_fit_is_refused_in_words(self):
        file = self.path("spoilt")
        short = ("--epochs", 1, "--hidden", 8)
        self.train(1, *short, "--checkpoint", file)
        with open(file, "rb") as whole:
            sound = whole.read()
        self.assert_refused("layers of 64 8 10 units there, 64 9 10 here", 1, "--hidden", 9, "--checkpoint", file)
        for other, words in ((("--type", "f64"), "bytes of --type: 4 there, 8 here"), (("--batch", 24), "--batch: 48"),
                             (("--seed", 3), "--seed: 0 there, 3 here")):
            self.assert_refused(words, 1, *short, *other, "--checkpoint", file)
        spoilt = [(sound[:cut], "is cut short") for cut in (17, 80, len(sound) - 8, len(sound) - 1)]
        spoilt += [(sound + b"more", "is cut short or too long"), (b"", "is no checkpoint"), (b"#!/bin/sh\n", "is no checkpoint"),
                   (sound[:8] + b"\x07" + sound[9:], "has version 7; this program reads 1"),
                   (sound[:-20] + bytes([sound[-20] ^ 1]) + sound[-19:], "its checksum is wrong"),
                   (sound[:48] + b"\xff" * 8 + sound[56:], "layers, more than")]
        for content, words in spoilt:
            with open(file, "wb") as out:
                out.write(content)
            self.assert_refused(words, 1, *short, "--checkpoint", file)
        self.assert_refused(f"{file}: ", 2, *short, "--checkpoint", file)
        with open(file, "rb") as unchanged:
            self.assertEqual(unchanged.read(), spoilt[-1][0])

    def test_what_is_no_regular_file_is_refused_as_a_checkpoint_without_waiting(self):
        fifo, beside, short = self.path("fifo"), self.path("beside"), ("--epochs", 1, "--hidden", 8)
        os.mkfifo(fifo)
        os.mkfifo(beside + ".new")
        for file in (fifo, self.folder, "/dev/null"):
            self.assert_refused(f"--checkpoint: {file}: is no regular file", 1, *short, "--checkpoint", file)
        self.assert_refused(f"--checkpoint: {beside}.new: open: No such device", 1, *short, "--checkpoint", beside)
        os.unlink(beside + ".new")

    def test_a_damaged_step_count_is_no_reason_to_allocate(self):
        file = self.path("huge")
        short = ("--epochs", 1, "--hidden", 8)
        self.train(1, *short, "--checkpoint", file)
        with open(file, "rb") as whole:
            sound = whole.read()
        at = 8 * (7 + 3 + 2)  # magic, version, four of the run, number of layers, three layers, epoch, images: then step
        with open(file, "wb") as out:
            out.write(sound[:at] + b"\xff" * 7 + b"\x1f" + sound[at + 8:])
        self.assert_refused("is cut short or too long", 1, *short, "--checkpoint", file)

    def test_the_plot_is_svg_with_a_point_a_step(self):
        file = self.path("plot.svg")
        losses, _ = self.train(2, "--epochs", 3, "--plot", file)
        root = xml.etree.ElementTree.parse(file).getroot()
        self.assertEqual(root.tag, "{http://www.w3.org/2000/svg}svg")
        lines = root.findall("{http://www.w3.org/2000/svg}polyline")
        self.assertEqual(len(lines), 1)
        points = [tuple(map(float, point.split(","))) for point in lines[0].get("points").split()]
        self.assertEqual(len(points), len(losses))
        self.assertEqual(points, sorted(points, key=lambda point: point[0]))
        lowest = max(range(len(points)), key=lambda i: points[i][1])  # y grows downwards
        self.assertAlmostEqual(float(losses[lowest]), min(map(float, losses)), delta=0.01)
        width, height = float(root.get("width")), float(root.get("height"))
        self.assertTrue(all(0 <= x <= width and 0 <= y <= height for x, y in points))

    def test_what_cannot_be_is_refused_by_name(self):
        self.assert_refused("--batch: 50 images cannot be shared equally by 4 ranks", 4, "--batch", 50)
        self.assert_refused("--batch: 2000 is more than the 1438 images", 1, "--batch", 2000)
        self.assert_refused("--dp: is for one process; this job has 2", 2, "--dp", 2)
        self.assert_refused("--hook: fp17 not in {none,allreduce,fp16,bf16}", 1, "--hook", "fp17", status=2)
        self.assert_refused("--type: f16 not in {f32,f64}", 1, "--type", "f16", status=2)
        self.assert_refused("--lr: Value x not in range 0.000000 to 1000000000.000000", 1, "--lr", "x", status=2)
        self.assert_refused("excludes", 1, "--dp", 2, "--bucket-views", status=2)
        for flag in ("--lr", "--momentum"):
            for number in ("nan", "inf"):
                self.assert_refused(flag, 1, flag, number, status=2)
        # Before the first step, not after the last.
        nowhere = self.path("no_folder/file")
        for flag, words in (("--plot", f"{nowhere}: "), ("--losses", f"{nowhere}: "), ("--checkpoint", f"{nowhere}.new: open: ")):
            self.assert_refused(f"{flag}: {words}No such file or directory", 1, flag, nowhere, output="")
        data = self.path("data.csv")
        good = ",".join(["16"] * 64) + ",9\n"
        for bad in (good.replace("16", "17", 1), good.replace(",9", ",10"), good.replace("16,", "", 1), good.replace("9", ""),
                    good.replace("\n", ",1\n"), "\n"):
            with open(data, "w", encoding="ascii") as out:
                out.write(good * 2 + bad + good * 10)
            self.assert_refused(f"--data: {data}: line 3: ", 1, "--data", data)
        with open(data, "w", encoding="ascii") as out:
            out.write(good)
        self.assert_refused("has less than 5 images", 1, "--data", data)

    def test_a_full_disk_is_said_in_words(self):
        short = ("--epochs", 1, "--hidden", 8)
        for flag in ("--losses", "--plot"):
            self.assert_refused(f"ddp-digits: {flag}: /dev/full: No space left on device\n", 1, *short, flag, "/dev/full")
        checkpoint = self.path("full")
        os.symlink("/dev/full", checkpoint + ".new")
        self.assert_refused(f"--checkpoint: {checkpoint}.new: write: No space left on device", 1, *short, "--checkpoint", checkpoint)
        self.assertEqual([name for name in os.listdir(self.folder) if name.startswith("full")], [])
        with open("/dev/full", "w", encoding="ascii") as full:
            for more in ((), ("--dp", 2)):
                done = subprocess.run(command(1, *short, *more), stdout=full, stderr=subprocess.PIPE, text=True,
                                      env=environment(), check=False)
                # libc forgets the reason where an earlier flush has met it.
                self.assertEqual(done.returncode, 3)
                self.assertRegex(done.stderr, r"^ddp-digits: standard output: (No space left on device|cannot be written)\n$")

    def test_a_model_that_memory_does_not_hold_is_refused_in_words(self):
        def limited(*arguments):
            limit = lambda: resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30))
            return subprocess.run(command(1, *arguments), capture_output=True, text=True, env=environment(), check=False,
                                  preexec_fn=limit)
        if limited("--help").returncode != 0:
            self.skipTest("a sanitizer needs more address space")
        for more in ((), ("--dp", 2)):
            done = limited("--hidden", 65536, 65536, *more)
            self.assertEqual(done.returncode, 1, done.stderr)
            self.assertIn("ddp-digits: not enough memory for --hidden 65536 65536\n", done.stderr)

    def test_the_rank_that_dies_is_named_by_its_peers_and_nobody_hangs(self):
        """Without uni-run, which would end the other rank before it can say so."""
        place = {**environment(), "WORLD_SIZE": "2", "UNISONO_MEETING": f"unix:digits-test-{os.getpid()}"}
        ranks = [subprocess.Popen(command(1, "--epochs", 1000000), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                  env={**place, "RANK": str(rank)}) for rank in range(2)]
        while not ranks[0].stdout.readline().startswith("epoch"):
            self.assertIsNone(ranks[0].poll())
        ranks[1].kill()
        _, errors = ranks[0].communicate()
        ranks[1].communicate()
        self.assertEqual(ranks[0].returncode, 1)
        self.assertRegex(errors, r"ddp-digits: uni\w+: .*rank 1")


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]])
