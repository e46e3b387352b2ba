from drive import *
S=ctypes.c_int.in_dll(L,'solve_ctas'); C=ctypes.c_int.in_dll(L,'scan_ctas')
S.value,C.value=3,1
report('[200]',batch_of([200],4),0)
report('[300,100]',batch_of([300,100],4),0)
