# . .gpu/setup; bash <here>/run.sh SECONDS     (in a repository root: its solutions/ is the side "main", tree/ here the side "new")
# Builds both, checks every case of the new one, hostile ones first, then times both in turns. Exit 0: every case is right.
seconds=${1:-240}
here=$(cd "$(dirname "$0")" && pwd); built=${TMPDIR:-/tmp}/prefill5-built
rm -rf "$built"; mkdir -p "$built"
export PYTHONPATH="$PWD:$PYTHONPATH"
python3 "$here/lab.py" "$seconds" "$built"
