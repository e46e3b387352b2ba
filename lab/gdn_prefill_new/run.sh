# . .gpu/setup; bash lab/gdn_prefill_new/run.sh SECONDS     (in a repository root)
# The new tree in all cases, and against the tree of lab/gdn_prefill. Exit 0: every case is right.
seconds=${1:-70}
here=$(cd "$(dirname "$0")" && pwd); root=$PWD; at=${TMPDIR:-/tmp}
rm -rf "$at/prefill-new" "$at/prefill-old" "$at/prefill-flat"; mkdir -p "$at/prefill-new"
tar -C "$root" --exclude=.git --exclude=.venv --exclude=blob -cf - . | tar -C "$at/prefill-new" -xf -
cp -r "$at/prefill-new" "$at/prefill-old"
cp -r "$here/tree/." "$at/prefill-new"
cp -r "$here/../gdn_prefill/tree/." "$at/prefill-old"
cd "$at/prefill-new" && PYTHONPATH="$at/prefill-new:$PYTHONPATH" python3 "$here/lab.py" "$seconds" "$at/prefill-old"
