# SPDX-License-Identifier: Apache-2.0
"""The peer of bench/allreduce.py: gloo through torch.distributed, timed as starling-allreduce-bench
times.

    gloo_allreduce.py RANKS SECONDS BYTES...
"""
import json
import os
import statistics
import sys
import time

import torch
import torch.distributed as dist
import torch.multiprocessing


def timed(data):
    dist.barrier()
    begin = time.perf_counter()
    dist.all_reduce(data)
    return time.perf_counter() - begin


def measure(rank, ranks, seconds, sizes):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=os.environ["BENCH_RENDEZVOUS"], rank=rank,
                            world_size=ranks)
    for size in sizes:
        data = torch.ones(size // 4)
        last = [timed(data) for _ in range(3)][-1]
        calls = torch.tensor([min(max(int(seconds / last), 5), 2000)])
        dist.broadcast(calls, 0)
        times = [timed(data) for _ in range(int(calls))]
        if rank == 0:
            print(json.dumps({"bytes": size, "seconds": statistics.median(times)}), flush=True)


if __name__ == "__main__":
    torch.multiprocessing.spawn(
        measure, (int(sys.argv[1]), float(sys.argv[2]), [int(word) for word in sys.argv[3:]]),
        nprocs=int(sys.argv[1]))
