# bash pack.sh CLONE NAME COMMIT ...: NAME.tar, the room and the shelf as COMMIT has them
lab=$(cd "$(dirname "$0")" && pwd); cd "$1"; shift
while [ $# -gt 1 ]; do git archive "$2" solutions/dsa_attention solutions/common tests/gpu/test_dsa_attention.py > "$lab/$1.tar"; shift 2; done; ls -l "$lab"/*.tar
