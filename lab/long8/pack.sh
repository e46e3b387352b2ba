# pack.sh NAME COMMIT ... : tars of the sides, cumulative steps
cd clones/long7
while [ $# -gt 0 ]; do git archive $2 solutions/dsa_indexer_prefill solutions/common > clones/long7-lab/$1.tar; shift 2; done
