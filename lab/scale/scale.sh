# . .gpu/setup; bash .gpu/scale.sh SECONDS PHASE...
limit=$1; shift; start=$SECONDS
left() { echo $((limit-(SECONDS-start))); }
mkdir -p /tmp/ray-site && tar -C /tmp/ray-site -xJf .gpu/ray.tar.xz && find /tmp/ray-site -name raylet -o -name gcs_server | xargs chmod +x
export PYTHONPATH=$PYTHONPATH:/tmp/ray-site
nvidia-smi -L; mkdir -p /tmp/scale_out
for phase in "$@"; do
  [ $(left) -gt 45 ] || { echo "$phase skipped"; continue; }
  began=$SECONDS
  timeout -s INT -k 5 $(($(left)-10)) python3 scripts/measure_scale.py --phase $phase --commit $(cat .gpu/sha) > /tmp/scale_out/$phase.txt 2>&1; echo "rc $?"; tail -6 /tmp/scale_out/$phase.txt | cut -c1-300
  echo "== $phase $((SECONDS-began)) s"
  cp -r results/scale /tmp/scale_out/ 2>/dev/null
done
mkdir -p /tmp/scale_out/traces; cp -r traces/nvidia-h200 /tmp/scale_out/traces/ 2>/dev/null
tar czf $OUT/scale.tgz -C /tmp/scale_out . ; ls -la $OUT
