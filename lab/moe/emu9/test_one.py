from test_emu import *
import tests.oracles.moe as M
w=zero_weights(); g=torch.Generator().manual_seed(1)
for e in (0,5,31): fill_expert(w,e,g)
same=lambda a,b: bool(torch.equal(a.view(torch.int16),b.view(torch.int16)))
few=[[69,*range(0,7)],[64,69,95,*range(0,5)],list(range(100,108))]
def case(name,make,shape,ctas,resident,seed,replays=1,offset=64):
    T=None; scratch=None; oks=[]; t=time.time()
    for r in range(1+replays):
        x=random_inputs(make(r),w,offset,seed=seed+r); T=x['routing_logits'].shape[0]
        scratch=scratch or scratch_of(lib,T,seed)
        got=new(x,shape,ctas,seed+r,resident,scratch=scratch); want=old(x,shape,ctas=3,seed=seed+r)
        oks.append(same(got,want))
    print(name,'T',T,'shape',shape,f'{resident or ctas} of {ctas} resident, same bits',oks,f'{time.time()-t:.1f}s',flush=True)
    assert all(oks)
CASES={
 'one':lambda: case('one',lambda r: route_to([few[r%3]]),116,3,0,1,2),
 'three':lambda: case('three',lambda r: route_to(few if r else few[::-1]),116,5,2,2),
 'eleven':lambda: case('eleven',lambda r: route_to((few*4)[r:11+r]),116,4,1,3),
 'twelve':lambda: case('twelve',lambda r: route_to((few*5)[r:12+r]),116,6,0,4),
 'twelve late':lambda: case('twelve late',lambda r: route_to((few*5)[r:12+r]),116,7,2,5),
 '33 late':lambda: case('33 late',lambda r: route_to((few*12)[r:33+r]),116,9,3,6,1),
 '128':lambda: case('128',lambda r: route_to(([few[2]]*10+few)*9+[few[1]]*11),116,5,0,7,0),
 '129':lambda: case('129',lambda r: route_to(([few[2]]*10+few)*9+[few[0]]*12),464,4,2,8,0),
 '400':lambda: case('400',lambda r: route_to(([few[2]]*17+few)*20),464,8,3,9,0),
 'none':lambda: case('none',lambda r: route_to([few[2]]*40),116,4,2,10,1),
 'rand 16':lambda: case('rand 16',lambda r: torch.randn(16,256,generator=torch.Generator().manual_seed(r)),116,8,3,11,1),
}
if __name__=="__main__":
  for n in sys.argv[1:] or CASES: CASES[n]()
