# [TREE=REPO] build.sh VARIANT: patched sources, their emulator build /tmp/g9/emu_VARIANT/emu.so
here=$(cd "$(dirname "$0")" && pwd); P=REPO/.venv/bin/python; o=/tmp/g9/emu_$1; mkdir -p $o/lab
cp -r "$here"/{shelf,make.py,machine.h,rc.cpp} $o/lab/ && $P "$here/../patch.py" ${TREE:-REPO} $o/tree $1 $o/lab/shelf/lab_stamp.cuh && TREE=$o/tree EMU=$o FAST=1 $P $o/lab/make.py
