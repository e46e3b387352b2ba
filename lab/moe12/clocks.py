import statistics, subprocess, sys, threading, time, os
from pathlib import Path
sys.path.insert(0, str(Path(__file__).resolve().parent)); sys.path.insert(0, os.getcwd())
def main(folder, names, tokens=14107):
    import torch, lab
    from tests.oracles.moe import EXPERTS, LOCAL_EXPERTS, fill_expert, random_inputs, zero_weights
    weights, g = zero_weights("cuda"), torch.Generator("cuda").manual_seed(1)
    for e in range(LOCAL_EXPERTS): fill_expert(weights, e, g)
    inputs = random_inputs(torch.randn(tokens, EXPERTS, generator=torch.Generator().manual_seed(tokens)), weights, 32, seed=2, device="cuda")
    out = torch.empty(tokens, 7168, dtype=torch.bfloat16, device="cuda")
    smi = subprocess.Popen(["nvidia-smi", "--query-gpu=clocks.sm,power.draw", "--format=csv,noheader,nounits", "-lms", "40"], stdout=subprocess.PIPE, text=True)
    seen = []
    threading.Thread(target=lambda: [seen.append((time.monotonic(), *map(float, l.split(",")))) for l in smi.stdout if l.strip()[:1].isdigit()], daemon=True).start()
    print(f"{'name':14}{'us':>9}{'MHz':>7}{'W':>6}{'Mcycles':>9}")
    for name in names * 2:
        side = lab.Side(folder / f"{name}.so"); side(inputs, out); torch.cuda.synchronize(); time.sleep(0.3)
        a, b = (torch.cuda.Event(enable_timing=True) for _ in range(2)); start, calls = time.monotonic(), 0
        a.record()
        while time.monotonic() - start < 0.6: 
            for _ in range(20): side(inputs, out)
            calls += 20; torch.cuda.synchronize()
        b.record(); torch.cuda.synchronize(); us = a.elapsed_time(b) * 1e3 / calls
        mine = [s for s in seen if start + 0.2 < s[0] < time.monotonic()]
        mhz, watt = (statistics.fmean(s[i] for s in mine) if mine else float("nan") for i in (1, 2))
        print(f"{name:14}{us:9.1f}{mhz:7.0f}{watt:6.0f}{us * mhz / 1e6:9.3f}", flush=True)
    smi.kill()
main(Path(sys.argv[2]).resolve(), sys.argv[3:])
