#!/usr/bin/env python3
"""The sampler gives exactly the indices of PyTorch's DistributedSampler.

Usage: sampler_against_torch.py LIBUNISONO_DDP [PYTHON] [--golden]

PyTorch is looked for in PYTHON or, first, in the interpreter that UNISONO_TORCH_PYTHON names; without it the test is
skipped (exit status 77). UNISONO_TEST_FULL=1 compares whole tables, and a list long enough for PyTorch's second rule.
--golden prints what tests/ddp/sampler_test.cc holds.
"""

import ctypes
import itertools
import os
import subprocess
import sys

SKIPPED = 77
MAGIC = 0x00736D70
FULL = os.environ.get("UNISONO_TEST_FULL") == "1"
SEEDS = (0, 1, 42, 2**31 + 7, 2**32 + 5)
LARGE = (100_003, 1_000_003, 4_999_999)
LONG_LIST = (2**32 - 1) // 20  # from here on PyTorch draws 64 bits


class Config(ctypes.Structure):
    _fields_ = [("size", ctypes.c_size_t), ("magic", ctypes.c_uint), ("shuffle", ctypes.c_int),
                ("drop_last", ctypes.c_int), ("evaluation", ctypes.c_int), ("seed", ctypes.c_uint64)]


class Unisono:
    def __init__(self, library):
        self.c = ctypes.CDLL(library)
        self.c.uniSamplerCreate.argtypes = [ctypes.POINTER(ctypes.c_void_p), ctypes.c_uint64, ctypes.c_int, ctypes.c_int,
                                            ctypes.POINTER(Config)]
        self.c.uniSamplerSetEpoch.argtypes = [ctypes.c_void_p, ctypes.c_uint64]
        self.c.uniSamplerNext.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint64,
                                          ctypes.POINTER(ctypes.c_uint64)]
        self.c.uniSamplerDestroy.argtypes = [ctypes.c_void_p]

    def create(self, samples, ranks, rank, shuffle, drop_last, seed):
        handle = ctypes.c_void_p()
        config = Config(ctypes.sizeof(Config), MAGIC, int(shuffle), int(drop_last), 0, seed)
        assert self.c.uniSamplerCreate(ctypes.byref(handle), samples, ranks, rank, ctypes.byref(config)) == 0
        return handle

    def counts(self, handle, epoch, buffer):
        """Fills buffer with the indices of an epoch, again and again; how many there are each time."""
        assert self.c.uniSamplerSetEpoch(handle, epoch) == 0
        count = ctypes.c_uint64()
        while True:
            assert self.c.uniSamplerNext(handle, buffer, len(buffer), ctypes.byref(count)) == 0
            if count.value == 0:
                return
            yield count.value

    def epoch(self, handle, epoch, buffer):
        """All indices of an epoch, in calls of at most len(buffer) indices."""
        return (buffer[:count] for count in self.counts(handle, epoch, buffer))

    def destroy(self, handle):
        assert self.c.uniSamplerDestroy(handle) == 0


class Length:
    """A data set, as far as DistributedSampler looks at one."""

    def __init__(self, samples):
        self.samples = samples

    def __len__(self):
        return self.samples


def torchs(sampler_class, samples, ranks, rank, shuffle, drop_last, seed):
    return sampler_class(Length(samples), num_replicas=ranks, rank=rank, shuffle=shuffle, seed=seed, drop_last=drop_last)


def compare(unisono, sampler_class, epochs, *case):
    theirs, handle = torchs(sampler_class, *case), unisono.create(*case)
    buffer = (ctypes.c_uint64 * 4096)()
    for epoch in epochs:
        theirs.set_epoch(epoch)
        wanted = list(theirs)
        got = list(itertools.chain.from_iterable(unisono.epoch(handle, epoch, buffer)))
        if got != wanted:
            at = next((i for i, (a, b) in enumerate(zip(got, wanted)) if a != b), min(len(got), len(wanted)))
            raise AssertionError(f"(samples, ranks, rank, shuffle, drop_last, seed) = {case}, epoch {epoch}: {len(got)} indices, "
                                 f"PyTorch gives {len(wanted)}; the first difference is at {at}: {got[at:at + 4]}, PyTorch "
                                 f"{wanted[at:at + 4]}")
    unisono.destroy(handle)
    return len(epochs)


def small_tables(unisono, sampler_class):
    """Every rank; without the full run, one seed and one epoch a shape, so that every pair of columns still meets."""
    lists = 0
    shapes = itertools.product(range(1, 2001, 37), range(1, 10), (False, True))
    for number, (samples, ranks, drop_last) in enumerate(shapes):
        for seed in SEEDS if FULL else (SEEDS[number % len(SEEDS)],):
            for rank in range(ranks):
                epochs = (0, 1, 17) if FULL else (number % 3,)
                lists += compare(unisono, sampler_class, epochs, samples, ranks, rank, True, drop_last, seed)
                if seed == SEEDS[0]:
                    lists += compare(unisono, sampler_class, (0,), samples, ranks, rank, False, drop_last, seed)
    return lists


def edges(unisono, sampler_class):
    lists = 0
    for samples, ranks, drop_last in itertools.product((0, 1, 2, 3), (1, 2, 7, 64), (False, True)):
        for rank in (0, ranks - 1):
            lists += compare(unisono, sampler_class, (0, 1), samples, ranks, rank, True, drop_last, 3)
    return lists


