[ -d /tmp/land ] || overlay /tmp/land land; L=$(cat $HERE/.gpu/sha_land)
pip install --no-deps -q --target /tmp/site-flashinfer $HERE/.wheels-flashinfer/*.whl > $O/pip.txt 2>&1; tail -1 $O/pip.txt
SITE=$SITE:/tmp/site-flashinfer; export PATH=$PATH:/tmp/site-flashinfer/bin FLASHINFER_WORKSPACE_BASE=/tmp/fi; at /tmp/land
ls results | head -20
run warm 130 python3 -m harness compare ours flashinfer,fla gdn_prefill --workloads 9a5d694b,6f1ad833 --rounds 3 --exit-zero; tail -5 $O/warm.txt | cut -c1-250
run compare $(($(left)-8)) python3 -m harness compare ours flashinfer,fla gdn_prefill --rounds 6 --record --exit-zero --commit $L; tail -4 $O/compare.txt | cut -c1-250; tar czf $O/ledgers.tgz results/*/*.ndjson results/*/*/*.ndjson .cache 2>/dev/null; records a
[ $(left) -gt 60 ] && run compare_idx $(($(left)-8)) python3 -m harness compare ours flashinfer,deep_gemm dsa_indexer --rounds 6 --record --exit-zero --commit $L; tail -4 $O/compare_idx.txt | cut -c1-250; records a
