# . .gpu/setup; bash <here>/run.sh SECONDS [times]     (in a repository root: its solutions/ is the side "main", tree/ here the side "new")
# Builds all, checks every case of the new one, says where a call that dies was, then stamps and times all in turns: stamps say what each
# stage takes of the span (stages.py), the five asked shapes (cut or not) come first. `times`: without the cases. No longer than SECONDS; what is known
# so far lies in $OUT/prefill8.txt. Exit 0: every case is right. First the stages of a task of solve_kernel, of main and of the new one.
seconds=${1:-150}
here=$(cd "$(dirname "$0")" && pwd); built=${TMPDIR:-/tmp}/prefill8-built
rm -rf "$built"; mkdir -p "$built"
export PYTHONPATH="$PWD:$PYTHONPATH"
python3 "$here/lab.py" "$seconds" "$built" ${2:+"$2"}
