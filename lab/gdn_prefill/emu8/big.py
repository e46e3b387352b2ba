from drive import *
S=ctypes.c_int.in_dll(L,'solve_ctas'); C=ctypes.c_int.in_dll(L,'scan_ctas')
S.value,C.value=116,2
report('[0,0,2500,130,0]',batch_of([0,0,2500,130,0],4),0)
report('[2560,1,1,1,1]',batch_of([2560,1,1,1,1],4),0)
report('[6081]',batch_of([6081],4),0)
report('[10240]',batch_of([10240],4),0)
