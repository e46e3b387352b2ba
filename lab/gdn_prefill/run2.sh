# . .gpu/setup; bash lab/gdn_prefill/run.sh SECONDS     (in a repository root)
seconds=${1:-420}
here=$(cd "$(dirname "$0")" && pwd); root=$PWD
tree=${TMPDIR:-/tmp}/prefill-tree
rm -rf "$tree"; mkdir -p "$tree"
tar -C "$root" --exclude=.git --exclude=.venv --exclude=blob -cf - . | tar -C "$tree" -xf -
cp -r "$here/tree/." "$tree"
cd "$tree" && PYTHONPATH="$tree:$PYTHONPATH" python3 "$here/lab2.py" "$seconds" "$root"
