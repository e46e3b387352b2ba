#!/bin/bash
# Refresh tree/ from a clone: bash sync.sh clones/moe (here, not on the device)
cd "$(dirname "$0")" && rm -rf tree && mkdir -p tree/solutions/common
(cd "$1" && git diff --name-only --diff-filter=AM 8afb9e7 -- solutions tests docs) | while read -r f; do mkdir -p "tree/$(dirname "$f")"; cp "$1/$f" "tree/$f"; done
du -sh tree
