import sys
sys.argv=['t2.py']
from t2 import *
import emulation
def shares(Q):
    t=emulation.last; return t[:3*(-(-Q//4))].reshape(-1,3).tolist()
def g(name,ranges,n,seed,**kw):
    go(name,random_inputs(ranges,n,seed=seed),**kw); print('   shares',shares(len(ranges))[:9])
g('pairs 16',[(0,9000+i) for i in range(16)],9100,3,sms=6)
g('pairs 8',[(0,9000+i) for i in range(8)],9100,3,sms=8)
g('one query',[(0,9100)],9100,3,sms=6)
g('nine',[(0,9000+i) for i in range(9)],9100,3,sms=6)
g('four, many ctas',[(0,9000+i) for i in range(4)],9100,3,sms=132)
g('odd 3 blocks far apart',[(0,6000)]*4+[(6000,12000)]*4+[(0,12000)]*4,12000,3,sms=6)
g('2 blocks far apart',[(0,6000)]*4+[(6000,12000)]*4,12000,3,sms=6)
g('ragged 41',[(i*37,9000+i*11) for i in range(41)],9600,3,sms=10)
g('ragged 24 disjoint',[((i*1709)%6000,(i*1709)%6000+2000+(i*977)%4000) for i in range(24)],12000,3,sms=10)
g('short among',[(0,2000)]*4+[(0,9000)]*4+[(5,9001)]*8+[(3,3)]*4,9100,3,sms=10)
