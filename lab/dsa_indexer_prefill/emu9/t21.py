import sys
sys.argv=['t2.py']
from t20 import *
g('33 blocks, in pairs',[(0,2300-i%3) for i in range(130)],2300,3,sms=12)
g('31 blocks, alone',[(0,2300-i%3) for i in range(124)],2300,3,sms=12)
g('64 x 5200',[(0,5200-64+i) for i in range(64)],5200,3,sms=10)
