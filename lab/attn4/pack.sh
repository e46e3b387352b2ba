# bash pack.sh: attn4.tar, the branch's files as they are committed
cd clones/attn4 && git archive attn4 solutions/dsa_attention solutions/common/magnitudes.cuh solutions/common/tile_store.cuh tests/gpu/test_dsa_attention.py | cat > clones/attn4-lab/attn4.tar; tar -tf clones/attn4-lab/attn4.tar | wc -l
