import sys
sys.argv=['t2.py']
from t2 import *
go('26000',random_inputs([(0,26000),(5,24999),(0,9000)],26000,seed=2),sms=7)
go('ragged 40',random_inputs([(i*37,9000+i*11) for i in range(41)],9600,seed=3),sms=9)
