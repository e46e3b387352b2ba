# Copies the clone's files into the overlay: bash refresh.sh CLONE
here=$(dirname $0); clone=$1
rm -rf $here/tree; mkdir -p $here/tree/solutions/common $here/tree/tests/gpu $here/tree/tests/unit
cp -r $clone/solutions/dsa_indexer_prefill $here/tree/solutions/
rm -rf $here/tree/solutions/dsa_indexer_prefill/__pycache__ $here/tree/solutions/dsa_indexer_prefill/solution.json
for f in cta_barrier overlapped_products programmatic_launch register_shares; do cp $clone/solutions/common/$f.cuh $here/tree/solutions/common/; done
cp $clone/tests/gpu/test_dsa_indexer_prefill.py $here/tree/tests/gpu/
cp $clone/tests/unit/test_dsa_indexer_prefill.py $clone/tests/unit/test_native_builds.py $here/tree/tests/unit/
du -sh $here
