exec(open('check.py').read().split("quick=")[0])
def rows(spans):
    inp=inputs([0]*len(spans),seed=5)
    for t,span in enumerate(spans):
        for a,b in span: inp['sparse_indices'][t,a:b]=random_rows(40,b-a,90+t)
    return inp
S=[[(79,80)],[(64,65)],[(0,64),(79,80)],[(0,64),(80,200)],[(0,16),(80,2048)],[(64,80)],[(80,81)],[(0,79)],[(1024,1100)],[(16,17),(70,71),(1090,1091)]]
for c in (16,8,2,1): check("long or short",c,rows(S))
