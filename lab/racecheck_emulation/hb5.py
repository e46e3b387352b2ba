# hb5.py MODES... : the inputs of the second task, all modes given, e.g. 0,1,1,1,1
from hb import *
CASES={'pair':lambda: ('[300,70]',1,1,batch_of([300,70],4),0),
 'long':lambda: ('one long [900]',1,3,batch_of([900],4),0),
 'many':lambda: ('24 uneven',2,3,batch_of([(37*i+11)%110 for i in range(24)],6),1),
 'equal':lambda: ('equal keys, second pass [150,64,70]',1,2,equal_keys([150,64,70],4),0)}
if __name__=='__main__':
    for name in sys.argv[1].split('+'):
        for m in sys.argv[2:]: check(CASES[name]()[0],tuple(map(int,m.split(','))),*CASES[name]()[1:])
