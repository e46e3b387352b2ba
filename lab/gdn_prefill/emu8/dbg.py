from drive import *
S=ctypes.c_int.in_dll(L,'solve_ctas'); C=ctypes.c_int.in_dll(L,'scan_ctas')
import sys
a,b=int(sys.argv[1]),int(sys.argv[2])
S.value,C.value=a,b; report('x',batch_of([200,70,0,129],4),int(sys.argv[3]))
