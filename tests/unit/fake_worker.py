"""A worker without torch: each job's UUID says what it does, also when it is measured.

python fake_worker.py [wait] READ_FD WRITE_FD DEVICE, with "wait": on standby until a byte comes
"""

import json
import os
import signal
import subprocess
import sys
import time

OUTCOME = {
    "status": "PASSED",
    "latency_us": 2.5,
    "trial_latencies_us": [2.5],
    "reference_latency_us": None,
    "max_abs_error": 0.0,
    "max_rel_error": 0.0,
    "matched_ratio": None,
    "activities": ["kernel"],
    "detail": "",
    "log": "",
    "evaluation": None,
    "faulted": False,
    "stages_s": {},
}


LATENCIES = {"garbleslater": "fast", "nanlater": float("nan"), "zerolater": 0}


def main(read_fd, write_fd, device):
    requests = os.fdopen(int(read_fd))
    replies = os.fdopen(int(write_fd), "w")

    def send(**message):
        replies.write(json.dumps(message) + "\n")
        replies.flush()

    if device == "never-starts":
        sys.exit(7)
    send(ready=True)
    if device == "never-reads":
        time.sleep(60)
    behaviour = ""
    for count, line in enumerate(requests, 1):
        request = json.loads(line)
        number = request["number"]
        if "measure" in request:
            send(number=number, **measure(behaviour, request["measure"]["iterations"]))
            continue
        uuid = request["job"]["workload"]["uuid"]
        behaviour, _, serial = uuid.partition("-")
        send(number=number, stage="reference")
        if behaviour == "spoiled" and count > 1:  # by what an earlier job left behind
            os._exit(3)
        if behaviour == "badreference":
            os.kill(os.getpid(), signal.SIGSEGV)
        if behaviour == "slowreference":
            time.sleep(60)
        send(number=number, stage="build")
        act(behaviour, number, replies, send)
        faulted = behaviour == "faults"
        status = "RUNTIME_ERROR" if faulted else "PASSED"
        answer = {**OUTCOME, "status": status, "faulted": faulted, "log": str(os.getpid())}
        if serial.isdigit():  # whose answer this is
            answer["max_abs_error"] = float(serial)
        send(number=number, outcome=answer)


def act(behaviour, number, replies, send):
    """What a solution of this name does to the judge's process."""
    if behaviour == "segfault":
        print("about to crash", flush=True)
        os.kill(os.getpid(), signal.SIGSEGV)
    if behaviour == "terminates":
        os.kill(os.getpid(), signal.SIGTERM)
    if behaviour == "killed":  # as the kernel ends a process when memory is short
        os.kill(os.getpid(), signal.SIGKILL)
    if behaviour == "prints":
        while True:
            print("x" * 65536)
    if behaviour == "slow":
        time.sleep(0.02)
    if behaviour == "detaches":
        detach()
    if behaviour == "signal40":
        os.kill(os.getpid(), 40)
    if behaviour == "exits":
        sys.exit(3)
    if behaviour == "hangs":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        time.sleep(60)
    if behaviour == "garbles":
        replies.write("not JSON\n")
        replies.flush()
    if behaviour == "forges":
        send(outcome=OUTCOME)
    if behaviour == "misspells":
        send(number=number, stage="winning")
    if behaviour == "floods":
        while True:
            replies.write("x" * 65536)
    if behaviour == "orphans":
        if os.fork() == 0:  # holds the pipe open after its parent has died
            time.sleep(60)
        os._exit(3)
    if behaviour == "escapes":
        escape()
        os._exit(3)
    if behaviour == "slowreferencetiming":
        send(number=number, stage="timing")
        send(number=number, stage="timing of the reference")
        time.sleep(60)
    if behaviour == "chatty":
        print("x" * 200_000, flush=True)


def escape():
    """A grandchild in a session of its own, whose parent has ended."""
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            print("escaped", os.getpid(), flush=True)
            time.sleep(60)
        os._exit(0)
    os.wait()


def detach():
    """A child that leaves the session and sheds the environment, and hangs with the worker."""
    child = subprocess.Popen(["sleep", "60"], env={}, start_new_session=True)
    print("detached", child.pid, flush=True)
    time.sleep(60)


def measure(behaviour, iterations):
    """The answer to a measurement of what the last job kept."""
    if behaviour == "dieslater":
        print("died while it was measured", flush=True)
        os.kill(os.getpid(), signal.SIGSEGV)
    if behaviour == "hangslater":
        time.sleep(60)
    if behaviour == "failslater":
        return {"outcome": {**OUTCOME, "status": "RUNTIME_ERROR", "detail": "no more memory"}}
    if behaviour in LATENCIES:
        return {"latencies_us": [LATENCIES[behaviour]] * iterations}
    return {"latencies_us": [2.5] * (iterations - (behaviour == "shorter"))}


def wait_for_go(read_fd):
    if not os.read(int(read_fd), 1):
        sys.exit("nobody is left to work for")


if __name__ == "__main__":
    arguments = sys.argv[1:]
    if arguments[0] == "wait":
        del arguments[0]
        wait_for_go(arguments[0])
        with open("begun", "a") as file:
            file.write(f"{os.getpid()}\n")
    main(*arguments)
