"""ncu target: one call each of plain old at given cases. dram.py FOLDER NAME tokens/seqs..."""
import sys; from pathlib import Path
import os; sys.path.insert(0, os.environ["GDN9"]); sys.path.insert(0, str(Path(__file__).resolve().parent))
import lab as kit
import importlib, harness.timing
harness.timing.CuptiTimer = lambda *_: None
def package(name, folder):
    sys.path.insert(0, str(folder)); os.environ["TVM_FFI_CACHE_DIR"] = str(folder / f"{name}.cache")
    return importlib.import_module(f"ab_{name}.native_build")
kit.package = package
folder = Path(sys.argv[1]).resolve(); lab = kit.Lab(folder)
import torch
for case in sys.argv[3:]:
    call, _ = lab.call_of(sys.argv[2], tuple(map(int, case.split("/"))))
    lab.module(sys.argv[2]).set_mode(0)
    for _ in range(2): lab.flush.zero_(); call()
    torch.cuda.synchronize()
