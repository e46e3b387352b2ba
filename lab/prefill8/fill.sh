# sides from the branch: main is the checkout; fewer its first step; tree/ its head
cd clones/prefill8
put() { rm -rf clones/prefill8-lab/lab/$1; mkdir -p clones/prefill8-lab/lab/$1; git archive $2 solutions/gdn_prefill solutions/common | tar x -C clones/prefill8-lab/lab/$1; }
put fewer "$(git log --format=%h --grep='fill their last round' -1)"; put tree HEAD
