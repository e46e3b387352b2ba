from test_emu import *
w=zero_weights(); g=torch.Generator().manual_seed(1)
for e in range(64-64,10): fill_expert(w,e,g)
x=random_inputs(route_to([list(range(64,72)),[64,65,66,67,68,*range(0,3)],list(range(100,108)),[70,*range(7)]]),w,64,seed=2)
compare('eight slots',x,116,ctas=4,seed=11)
