#!/usr/bin/env python3
"""unisono::ddp::DistributedDataParallel against PyTorch's own over gloo: the same models, seeds and data on two processes.

Usage: torch_against_pytorch.py UNI_RUN TORCH_CASES [CASE...]
Each case trains for 50 steps here and in TORCH_CASES (torch_cases.cc has the same models), from parameters and batches that
are made here and handed over in files; then parameters and buffers of both ranks must agree to 1e-5.
Exit status 1: not so.
"""

import contextlib
import os
import subprocess
import sys
import tempfile

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.distributed.algorithms.join import Join
from torch.nn.parallel import DistributedDataParallel

RANKS = 2
STEPS = 50
ROWS = 6
WIDTH = 8
TOLERANCE = 1e-5
SEED = 20260
TIMEOUT_S = 300


class Plain(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(WIDTH, 16)
        self.second = nn.Linear(16, 16)
        self.third = nn.Linear(16, WIDTH)

    def forward(self, x, step):
        return self.third(torch.tanh(self.second(torch.tanh(self.first(x)))))


class Normed(nn.Module):
    """Has buffers, floating and integer."""

    def __init__(self):
        super().__init__()
        self.first = nn.Linear(WIDTH, 16)
        self.norm = nn.BatchNorm1d(16)
        self.second = nn.Linear(16, WIDTH)

    def forward(self, x, step):
        return self.second(torch.tanh(self.norm(self.first(x))))


class Branches(nn.Module):
    """Which branch is taken depends on step and rank: `left` is used by rank 0 alone at even steps, `right` by rank 1 alone at
    steps that 3 divides, `rare` by nobody but at steps that 10 divides, `never` by nobody."""

    def __init__(self):
        super().__init__()
        self.first = nn.Linear(WIDTH, WIDTH)
        self.left = nn.Linear(WIDTH, WIDTH)
        self.right = nn.Linear(WIDTH, WIDTH)
        self.rare = nn.Linear(WIDTH, WIDTH)
        self.never = nn.Linear(WIDTH, WIDTH)
        self.rank = 0

    def forward(self, x, step):
        x = torch.tanh(self.first(x))
        if self.rank == 0 and step % 2 == 0:
            x = x + self.left(x)
        if self.rank == 1 and step % 3 == 0:
            x = x + self.right(x)
        if step % 10 == 0:
            x = x + self.rare(x)
        return x


class Fixed(nn.Module):
    """One parameter is not used at all, and always so: a static graph."""

    def __init__(self):
        super().__init__()
        self.first = nn.Linear(WIDTH, WIDTH)
        self.never = nn.Linear(WIDTH, WIDTH)
        self.second = nn.Linear(WIDTH, WIDTH)

    def forward(self, x, step):
        return self.second(torch.tanh(self.first(x)))


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(WIDTH, WIDTH)
        self.second = nn.Linear(WIDTH, WIDTH)
        self.second.weight = self.first.weight

    def forward(self, x, step):
        return self.second(torch.tanh(self.first(x)))


class TwoTypes(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(WIDTH, 16)
        self.second = nn.Linear(16, 16, dtype=torch.float64)
        self.third = nn.Linear(16, WIDTH)

    def forward(self, x, step):
        x = torch.tanh(self.first(x))
        return self.third(torch.tanh(self.second(x.double())).float())


# name -> model, options of DistributedDataParallel, what else: steps of each rank, how many backwards a synchronised one, the
# parameters that are frozen, a hook. torch_cases.cc has the same table.
SMALL = 0.0005  # MB: several buckets even for these models
CASES = {
    "plain": (Plain, {}, {}),
    "views": (Plain, {"gradient_as_bucket_view": True, "bucket_cap_mb": SMALL}, {}),
    "buffers": (Normed, {"bucket_cap_mb": SMALL}, {}),
    "unused": (Branches, {"find_unused_parameters": True}, {}),
    "unused_views": (Branches, {"find_unused_parameters": True, "gradient_as_bucket_view": True}, {}),
    "unused_kept": (Branches, {"find_unused_parameters": True}, {"zero": True}),
    "static": (Fixed, {"static_graph": True}, {}),
    "no_sync": (Plain, {}, {"accumulate": 3}),
    "no_sync_views": (Plain, {"gradient_as_bucket_view": True}, {"accumulate": 3}),
    "no_sync_unused": (Branches, {"find_unused_parameters": True}, {"accumulate": 3}),
    "join": (Plain, {}, {"steps": (STEPS, 37)}),
    "join_views": (Plain, {"gradient_as_bucket_view": True, "bucket_cap_mb": SMALL}, {"steps": (29, STEPS)}),
    "join_buffers": (Normed, {}, {"steps": (STEPS, 37)}),
    # PyTorch as it is: without momentum zeros and no gradient at all move a parameter alike (send_cleared_map says why).
    "join_unused": (Branches, {"find_unused_parameters": True}, {"steps": (37, STEPS), "momentum": 0.0}),
    "join_unused_momentum": (Branches, {"find_unused_parameters": True}, {"steps": (37, STEPS), "clear_map": True}),
    "join_divide": (Plain, {}, {"steps": (37, STEPS), "divide_by_initial_world_size": False}),
    "join_no_sync": (Plain, {}, {"steps": (36, STEPS), "accumulate": 3}),
    "shared": (Tied, {}, {}),
    "frozen": (Plain, {}, {"frozen": ("second.weight", "second.bias")}),
    "two_types": (TwoTypes, {"bucket_cap_mb": SMALL}, {}),
    "float16_hook": (Plain, {}, {"hook": default_hooks.fp16_compress_hook}),
    "bfloat16_hook": (Plain, {}, {"hook": default_hooks.bf16_compress_hook}),
}


def batch(name, rank, step):
    generator = torch.Generator().manual_seed(SEED + 1000 * step + 7 * rank + 100000 * list(CASES).index(name))
    return torch.randn(ROWS, WIDTH, generator=generator), torch.randn(ROWS, WIDTH, generator=generator)


def initial(name, rank):
    """Ranks begin with different parameters: rank 0's must win."""
    torch.manual_seed(SEED + rank)
    model = CASES[name][0]()
    for parameter, tensor in model.named_parameters():
        tensor.requires_grad_(parameter not in CASES[name][2].get("frozen", ()))
    return model


def steps_of(name, rank):
    return CASES[name][2].get("steps", (STEPS, STEPS))[rank]


def write_inputs(folder):
    for name in CASES:
        for rank in range(RANKS):
            model = initial(name, rank)
            batches = [tensor for step in range(steps_of(name, rank)) for tensor in batch(name, rank, step)]
            state = [p.detach() for p in model.parameters()] + list(model.buffers())
            torch.save((state, batches), os.path.join(folder, f"{name}.{rank}.in"))


def send_cleared_map(ddp):
    """Instead of _match_unused_params_allreduce of DistributedDataParallel, which a rank that has left calls in each step of the
    others: there the map of used parameters is summed in place and never cleared, so that this rank goes on saying used of
    whatever anybody has used since its last own step. Then the others are given zeros for what nobody uses, and momentum
    moves it. Cleared, as our ranks send it, the two are to agree."""
    used = ddp.reducer._get_local_used_map()
    assert used.any(), "PyTorch clears the map by itself now: this case can do without"
    ddp.process_group.allreduce(used.zero_()).wait()


def train(name, rank):
    _, options, more = CASES[name]
    model = initial(name, rank)
    if isinstance(model, Branches):
        model.rank = rank
    ddp = DistributedDataParallel(model, **options)
    if "clear_map" in more:
        ddp._match_unused_params_allreduce = lambda: send_cleared_map(ddp)
    if "hook" in more:
        ddp.register_comm_hook(None, more["hook"])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=more.get("momentum", 0.9))
    accumulate = more.get("accumulate", 1)
    join = contextlib.nullcontext()
    if "steps" in more:
        join = Join([ddp], divide_by_initial_world_size=more.get("divide_by_initial_world_size", True))
    with join:
        for step in range(steps_of(name, rank)):
            inputs, targets = batch(name, rank, step)
            last = (step + 1) % accumulate == 0
            with contextlib.nullcontext() if last else ddp.no_sync():
                nn.functional.mse_loss(ddp(inputs, step), targets).backward()
            if last:
                optimizer.step()
                optimizer.zero_grad(set_to_none=not more.get("zero", False))
    return [p.detach().clone() for p in model.parameters()] + [b.clone() for b in model.buffers()]


def run_pytorch(rank, folder, names):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=RANKS)
    for name in names:
        torch.save(train(name, rank), os.path.join(folder, f"{name}.{rank}.pytorch"))
    dist.destroy_process_group()


