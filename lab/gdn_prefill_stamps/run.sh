# . .gpu/setup; bash lab/gdn_prefill_stamps/run.sh SECONDS     (in a repository root)
# Builds the variants of build.py, checks the cases, then stamps and times. Exit 0: every case is right.
seconds=${1:-75}
here=$(cd "$(dirname "$0")" && pwd); root=$PWD; at=${TMPDIR:-/tmp}
rm -rf "$at/prefill-stamps" "$at/prefill-built"; mkdir -p "$at/prefill-stamps" "$at/prefill-built"
tar -C "$root" --exclude=.git --exclude=.venv --exclude=blob -cf - . | tar -C "$at/prefill-stamps" -xf -
cp -r "$here/tree/." "$at/prefill-stamps"
cd "$at/prefill-stamps"; export PYTHONPATH="$at/prefill-stamps:$PYTHONPATH"
python3 "$here/build.py" "$at/prefill-stamps" "$at/prefill-built" 24 >"$at/prefill-built/err" 2>&1 || cat "$at/prefill-built/err" &
python3 "$here/lab.py" "$seconds" "$at/prefill-built"
