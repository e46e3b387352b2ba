# . .gpux/setup; bash .gpux/scale.sh SECONDS PHASE...
limit=$1; shift; start=$SECONDS
left() { echo $((limit-(SECONDS-start))); }
mkdir -p /tmp/ray-site && tar -C /tmp/ray-site -xJf .gpux/ray.tar.xz && find /tmp/ray-site -name raylet -o -name gcs_server | xargs chmod +x
export PYTHONPATH=$PYTHONPATH:/tmp/ray-site
nvidia-smi -L; mkdir -p /tmp/scale_out; timeout 90 python3 .gpux/starts.py; echo "== starts $((SECONDS-start)) s"
for phase in "$@"; do
  [ $(left) -gt 45 ] || { echo "$phase skipped"; continue; }
  [ $phase = again ] && ! python3 -c "
from pathlib import Path
from harness.cluster.scale import *
s = read_scale(scale_path(Path('.'), 'nvidia-h200')); g = speedup(s); print('speed-up', g)
for n in ('one', 'two'): p = s.phases[n]; print(n, p.wall_s, p.judging_s, p.starting_s, p.stages_s)
raise SystemExit(g < 1.7)" && break
  began=$SECONDS
  timeout -s INT -k 5 $(($(left)-10)) python3 scripts/measure_scale.py --phase $phase --commit $(cat .gpux/sha) > /tmp/scale_out/$phase.txt 2>&1; echo "rc $?"; tail -6 /tmp/scale_out/$phase.txt | cut -c1-300
  echo "== $phase $((SECONDS-began)) s"
  mkdir -p /tmp/scale_out/traces; cp -r results/scale /tmp/scale_out/; cp -r traces/nvidia-h200 /tmp/scale_out/traces/ 2>/dev/null; tar czf $OUT/scale.tgz -C /tmp/scale_out .
done
mkdir -p /tmp/scale_out/traces; cp -r traces/nvidia-h200 /tmp/scale_out/traces/ 2>/dev/null
tar czf $OUT/scale.tgz -C /tmp/scale_out . ; ls -la $OUT
