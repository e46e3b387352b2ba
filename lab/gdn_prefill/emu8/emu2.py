import sys; sys.argv=[sys.argv[0],sys.argv[1]]
exec(open('emu.py').read().split("T=int(sys")[0])
def hl16(x):
    h=f16(x); return h+f16(x-h)
f32=lambda x:x.float().double()
def inverse(A,op):
    # 16-block inverse: diag blocks fp32-like, column blocks by Y chain with operands rounded by op
    n=A.shape[0]; X=torch.zeros(64,64,dtype=torch.double); Ap=torch.zeros(64,64,dtype=torch.double); Ap[:n,:n]=A
    Dg=[f32(torch.linalg.inv(torch.eye(16,dtype=torch.double)+Ap[b*16:b*16+16,b*16:b*16+16])) for b in range(4)]
    bl=lambda M,i,j:M[16*i:16*i+16,16*j:16*j+16]
    for j in range(4):
        bl(X,j,j)[:]=Dg[j]
        for i in range(j+1,4):
            s=sum(op(bl(Ap,i,m))@op(bl(X,m,j)) for m in range(j,i))
            bl(X,i,j)[:]=f32(-op(Dg[i])@op(f32(s)))
    return X[:n,:n]
def runF(k,q,v,lg,beta,S0,opA=hl16,opY=hl16,opP=f16,scale=128**-.5):
    T=k.shape[0]; S=S0.float().double().clone(); O=torch.empty_like(v)
    for c in range(0,T,64):
        K,Q,Vv=k[c:c+64],q[c:c+64],v[c:c+64]; G=lg[c:c+64].cumsum(0); b=beta[c:c+64]; n=len(K)
        D=torch.exp((G[:,None]-G[None,:])).tril()
        A=((K@K.T)*D*b[:,None]).tril(-1)
        Tm=f32(inverse(f32(A),opA)*b[None,:])
        P=opP(f32(scale*(Q@K.T)*D))
        e=torch.exp(G); last=torch.exp(G[-1]-G)
        Kw=f16(f32(opY(f32(last[:,None]*Tm)).T@K)) # [j,key]
        Rd=f16(f32(P@opY(Tm)))
        R=f16(f32(Vv-e[:,None]*f32(K@f16(S))))
        O[c:c+64]=scale*e[:,None]*(Q@f16(S))+Rd@R
        S=f32(torch.exp(G[-1])*S+Kw.T@R)
    return bf(O),S
T=int(sys.argv[1])
for name,k,q,v,lg,beta,S0 in cases(T,48):
    O,S=exact(k,q,v,lg,beta,S0)
    s=f'{name:20s}|S|{S.abs().max():8.1f} '
    for lab,kw in {'F hl':{},'F Y1':dict(opY=f16),'F Y1 A1':dict(opA=f16,opY=f16)}.items():
        o,st=runF(k,q,v,lg,beta,S0,**kw)
        s+=f' {lab}: S {worst(st,S)[0]:.1e} O {worst(o,bf(O))[0]:.1e} d{worst(o,bf(O))[1]:.1e}'
    print(s,flush=True)
