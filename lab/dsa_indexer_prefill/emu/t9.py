import sys
sys.argv=['t2.py']
from t2 import *
go('2300',random_inputs([(0,2300),(5,2200),(0,100),(100,2300),(17,2270)],2300,seed=1),sms=2)
