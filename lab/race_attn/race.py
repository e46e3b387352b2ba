"""python3 FOLDER/race.py, in a checkout's root: racecheck on small calls of dsa_attention's merge, side by side.

No Python and no PyTorch under the tool: call.cu is attend.cu with a main(). Forms of it: plain; all_wait, whose computing warps wait
for the cluster themselves, as before they met the helping ones behind it; both, which wait and meet. toy.cu: what of it the tool minds.
A second compute-sanitizer comes from the wheel beside this file, if there is one. A line a case; logs in $OUT, or /tmp/race_attn.
"""

import concurrent.futures
import os
import shutil
import signal
import subprocess
import sys
import time
import zipfile
from pathlib import Path

HERE, ROOT, BEGAN = Path(__file__).resolve().parent, Path.cwd(), time.monotonic()
WORK = Path(os.environ.get("TMPDIR", "/tmp"), "race_attn")
LOGS = Path(os.environ.get("OUT", WORK), "race_attn_logs")
FLAGS = ["-O3", "-std=c++17", "-lineinfo", "-gencode=arch=compute_90a,code=sm_90a"]
MEET = "if (merges) sync_threads_of(CLUSTER_MET, THREADS);"
ARRIVE = "arrive_for_threads(CLUSTER_MET, THREADS);"
FORMS = {
    "plain": [],
    "all_wait": [(MEET, "if (merges) wait_cluster();"), (ARRIVE, "")],
    "both": [(MEET, "if (merges) { wait_cluster(); sync_threads_of(CLUSTER_MET, THREADS); }")],
}
SHORT, ONE, PAIR = ["0-2"], ["64-66"], ["0-2,64-66"]
OFFICIAL = [f"0-{n}" for n in (288, 4, 1884, 21, 136, 2048, 42, 335)]  # 564007ac
OLD, NEW = "old", "new"


def sh(*command):
    subprocess.run([str(x) for x in command], check=True)


def build():
    shutil.rmtree(WORK, ignore_errors=True)
    LOGS.mkdir(parents=True, exist_ok=True)
    nvcc = shutil.which("nvcc") or "/usr/local/cuda/bin/nvcc"
    jobs = [[nvcc, *FLAGS, "-o", WORK / "toy", HERE / "toy.cu"]]
    for form, changes in FORMS.items():
        folder = WORK / form
        folder.mkdir(parents=True)
        for path in [*ROOT.glob("solutions/common/*.cuh"), *ROOT.glob("solutions/dsa_attention/*.cu*")]:
            text = path.read_text()
            if path.name == "attend.cu":
                for old, new in changes:
                    assert text.count(old) == 1, (form, old)
                    text = text.replace(old, new)
            (folder / path.name).write_text(text)
        jobs.append([nvcc, *FLAGS, "-I", HERE / "stub", "-I", folder, "-o", WORK / f"call_{form}", HERE / "call.cu"])
    with concurrent.futures.ThreadPoolExecutor() as pool:
        list(pool.map(lambda job: sh(*job), jobs))


def programs():
    found = shutil.which("compute-sanitizer") or "/usr/local/cuda/bin/compute-sanitizer"
    tools = {OLD: found}
    for wheel in HERE.glob("nvidia_cuda_sanitizer_api-*.whl"):
        zipfile.ZipFile(wheel).extractall(WORK / "wheel")
        for path in WORK.glob("wheel/**/*"):
            if path.is_file() and (path.suffix == "" or ".so" in path.name):
                path.chmod(0o755)
        tools[NEW] = str(next(WORK.glob("wheel/nvidia/*/bin/compute-sanitizer")))
    for name, tool in tools.items():
        told = subprocess.run([tool, "--version"], capture_output=True, text=True).stdout
        print(f"{name}: {tool}: {told.strip().splitlines()[-1] if told else 'says nothing'}", flush=True)
    return tools


def cpu_seconds(group):
    """Of all processes of a session, so far."""
    total = 0
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[3]) == group:
            total += int(fields[11]) + int(fields[12])
    return total / os.sysconf("SC_CLK_TCK")


