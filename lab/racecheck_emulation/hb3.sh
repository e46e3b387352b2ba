for o in 1 2 3; do echo "== race, order $o"; ORDER=$o SO=race.so timeout 900 REPO/.venv/bin/python hb2.py; done
echo "== plain, order 4"; ORDER=4 SO=plain.so timeout 300 REPO/.venv/bin/python hb.py 0,1,1,1,1
