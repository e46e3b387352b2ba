# fill.sh REPO [BRANCH]: the side "new" from the branch's head (next-solve); "main" is the checkout that run.sh is run in (of the code before it)
here=$(cd "$(dirname "$0")" && pwd); branch=${2:-next-solve}
put() { rm -rf "$here/$1"; mkdir -p "$here/$1"; git -C "$repo" archive "$2" solutions/gdn_prefill solutions/common | tar x -C "$here/$1"; }
repo=${1:?REPO}; put tree "$branch"
