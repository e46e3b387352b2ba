from drive import *
S=ctypes.c_int.in_dll(L,'solve_ctas'); C=ctypes.c_int.in_dll(L,'scan_ctas')
S.value,C.value=1,3; report('[200,70,0,129] 1 solve, 3 scan',batch_of([200,70,0,129],4),0)
S.value,C.value=7,40; report('[200,70,0,129] 7 solve, 40 scan',batch_of([200,70,0,129],4),2)
S.value,C.value=3,7; report('unordered 390',batch_of([0]*190+[3]*3+[0]*190+[70,64,0,1,130,0,65],4),9)
S.value,C.value=3,7; report('ordered 100',batch_of([0]*40+[3,70]*3+[0]*50+[70,64,130,0],4),1)
S.value,C.value=16,5; report('[64] more workers than tasks',batch_of([64],4),0)
