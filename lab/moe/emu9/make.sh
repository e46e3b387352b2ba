set -e
python3 ex.py; python3 core_new.py
g++ -std=c++17 -O3 -march=native -w -fPIC -I. -I/usr/local/cuda-13.0/include -I${SRC:-clones/moe8/solutions/moe} -ffast-math -fno-finite-math-only -c core2.cc -o core.o
g++ -std=c++17 -O3 -march=native -w -fPIC -O1 -I. -I/usr/local/cuda-13.0/include -I${SRC:-clones/moe8/solutions/moe} -c main.cc -o main.o
g++ -shared core.o main.o -o emu.so
