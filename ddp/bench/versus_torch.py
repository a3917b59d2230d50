#!/usr/bin/env python3
"""PyTorch's DistributedDataParallel over gloo beside our reducer, on one list of parameter shapes, in the same processes.

    uni-run -n 2 PYTHON versus_torch.py BUILD_FOLDER [--model resnet50,gpt2] [--batch 64] [--steps 10] [-J FILE]

BUILD_FOLDER: where lib/libunisono_ddp.so and bin/ddp-bench are; the latter says which shapes a model has.

Each step is run in three ways, in turns: computation alone, with DDP over gloo, with uniReducer (called through ctypes
from the hooks that PyTorch offers to everybody). Exposed: what a step takes longer than the computation alone, the
median over steps. Backward is PyTorch's own: one function a parameter, two matrix products each."""
import argparse
import ctypes
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


def shapes_of(program, model):
    """As ddp-bench has them: [(name, dims)]."""
    words = [program, "--model", model, "--print-model"]
    lines = subprocess.run(words, check=True, capture_output=True, text=True).stdout.splitlines()
    rows = [line.split() for line in lines if not line.startswith("#")]
    return [(row[0], tuple(map(int, row[1:]))) for row in rows]


class Layer(torch.autograd.Function):
    """Passes a token on; backward costs the parameter's two products."""

    @staticmethod
    def forward(context, token, weight, inputs, outputs):
        context.save_for_backward(weight, inputs, outputs)
        return token + 0

    @staticmethod
    def backward(context, grad):
        weight, inputs, outputs = context.saved_tensors
        if weight.dim() < 2:
            return grad, outputs.sum(0), None, None
        matrix = weight.view(weight.shape[0], -1)
        torch.mm(outputs, matrix)
        return grad, torch.mm(outputs.t(), inputs).view_as(weight), None, None


