cd "$(dirname "$0")" && rm -rf tree && mkdir -p tree/solutions/common tree/solutions/moe
cp clones/moe/solutions/moe/*.cu* clones/moe/solutions/moe/*.py clones/moe/solutions/moe/README.md tree/solutions/moe/
(cd clones/moe; git ls-files solutions/common | while read f; do [ -f ./$f ] && cmp -s $f ./$f || { echo "shelf: $f"; cp $f ./lab/moe_new/tree/$f; }; done)
git -C clones/moe rev-parse HEAD > ./.gpu/sha_moe; git -C clones/moe status --short
