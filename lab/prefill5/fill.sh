# tree/ from the branch
cd clones/prefill5 && rm -rf clones/prefill5-lab/tree && mkdir -p clones/prefill5-lab/tree && git archive HEAD solutions/gdn_prefill solutions/common | tar x -C clones/prefill5-lab/tree
