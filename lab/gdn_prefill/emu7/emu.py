import torch, math, sys
torch.manual_seed(0); torch.set_num_threads(1)
f16=lambda x: x.half().double()
bf=lambda x: x.bfloat16().double()
def hl(x):
    h=bf(x); return h+bf(x-h)
def run(k,q,v,lg,beta,S0,form,rS=f16,rR=f16,rW=f16,rD=f16,rRd=f16,scale=128**-.5):
    # k,q [T,128], v [T,V]; returns O,S
    T=k.shape[0]; S=S0.float().double().clone(); O=torch.empty_like(v)
    for c in range(0,T,64):
        K,Q,Vv=k[c:c+64],q[c:c+64],v[c:c+64]; G=lg[c:c+64].cumsum(0); b=beta[c:c+64]; n=len(K)
        D=torch.exp((G[:,None]-G[None,:])).tril()
        A=((K@K.T)*D*b[:,None]).tril(-1)
        Tm=torch.linalg.solve_triangular(torch.eye(n,dtype=torch.double)+A,torch.diag(b),upper=False)
        P=scale*(Q@K.T)*D
        e=torch.exp(G); last=torch.exp(G[-1]-G)
        if form=='R':
            W=rW(last[:,None]*Tm); Rd=rRd(P@Tm)
            R=rR((Vv-e[:,None]*(K@rS(S)).float().double()).float().double())
            O[c:c+64]=scale*e[:,None]*(Q@rS(S))+Rd@R
            d=rD((W@R).float().double())
            S=(torch.exp(G[-1])*S+K.T@d).float().double()
        else:
            U=rW(Tm@Vv); W=rW(Tm@(e[:,None]*K))
            d=U-W@rS(S)
            O[c:c+64]=rRd(scale*e[:,None]*Q)@rS(S)+rRd(P)@rD(d)
            S=(torch.exp(G[-1])*S+rD(last[:,None]*K).T@rD(d)).float().double()
    return bf(O),S
def exact(k,q,v,lg,beta,S0):
    I=lambda x:x
    return run(k,q,v,lg,beta,S0,'R',I,I,I,I,I)
def cases(T,V):
    u=lambda: torch.nn.functional.normalize(torch.randn(T,128,dtype=torch.double),dim=1).bfloat16().double()
    z=torch.zeros(T,dtype=torch.double)
    for vs in (1.,):
        v=bf(torch.randn(T,V,dtype=torch.double)*vs); S0=torch.randn(128,V,dtype=torch.double)/32
        sg=lambda: torch.sigmoid(torch.randn(T,dtype=torch.double))
        yield 'g1 b1 random',u(),u(),v,z,z+1,S0
        yield 'g1 b.5 random',u(),u(),v,z,sg(),S0
        yield 'g1-1.6e-5',u(),u(),v,z-1.6e-5,sg(),S0
        yield 'official slow .999',u(),u(),v,z-1e-3,sg(),S0
        yield 'g .9',u(),u(),v,z-.1,sg(),S0
        yield 'g mix 0/1',u(),u(),v,torch.where(torch.rand(T)<.05,-1e4,0.).double(),sg(),S0
        k=u()[:1].repeat(T,1); yield 'equal b1',k,u(),v,z,z+1,S0
        k=u()[torch.randint(0,8,(T,))]; yield '8 distinct b1',k,u(),v,z,z+1,S0
        k=u()[torch.randint(0,100,(T,))]; yield '100 distinct b1',k,u(),v,z,z+1,S0
        base=u()[:1]; k=bf(torch.nn.functional.normalize(base+0.2*u(),dim=1)); yield 'near parallel b1',k,u(),v,z,z+1,S0
        k=bf(torch.nn.functional.normalize(base+0.02*u(),dim=1)); yield 'nearer parallel b1',k,u(),v,z,z+1,S0
        yield 'big state',u(),u(),v,z,sg(),S0*32*10
        kk=u()*2; n=min(T,128); yield 'norm2 short',kk[:n],u()[:n],v[:n],z[:n],sg()[:n],S0
        yield 'beta0',u(),u(),v,z,z,S0
def worst(a,b): # official: abs and rel both >1e-2 -> metric min(abs,rel)
    d=(a-b).abs(); return torch.minimum(d,d/b.abs().clamp_min(1e-30)).max().item(), d.max().item()
T=int(sys.argv[1]) if len(sys.argv)>1 else 2048
for name,k,q,v,lg,beta,S0 in cases(T,64):
    O,S=exact(k,q,v,lg,beta,S0)
    s=f'{name:20s}|S|{S.abs().max():8.1f} '
    for lab,kw in {'R fp16':dict(form='R'),'W fp16':dict(form='W'),'R bf16':dict(form='R',rS=bf,rR=bf,rW=bf,rD=bf,rRd=bf),'R16 Dhl':dict(form='R',rD=hl)}.items():
        o,st=run(k,q,v,lg,beta,S0,**kw)
        s+=f' {lab}: S {worst(st,S)[0]:.1e} O {worst(o,bf(O))[0]:.1e}'
    print(s,flush=True)
