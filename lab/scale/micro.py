"""micro.py NAME T0: loops of one kind at a time, each from T0 + 1.5 k on for 1 s; microseconds a turn."""
import ctypes, mmap, os, sys, time
import torch
name, t0 = sys.argv[1], float(sys.argv[2])
x = torch.zeros(1, device="cuda"); torch.cuda.synchronize()
#rt = ctypes.CDLL("libcudart.so.13") if os.path.exists("/usr/local/cuda/lib64/libcudart.so.13") else None
host = torch.empty(64 << 20, dtype=torch.uint8); dev = torch.empty(64 << 20, dtype=torch.uint8, device="cuda")
src = torch.randn(1 << 22)
from harness.timing import select_timer
timer = select_timer("cupti", "cuda:0")
def launch(): x.add_(1)
def launch_sync(): x.add_(1); torch.cuda.synchronize()
def item(): x.item()
def malloc():
    t = [torch.empty(64 << 20, dtype=torch.uint8, device="cuda") for _ in range(8)]; del t; torch.cuda.empty_cache()
def h2d(): dev.copy_(host); torch.cuda.synchronize()
def d2h(): host.copy_(dev)
def cpu_randn(): torch.randn(1 << 20)
def cpu_sort(): torch.sort(src[: 1 << 18])
def cpu_add(): src + src
def fresh():
    m = mmap.mmap(-1, 32 << 20); ctypes.memset((ctypes.c_char * (32 << 20)).from_buffer(m), 1, 32 << 20)
def python():
    s = 0
    for i in range(20000): s += i
def cupti(): timer.measure(launch, 1, 3)
ops = [launch, launch_sync, item, malloc, h2d, d2h, cpu_randn, cpu_sort, cpu_add, fresh, python, cupti]
out = []
for k, op in enumerate(ops):
    op(); torch.cuda.synchronize()
    while time.time() < t0 + 0.85 * k: time.sleep(0.001)
    n, a = 0, time.perf_counter()
    while time.perf_counter() - a < 0.5: op(); n += 1
    torch.cuda.synchronize(); out.append(f"{op.__name__} {(time.perf_counter() - a) / n * 1e6:.1f}")
print(name, "threads", torch.get_num_threads(), "|", " ".join(out))
