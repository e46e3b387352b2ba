"""gdn_prefill of several trees, in turns, over all workloads. ab.py build NAME TREE FOLDER [VARIANT] | run SECONDS FOLDER NAME...  (first: the base)"""
import importlib, math, os, shutil, statistics, sys, time
from pathlib import Path
sys.path.insert(0, os.environ.get("GDN9", str(Path(__file__).resolve().parent.parent / "gdn9")))
import lab as kit
from patch import patch

def package(name, folder):
    sys.path.insert(0, str(folder)); os.environ["TVM_FFI_CACHE_DIR"] = str(folder / f"{name}.cache")
    return importlib.import_module(f"ab_{name}.native_build")

def build(name, tree, folder, variant="plain"):
    to, out = folder / f"ab_{name}", folder / f"{name}.tree"
    shutil.rmtree(to, ignore_errors=True); to.mkdir(parents=True)
    patch(tree, out, variant)
    for path in [*(out / "solutions/common").glob("*"), *(out / "solutions/gdn_prefill").glob("*.cu*")]: shutil.copy(path, to / path.name)
    (to / "__init__.py").touch()
    package(name, folder).load_native("prefill.cu", (9, 0)); (folder / f"{name}.built").touch()

def run(seconds, folder, names):
    kit.package = package
    plain_whole = kit.most_whole_of
    def shares(name):  # hand@12: the build "hand", halved from 1/12 of all chunks on where more than 8 sequences are
        build, _, share = name.partition("@")
        kit.most_whole_of = (lambda t, n: int((t + min(t, n) * 63) // 64 / float(share)) if 8 < n <= 384 else plain_whole(t, n)) if share else plain_whole
        return build
    lab = kit.Lab(folder); start = time.monotonic(); rows = {}
    names = [n for n in names if (folder / f"{n.partition('@')[0]}.built").is_file()]; base = names[0]
    for text in filter(None, os.environ.get("EXTRA", "").split(";")):  # lengths of a case that no workload has
        lengths = [int(x) for x in text.split(",")]; lab.lengths[sum(lengths), len(lengths)] = lengths
    cases = sorted(lab.lengths, key=lambda c: (c[0], c[1]))
    if os.environ.get("CASES"): cases = [c for c in cases if f"{c[0]}/{c[1]}" in os.environ["CASES"].split()]
    print("built:", names, len(cases), "workloads of distinct (tokens, sequences)")
    taken = {(c, n): [] for c in cases for n in names}; wrong = []
    for round_ in range(4):
        for case in cases:
            if time.monotonic() - start > seconds: break
            outputs = {}
            for n in (names if round_ % 2 == 0 else names[::-1]):
                got, _, outputs[n] = lab.measure(shares(n), case, 0, 6); taken[case, n] += [s for s, _ in got]
            if round_ == 0:
                for n in names[1:]:
                    if not all(lab.torch.equal(a, b) for a, b in zip(outputs[base], outputs[n])): wrong.append((case, n))
    print("rounds took", round(time.monotonic() - start, 1), "s; other outputs than the base's:", wrong[:6], len(wrong))
    print(f"{'tokens/sequences':18}" + "".join(f"{n:>18}" for n in names))
    done = [c for c in cases if all(len(taken[c, n]) >= 6 for n in names)]
    for c in done:
        m = [statistics.median(taken[c, n]) for n in names]
        print(f"{c[0]}/{c[1]}".ljust(18) + "".join(f"{x:10.2f}" + (f" {(x / m[0] - 1) * 100:+6.1f}%" if i else " " * 8) for i, x in enumerate(m)))
    means = [statistics.fmean(statistics.median(taken[c, n]) for c in done) for n in names]
    print("mean".ljust(18) + "".join(f"{x:10.2f} {(x / means[0] - 1) * 100:+6.1f}%" for x in means))

if sys.argv[1] == "build": build(sys.argv[2], Path(sys.argv[3]).resolve(), Path(sys.argv[4]).resolve(), *sys.argv[5:])
else: run(float(sys.argv[2]), Path(sys.argv[3]).resolve(), sys.argv[4:])
