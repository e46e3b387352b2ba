from drive import *
S=ctypes.c_int.in_dll(L,'solve_ctas'); C=ctypes.c_int.in_dll(L,'scan_ctas')
S.value,C.value=3,4; report('[700] handing',batch_of([700],4),0)
S.value,C.value=2,1; report('[0,1100,0] 1 scan',batch_of([0,1100,0,700],4),0)
S.value,C.value=2,7; report('lead, tail',random_inputs([100,100,1200],7,total_seq_len=1270),0)
x=batch_of([700],5); x['A_log'].fill_(-9.); x['dt_bias'].fill_(-2.); report('slow decay 700',x,0)
report('hard 600',hard_inputs([0,600],2),0)