def large_tables(unisono, sampler_class):
    """PyTorch's own sampler for one rank of a shape, then every rank of every shape by slices."""
    lists = 0
    for samples in LARGE:
        shapes = itertools.product(range(1, 10), SEEDS, (False, True))
        for number, (ranks, seed, drop_last) in enumerate(shapes):
            if FULL or number % (9 if samples < 10**6 else 45) == 4:
                lists += compare(unisono, sampler_class, (number % 3,), samples, ranks, number % ranks, True, drop_last, seed)
        for seed in SEEDS if FULL or samples < 10**6 else ():
            lists += large_slices(unisono, sampler_class, samples, seed)
    return lists


def large_slices(unisono, sampler_class, samples, seed):
    """All ranks of all shapes. The list of one rank among one, from PyTorch, has what the others' are cut from: filled up from
    its head, or cut, then every ranks-th (small_tables and the lists before have this from PyTorch itself)."""
    import numpy  # comes with PyTorch
    order = numpy.array(list(torchs(sampler_class, samples, 1, 0, True, False, seed)), dtype=numpy.uint64)
    lists = 0
    for ranks, drop_last in itertools.product(range(1, 10), (False, True)):
        total = samples // ranks * ranks if drop_last else -(-samples // ranks) * ranks
        dealt = numpy.concatenate((order, order[:max(0, total - samples)]))[:total]
        for rank in range(ranks):
            handle = unisono.create(samples, ranks, rank, True, drop_last, seed)
            buffer = (ctypes.c_uint64 * (total // ranks + 1))()  # one more than there are
            (got,) = (numpy.frombuffer(buffer, dtype=numpy.uint64, count=count) for count in unisono.counts(handle, 0, buffer))
            assert numpy.array_equal(got, dealt[rank::ranks]), f"{(samples, ranks, rank, drop_last, seed)}: not PyTorch's list"
            unisono.destroy(handle)
            lists += 1
    return lists


def longest_list(unisono, torch):
    """DistributedSampler itself would make a Python list of it; its order is torch.randperm's."""
    samples = LONG_LIST + 1
    generator = torch.Generator()
    generator.manual_seed(11)
    wanted = torch.randperm(samples, generator=generator, dtype=torch.int32).numpy()
    handle = unisono.create(samples, 1, 0, True, False, 11)
    buffer = (ctypes.c_uint64 * (1 << 20))()
    import numpy  # comes with PyTorch
    at = 0
    for chunk in unisono.epoch(handle, 0, buffer):
        got = numpy.frombuffer(buffer, dtype=numpy.uint64, count=len(chunk))
        assert (wanted[at:at + len(chunk)] == got).all(), f"differs between {at} and {at + len(chunk)}"
        at += len(chunk)
    assert at == samples
    unisono.destroy(handle)
    return 1


def fnv(numbers):
    value = 0xCBF29CE484222325
    for number in numbers:
        for byte in number.to_bytes(8, "little"):
            value = (value ^ byte) * 0x100000001B3 % 2**64
    return value


def golden(sampler_class, torch):
    print("// samples, ranks, shuffle, drop_last, seed, epoch, then FNV-1a of all ranks' indices, 8 bytes each")
    for case in ((10, 1, 1, 0, 0, 0), (10, 3, 1, 0, 0, 0), (10, 3, 1, 1, 0, 0), (10, 3, 0, 0, 0, 5), (3, 8, 1, 0, 7, 2),
                 (3, 8, 1, 1, 7, 2), (1, 5, 1, 0, 0, 0), (1000, 4, 1, 0, 42, 0), (1000, 4, 1, 0, 42, 9), (1797, 7, 1, 1, 1, 3),
                 (1797, 7, 1, 0, 2**32 + 1, 3), (624, 2, 1, 0, 2**31 + 7, 0), (5000, 9, 1, 1, 2**32 - 1, 1)):
        samples, ranks, shuffle, drop_last, seed, epoch = case
        numbers = []
        for rank in range(ranks):
            sampler = torchs(sampler_class, samples, ranks, rank, shuffle, drop_last, seed)
            sampler.set_epoch(epoch)
            numbers += list(sampler)
        print("{" + ", ".join(str(number) for number in case) + f", 0x{fnv(numbers):016x}" + "},")
    for samples in (12, LONG_LIST):
        generator = torch.Generator()
        generator.manual_seed(11)
        order = torch.randperm(samples, generator=generator, dtype=torch.int32)
        print(f"// randperm({samples}) of seed 11: first, middle and last four")
        print([order[at:at + 4].tolist() for at in (0, samples // 2, samples - 4)])


def main():
    names = [word for word in sys.argv[1:] if word != "--golden"]
    python = os.environ.get("UNISONO_TORCH_PYTHON") or (names[1] if len(names) > 1 else "")
    if python and os.environ.get("UNISONO_TEST_REENTERED") != "1":
        return subprocess.run([python, *sys.argv], env={**os.environ, "UNISONO_TEST_REENTERED": "1"}, check=False).returncode
    try:
        import torch
        from torch.utils.data.distributed import DistributedSampler
    except ImportError as problem:
        print(f"skipped: no PyTorch in {sys.executable} ({problem}); UNISONO_TORCH_PYTHON names an interpreter that has it")
        return SKIPPED
    if "--golden" in sys.argv:
        golden(DistributedSampler, torch)
        return 0
    unisono = Unisono(names[0])
    lists = edges(unisono, DistributedSampler) + small_tables(unisono, DistributedSampler)
    lists += large_tables(unisono, DistributedSampler)
    lists += longest_list(unisono, torch) if FULL else 0
    print(f"{lists} lists are those of PyTorch {torch.__version__}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