class Model(torch.nn.Module):
    def __init__(self, shapes, batch, seed):
        super().__init__()
        generator = torch.Generator().manual_seed(seed)
        widest_in = max(torch.Size(shape).numel() // shape[0] for _, shape in shapes)
        widest_out = max(shape[0] for _, shape in shapes)
        self.inputs = torch.rand(batch * widest_in, generator=generator) - 0.5
        self.outputs = torch.rand(batch * widest_out, generator=generator) - 0.5
        self.batch = batch
        for name, shape in shapes:
            self.register_parameter(name.replace(".", "_"), torch.nn.Parameter(torch.full(shape, 0.01)))

    def forward(self, token):
        for weight in self.parameters():
            columns = weight.numel() // weight.shape[0]
            inputs = self.inputs[: self.batch * columns].view(self.batch, columns)
            outputs = self.outputs[: self.batch * weight.shape[0]].view(self.batch, weight.shape[0])
            token = Layer.apply(token, weight, inputs, outputs)
        return token


class Parameter(ctypes.Structure):
    _fields_ = [("name", ctypes.c_char_p), ("grad", ctypes.c_void_p), ("type", ctypes.c_int), ("dims", ctypes.c_int),
                ("shape", ctypes.POINTER(ctypes.c_size_t))]


class Config(ctypes.Structure):
    _fields_ = [("size", ctypes.c_size_t), ("magic", ctypes.c_uint), ("bucket_bytes", ctypes.c_size_t),
                ("first_bucket_bytes", ctypes.c_size_t), ("bucket_views", ctypes.c_int), ("find_unused", ctypes.c_int),
                ("static_graph", ctypes.c_int), ("keep_buckets", ctypes.c_int), ("hook", ctypes.c_void_p),
                ("hook_arg", ctypes.c_void_p)]


FLOAT32 = 7  # uniFloat32


class Unisono:
    """The reducer on a model's parameters; gradients live in its buckets."""

    def __init__(self, path):
        self.library = ctypes.CDLL(path, mode=ctypes.RTLD_GLOBAL)
        self.library.uniGetLastError.restype = ctypes.c_char_p
        self.comm = ctypes.c_void_p()
        self.call("uniCommInitUrl", ctypes.byref(self.comm), None, -1, -1, None)
        self.reducer = ctypes.c_void_p()

    def call(self, name, *arguments):
        if getattr(self.library, name)(*arguments) != 0:
            sys.exit(f"{name}: {self.library.uniGetLastError(None).decode()}")

    def attach(self, model):
        parameters = list(model.parameters())
        described = (Parameter * len(parameters))()
        for at, (name, weight) in zip(described, model.named_parameters()):
            at.name, at.grad, at.type, at.dims = name.encode(), None, FLOAT32, weight.dim()
            at.shape = (ctypes.c_size_t * weight.dim())(*weight.shape)
        config = Config(ctypes.sizeof(Config), 0x00646470, 25 << 20, 1 << 20, 1, 0, 0, 0, None, None)
        self.call("uniReducerCreate", ctypes.byref(self.reducer), self.comm, described, len(parameters),
                  ctypes.byref(config))
        self.parameters = parameters
        self.hooks = [weight.register_post_accumulate_grad_hook(lambda _, i=i: self.ready(i))
                      for i, weight in enumerate(parameters)]
        self.active = False

    def ready(self, index):
        if self.active:
            self.call("uniReducerMarkReady", self.reducer, index)

    def views(self):
        """Gradients into the buckets; they move once, after the first step."""
        for index, weight in enumerate(self.parameters):
            at = ctypes.c_void_p()
            self.call("uniReducerGradient", self.reducer, index, ctypes.byref(at))
            memory = (ctypes.c_float * weight.numel()).from_address(at.value)
            weight.grad = torch.frombuffer(memory, dtype=torch.float32).view_as(weight)

    def step(self, run):
        self.active = True
        self.call("uniReducerBeginBackward", self.reducer, 1)
        run()
        self.call("uniReducerFinish", self.reducer)
        self.active = False

    def detach(self):
        for hook in self.hooks:
            hook.remove()
        self.call("uniReducerDestroy", self.reducer)
        self.reducer = ctypes.c_void_p()

    def close(self):
        self.call("uniCommDestroy", self.comm)


def zero(parameters):
    for weight in parameters:
        if weight.grad is not None:
            weight.grad.zero_()


def timed(run):
    dist.barrier()
    start = time.perf_counter()
    run()
    took = torch.tensor([time.perf_counter() - start])
    dist.all_reduce(took, dist.ReduceOp.MAX)
    return float(took) * 1e3


def compare(name, options, ours):
    shapes = shapes_of(os.path.join(options.build, "bin", "ddp-bench"), name)
    rank = dist.get_rank()
    # Three copies of one model, since hooks stay with theirs.
    plain, for_ddp, for_us = (Model(shapes, options.batch, rank + 1) for _ in range(3))
    ddp = DistributedDataParallel(for_ddp, gradient_as_bucket_view=True)
    ours.attach(for_us)
    ours.views()
    token = torch.zeros(1, requires_grad=True)

    def run_plain():
        plain(token).backward()

    def run_ddp():
        ddp(token).backward()

    def run_ours():
        ours.step(lambda: for_us(token).backward())

    kinds = {"compute": (plain, run_plain), "gloo": (for_ddp, run_ddp), "unisono": (for_us, run_ours)}
    times = {kind: [] for kind in kinds}
    for step in range(options.warmup + options.steps):
        for kind, (model, run) in kinds.items():
            zero(model.parameters())
            took = timed(run)
            if step >= options.warmup:
                times[kind].append(took)
        if step == 0:
            ours.views()
    worst = max(float((a.grad - b.grad).abs().max() / (1e-6 + b.grad.abs().max()))
                for a, b in zip(for_us.parameters(), for_ddp.parameters()))
    exposed = {kind: statistics.median(max(0.0, with_it - alone) for with_it, alone in zip(times[kind], times["compute"]))
               for kind in ("gloo", "unisono")}
    ours.detach()
    step = {kind: statistics.median(values) for kind, values in times.items()}
    return {"model": name, "ranks": dist.get_world_size(), "step_ms": step, "exposed_ms": exposed,
            "gloo_share": exposed["gloo"] / step["gloo"], "exposed_ratio": exposed["unisono"] / max(exposed["gloo"], 1e-9),
            "difference": worst}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build")
    parser.add_argument("--model", default="resnet50,gpt2")
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--warmup", type=int, default=3)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("-J", "--json")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    ours = Unisono(os.path.join(options.build, "lib", "libunisono_ddp.so"))
    rank, ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    # Both meet without a fixed port: gloo by a file whose name rank 0 tells through us.
    folder = ctypes.create_string_buffer(256)
    if rank == 0:
        folder.value = tempfile.mkdtemp(prefix="versus-torch-").encode()
    ours.call("uniBroadcast", folder, folder, ctypes.c_size_t(256), 1, 0, ours.comm, None)
    meeting = os.path.join(folder.value.decode(), "meeting")
    dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=ranks)
    results = []
    if rank == 0:
        print(f"# {ranks} ranks, batch {options.batch}, {options.threads} threads a rank, PyTorch {torch.__version__}; "
              f"ms, medians of {options.steps} steps in turns")
        print(f"# {'model':<10} {'compute':>9} {'gloo':>9} {'unisono':>9} {'exposed: gloo':>14} {'unisono':>9} {'ratio':>6} "
              f"{'gloo share':>10}  difference")
    for name in options.model.split(","):
        found = compare(name, options, ours)
        results.append(found)
        if rank == 0:
            step, exposed = found["step_ms"], found["exposed_ms"]
            print(f"  {name:<10} {step['compute']:>9.1f} {step['gloo']:>9.1f} {step['unisono']:>9.1f} "
                  f"{exposed['gloo']:>14.1f} {exposed['unisono']:>9.1f} {found['exposed_ratio']:>6.2f} "
                  f"{found['gloo_share']:>10.0%}  {found['difference']:.1e}", flush=True)
    dist.barrier()
    dist.destroy_process_group()
    ours.close()
    if rank == 0:
        if os.path.exists(meeting):
            os.unlink(meeting)
        os.rmdir(folder.value.decode())
        if options.json:
            with open(options.json, "w", encoding="utf-8") as file:
                json.dump({"torch": torch.__version__, "results": results}, file, indent=1)
    return 0 if all(found["difference"] < 1e-4 for found in results) else 1


if __name__ == "__main__":
    sys.exit(main())
