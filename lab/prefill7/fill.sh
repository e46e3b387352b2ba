# sides from the branch: main is the checkout; turns, fewer, gates its steps; tree/ its head
cd clones/prefill7
put() { rm -rf clones/prefill7-lab/$1; mkdir -p clones/prefill7-lab/$1; git archive $2 solutions/gdn_prefill solutions/common | tar x -C clones/prefill7-lab/$1; }
put turns "$(git log --format=%h --grep='in turns$' -1)"; put fewer "$(git log --format=%h --grep='fill their last round' -1)"
put gates "$(git log --format=%h --grep='least to merge' -1)"; put tree HEAD
