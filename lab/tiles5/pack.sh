# bash pack.sh NAME COMMIT: tars/NAME.tar, the room as it is committed there
git -C clones/tiles5 archive "$2" solutions/moe solutions/common tests/gpu/test_moe.py > clones/tiles5-lab/tars/"$1".tar
