#!/bin/bash
# bash lab/moe/run.sh SECONDS, in a repository root after `. .gpu/setup`
budget=${1:-540}
lab=$PWD/lab/moe
site=${PYTHONPATH%%:*}
tree=${TMPDIR:-/tmp}/moe-tree
rm -rf "$tree"; mkdir -p "$tree"
tar cf - --exclude=./.gpu --exclude=./.venv --exclude=./.git --exclude=./results . | tar xf - -C "$tree"
mkdir -p "$tree/results"
cp -r "$lab/tree/." "$tree"
cd "$tree" || exit 1
export PYTHONPATH="$site:$tree"
python3 "$lab/lab.py" drive "$budget"
