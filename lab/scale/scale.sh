# . .gpu/setup; bash .gpu/scale.sh SECONDS PHASE...
limit=$1; shift; start=$SECONDS
left() { echo $((limit-(SECONDS-start))); }
mkdir -p /tmp/ray-site && tar -C /tmp/ray-site -xJf .gpu/ray.tar.xz && find /tmp/ray-site -name raylet -o -name gcs_server | xargs chmod +x
export PYTHONPATH=$PYTHONPATH:/tmp/ray-site
nvidia-smi -L
for phase in "$@"; do
  [ $(left) -gt 60 ] || { echo "$phase skipped"; continue; }
  began=$SECONDS
  if [ $phase = standby ]; then timeout $(left) python3 -m pytest -q -p no:cacheprovider tests/gpu/test_standby.py 2>&1 | tail -5
  else timeout -k 5 $(left) python3 scripts/measure_scale.py --phase $phase --commit $(cat .gpu/sha) > $OUT/$phase.txt 2>&1; echo "rc $?"; tail -4 $OUT/$phase.txt | cut -c1-300; fi
  echo "== $phase $((SECONDS-began)) s"
  cp -r results/scale $OUT/ 2>/dev/null
done
cp -r traces/nvidia-h200 $OUT/ 2>/dev/null; ls -la $OUT
