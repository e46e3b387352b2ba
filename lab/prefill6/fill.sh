# tree/ from the branch
cd clones/prefill6 && rm -rf clones/prefill6-lab/tree && mkdir -p clones/prefill6-lab/tree && git archive HEAD solutions/gdn_prefill solutions/common | tar x -C clones/prefill6-lab/tree