def run(tools, case, limit):
    name, tool, options, environment, program, number = case
    log, said = LOGS / f"{name}.log", LOGS / f"{name}.out"
    command = [*(str(x) for x in program)]
    if tool:
        command = [tools[tool], "--tool", "racecheck", "--port", str(20000 + 20 * number), "--log-file", str(log), *options, *command]
    began = time.monotonic()
    with said.open("w") as out, subprocess.Popen(
        command, stdout=out, stderr=subprocess.STDOUT, start_new_session=True, env={**os.environ, **environment}
    ) as process:
        try:
            process.wait(limit)
            end = f"ended, exit code {process.returncode}"
        except subprocess.TimeoutExpired:
            before = cpu_seconds(process.pid)
            time.sleep(2)
            end = f"NO END, host {before:.0f} s of CPU, {(cpu_seconds(process.pid) - before) / 2:.1f} cores at the end"
            os.killpg(process.pid, signal.SIGKILL)
    took = time.monotonic() - began
    text = log.read_text(errors="replace") if log.exists() else ""
    lines = [line.lstrip("= ") for line in text.splitlines() if line.strip("= ")]
    reports = [line for line in lines if line.startswith(("Potential", "Error: Race", "Warning: Race", "ERROR: Race", "WARNING: Race", "Deadlock"))]
    summary = next((line for line in reversed(lines) if "SUMMARY" in line), "no summary")
    words = said.read_text(errors="replace").strip().splitlines()
    told = [f"{name}: {took:.1f} s, {end}; {summary}; {len(reports)} reports, {len(lines)} lines; {words[-1][:120] if words else 'it says nothing'}"]
    told += [f"    {line[:200]}" for line in [*dict.fromkeys(reports)][:3]]
    if "NO END" in end:
        told.append(f"    last: {' / '.join(lines[-3:])[:300]}")
    sys.stdout.write("\n".join(told) + "\n")
    sys.stdout.flush()
    return name, "NO END" not in end


def side_by_side(tools, cases, limit):
    cases = [case for case in cases if case[1] is None or case[1] in tools]
    print(f"-- {len(cases)} cases, limit {limit} s [{time.monotonic() - BEGAN:.0f} s]", flush=True)
    with concurrent.futures.ThreadPoolExecutor(len(cases) or 1) as pool:
        return dict(pool.map(lambda case: run(tools, case, limit), [(*case, i) for i, case in enumerate(cases)]))


def call(form, cluster, tokens):
    return [WORK / f"call_{form}", cluster, *tokens]


def main():
    build()
    tools = programs()
    print(f"built [{time.monotonic() - BEGAN:.0f} s]", flush=True)
    alone = [(f"alone_{form}", None, [], {}, call(form, 16, OFFICIAL)) for form in FORMS]
    alone += [(f"alone_toy{k}", None, [], {}, [WORK / "toy", k]) for k in range(1, 8)]
    side_by_side(tools, alone, 20)
    first = [("short", OLD, [], {}, call("plain", 16, SHORT))]
    first += [(f"one_{form}_{tool}", tool, [], {}, call(form, 16, ONE)) for form in FORMS for tool in (OLD, NEW)]
    first += [("five_plain_old", OLD, [], {}, call("plain", 16, ["0-66"])), ("row_plain_old", OLD, [], {}, call("plain", 16, ["0-2048"]))]
    first += [("pair_of_2", OLD, [], {}, call("plain", 2, PAIR))]
    first += [(f"toy{k}", OLD, [], {}, [WORK / "toy", k]) for k in range(1, 8)]
    ended = side_by_side(tools, first, 30)
    if not ended["one_plain_old"]:
        one = call("plain", 16, ONE)
        why = [
            ("one_traced", OLD, ["--racecheck-trace-sync", "yes", "--print-limit", "0"], {}, one),
            ("one_deadlock", OLD, ["--racecheck-deadlock-timeout", "5000", "--racecheck-continue-on-deadlock", "no"], {}, one),
            ("one_no_exits", OLD, [], {"NV_COMPUTE_SANITIZER_MAX_RACECHECK_CLUSTER_RECORDS": "0"}, one),
            ("one_worker", OLD, ["--racecheck-num-workers", "1"], {}, one),
            ("one_barriers", OLD, ["--num-cuda-barriers", "64"], {}, one),
            ("one_direct_new", NEW, [], {"NV_COMPUTE_SANITIZER_RACECHECK_INDIRECT_BARRIER_TRACKING": "0"}, one),
            ("toy4_of_2", OLD, [], {}, [WORK / "toy", 4, 2]),
        ]
        side_by_side(tools, why, 25)
    whole = [(f"official_{form}_{tool}", tool, [], {}, call(form, 16, OFFICIAL)) for form in FORMS for tool in (OLD, NEW)]
    side_by_side(tools, [case for case in whole if ended.get(case[0].replace("official", "one"))], 75)
    print(f"done [{time.monotonic() - BEGAN:.0f} s]", flush=True)


if __name__ == "__main__":
    sys.exit(main())