def run_unisono(uni_run, program, folder, names):
    command = [uni_run, "-n", str(RANKS), "--timeout", str(TIMEOUT_S), program, folder, *names]
    subprocess.run(command, check=True, timeout=TIMEOUT_S + 60)


def difference(name, rank, folder):
    theirs = torch.load(os.path.join(folder, f"{name}.{rank}.pytorch"))
    ours = torch.load(os.path.join(folder, f"{name}.{rank}.out"))
    before, _ = torch.load(os.path.join(folder, f"{name}.{rank}.in"))
    if [t.shape for t in theirs] != [t.shape for t in ours] or [t.dtype for t in theirs] != [t.dtype for t in ours]:
        return float("inf"), 0.0
    apart = max((a.double() - b.double()).abs().max().item() for a, b in zip(theirs, ours))
    moved = max((a - b).abs().max().item() for a, b in zip(theirs, before) if a.is_floating_point())
    return apart, moved


def main():
    uni_run, program = sys.argv[1:3]
    names = sys.argv[3:] or list(CASES)
    failed = []
    with tempfile.TemporaryDirectory() as folder:
        write_inputs(folder)
        mp.spawn(run_pytorch, (folder, names), nprocs=RANKS)
        run_unisono(uni_run, program, folder, names)
        for name in names:
            results = [difference(name, rank, folder) for rank in range(RANKS)]
            apart, moved = (max(values) for values in zip(*results))
            # Training has moved them: the comparison means something.
            good = apart <= TOLERANCE and moved > 0.01
            print(f"{name}: largest difference {apart:.2e}, moved by {moved:.2f}: {'same' if good else 'DIFFERENT'}")
            if not good:
                failed.append(name)
    if failed:
        print(f"seed {SEED}: different from PyTorch {torch.__version__}: {', '.join(failed)}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
