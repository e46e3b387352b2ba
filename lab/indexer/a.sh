. .gpu/setup
mkdir -p $OUT
export TVM_FFI_CACHE_DIR=/tmp/tvm-ffi
nvidia-smi --query-gpu=name,driver_version --format=csv,noheader
timeout 200 python3 lab/indexer/study.py 2>&1 | tee $OUT/study.txt
echo "== trust"
timeout 330 python3 -m tests.trust_results --gpu > $OUT/trust.txt 2>&1; tail -30 $OUT/trust.txt
cp results/trust.json $OUT/trust.json; cp docs/trust.md $OUT/trust.md
