L=./lab/gdn_prefill/tree; rm -rf $L; mkdir -p $L/solutions/common $L/solutions/gdn_prefill $L/tests/gpu $L/tests/unit
cd clones/prefill
for f in $(git diff --name-only --diff-filter=d 8afb9e7; git ls-files -o --exclude-standard solutions tests | grep -v '\.venv'); do case $f in solutions/*|tests/*) mkdir -p $L/$(dirname $f); cp $f $L/$f;; esac; done; rm -f $L/solutions/*/solution.json; find $L -type f
