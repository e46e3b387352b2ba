from drive import *
S=ctypes.c_int.in_dll(L,'solve_ctas'); C=ctypes.c_int.in_dll(L,'scan_ctas')
S.value,C.value=3,2; report('uneven 24, 3 solve, 2 scan',batch_of([37*i%150 for i in range(24)],6),1)
S.value,C.value=3,1; report('empties, 1 scan',batch_of([0]*9+[70]+[0]*7+[64,1,3],6),0)
S.value,C.value=1,4; x=batch_of([40,64],6); x['cu_seqlens']=torch.zeros(3,dtype=torch.int64); report('all empty',x,0)
x=batch_of([5,6],1); 
