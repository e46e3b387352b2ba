# bash pack.sh: tiles2.tar, the branch's files as they are committed
cd clones/tiles2 && git archive HEAD solutions/moe solutions/common tests/gpu/test_moe.py > clones/tiles2-lab/tiles2.tar; tar -tf clones/tiles2-lab/tiles2.tar | wc -l
