import sys
sys.argv=['t2.py']
from t2 import *
Q,N=150,6200
go('causal 150 x 6200 sms 132',random_inputs([(0,N-Q+1+i) for i in range(Q)],N,seed=1),sms=132,most_candidates=6912)
