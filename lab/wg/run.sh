# in a repository root with `. .gpu/setup` sourced: bash wg/run.sh
here=$(cd "$(dirname "$0")" && pwd); python3 $here/gen.py /tmp/wg.cu
tools=$(PYTHONPATH=solutions/common python3 -c 'import toolkit; print(toolkit.find_toolkit((12, 1)).folder + "/bin/nvcc", toolkit.host_compiler())')
${tools% *} -O3 -std=c++17 -gencode=arch=compute_90a,code=sm_90a -ccbin ${tools##* } -cudart static -o /tmp/wg /tmp/wg.cu && timeout 60 /tmp/wg
