cd /tmp/scanwaits/lab; export STALLS_AT=384 SO=plain.so EMU=/tmp/scanwaits/old1
for x in $*; do echo "== old ${x%:*} ${x#*:}"; timeout 100 REPO/.venv/bin/python fast.py ${x%:*} ${x#*:} 2>&1 | grep "SAME\|OTHER\|AMBIG\|DEAD" | cut -c1-110 | sort | uniq | head -3; done
