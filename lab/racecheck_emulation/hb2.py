from hb import *
for m in ((0,0,0,0,1),(1,0,0,0,0)):
    check('one long [900]',m,1,3,batch_of([900],4),0)
    check('empties [0,70,0,0,64,130,0]',m,2,5,batch_of([0,70,0,0,64,130,0],4),2)
    check('many [37 i % 150] x 16',m,2,3,batch_of([37*i%150 for i in range(16)],6),1)
