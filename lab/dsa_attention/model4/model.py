import sys, numpy as np, torch
sys.path.insert(0,'clones/attn4')
from tests.oracles.dsa_attention import SM_SCALE
torch.set_num_threads(1)
def bf(x): return x.to(torch.bfloat16).to(x.dtype)
def fp16(x): return x.to(torch.float16).to(x.dtype)
def shares(n,C,FIRST=4):
    """rows -> cta, tile order"""
    i=torch.arange(n); b=i//16; long_=n>16*FIRST
    if C==1: return torch.zeros(n,dtype=torch.long), i//64
    if long_: own=b%C; j=b//C
    else: own=torch.where(b<FIRST,torch.zeros_like(b),1+(b-FIRST)%(C-1)); j=torch.where(b<FIRST,b,(b-FIRST)//(C-1))
    return own, j//4
def token(n,C,g,variants):
    q=bf(torch.randn(16,576,generator=g,dtype=torch.float64)); K=bf(torch.randn(n,576,generator=g,dtype=torch.float64))
    v=K[:,:512]; s=SM_SCALE*1.4426950408889634*(q@K.T)
    w=torch.exp2(s-s.max(1,keepdim=True).values); exact=(w/w.sum(1,keepdim=True))@v
    own,tile=shares(n,C)
    out={}
    for name,(rp,norm,ex) in variants.items():
        tops=[];sums=[];rsums=[];accs=[]
        for c in range(C):
            sel=own==c
            if not sel.any(): continue
            top=torch.full((16,),-float('inf'),dtype=torch.float64); sm=torch.zeros(16,dtype=torch.float64); rs=sm.clone(); acc=torch.zeros(16,512,dtype=torch.float64)
            for t in range(int(tile[sel].max())+1):
                m=sel&(tile==t); l=s[:,m]; nt=torch.maximum(top,l.max(1).values); f=torch.exp2(top-nt); p=torch.exp2(l-nt[:,None]); r=rp(p)
                sm=sm*f+p.sum(1); rs=rs*f+r.sum(1); acc=acc*f[:,None]+r@v[m]; top=nt
            tops.append(top);sums.append(sm);rsums.append(rs);accs.append(acc)
        T=torch.stack(tops); f=torch.exp2(T-T.max(0).values); S=(f*torch.stack(rsums if norm else sums)).sum(0)
        o=0
        alone=len(accs)==1
        if alone: S=rsums[0]
        for i,a in enumerate(accs): o=o+(f[i]/S)[:,None]*(a if alone else ex(a))
        o=bf(o); out[name]=((o-exact).abs(), (o-exact).abs()-2**-7*exact.abs())
    return out
I=lambda x:x
def hi_lo(x): h=bf(x); return h+bf(x-h)
V={'now':(bf,False,bf),'a: rounded sum':(bf,True,bf),'ex fp16':(bf,False,fp16),'a+ex fp16':(bf,True,fp16),'p exact':(I,False,bf),'p exact, ex fp16':(I,False,fp16)}
if __name__=='__main__':
    N=int(sys.argv[1]); C=int(sys.argv[2]); g=torch.Generator().manual_seed(int(sys.argv[3]) if len(sys.argv)>3 else 0)
    res={k:[[],[]] for k in V}
    for _ in range(N):
        n=int(33*(2048/33)**torch.rand(1,generator=g).item()) if len(sys.argv)<5 else int(sys.argv[4])
        for k,(e,x) in token(n,C,g,V).items(): res[k][0].append(e.float().flatten()); res[k][1].append(x.float().flatten())
    for k,(e,x) in res.items():
        e=torch.cat(e); x=torch.cat(x); 
        ks=int(len(e)*1e-4)
        print(f"C={C} {k:18} rms {e.square().mean().sqrt():.6f} err 99.99 {e.topk(ks).values[-1]:.5f} worst {e.max():.5f} | over rtol: 99.99 {x.topk(ks).values[-1]:.5f} worst {x.max():.5f} above 4e-3: {int((x>4e-3).sum())} of {len(x)}, tokens {sum(1 for y in res[k][1] if (y>4e-3).any())} of {N}",flush=True)
