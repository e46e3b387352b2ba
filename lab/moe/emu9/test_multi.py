from test_emu import *
w=zero_weights(); g=torch.Generator().manual_seed(1)
for e in (0,5,31): fill_expert(w,e,g)
x=random_inputs(route_to([[69,*range(0,7)]]*35+[[64,69,95,*range(0,5)]]+[list(range(100,108))]*2),w,64,seed=2)
compare('35 on one',x,116,ctas=3,seed=11)
x=random_inputs(route_to([[69,*range(0,7)]]*75+[[64,69,95,*range(0,5)]]+[list(range(100,108))]*2),w,64,seed=2)
compare('75 on one',x,464,ctas=2,seed=12)
compare('75 on one, two launches',x,116,ctas=2,seed=12,force_two=1)
