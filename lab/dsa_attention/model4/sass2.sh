# CUBIN OUT: SASS of the 16 kernel
PATH=main/.venv/lib/python3.11/site-packages/triton/backends/nvidia/bin:$PATH main/.venv/lib/python3.11/site-packages/triton/backends/nvidia/bin/cuobjdump --dump-sass $1 | awk '/Function/{on=($0 ~ /ILi2E/)} on' | grep -E '^\s+/\*[0-9a-f]{4,5}\*/' | sed -E 's#/\*[0-9a-f x]{16,24}\*/##; s#\s+;\s*##; s/^ +//' > $2
