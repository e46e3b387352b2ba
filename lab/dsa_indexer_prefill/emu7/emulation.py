import ctypes,numpy as np,sys,torch,time
sys.path.insert(0,'clones/long7')
lib=ctypes.CDLL('clones/long7-emu/lib.so')
def run(inputs,sms=5,repair_ctas=2,most_candidates=6912,want_samples=False):
    g=lambda n,dt: np.ascontiguousarray(inputs[n].view(torch.uint8).numpy() if 'fp8' in n else inputs[n].numpy().astype(dt))
    q,k=g('q_index_fp8',0),g('k_index_fp8',0)
    s,w=g('k_scale',np.float32),g('weights',np.float32)
    st,en=g('row_starts',np.int32),g('row_ends',np.int32)
    Q,N=len(st),len(k)
    # 16-byte alignment
    ids=np.full((Q,2048),0x7fffffff,np.int32)
    blocks=-(-Q//4)
    areas=Q+528
    words=2*blocks+areas*8+2*Q+1
    table=np.full(words,-123456789,np.int32)
    area=np.full(max(areas*8*832*8,repair_ctas*16*max(N,1),Q*4*(-(-N//48))),0xCD,np.uint8)
    failed=ctypes.c_int(); th=np.zeros(Q,np.float32)
    p=lambda a:ctypes.c_void_p(a.ctypes.data)
    for a in (q,k): assert a.ctypes.data%16==0
    lib.emu_run(p(q),p(k),p(s),p(w),p(st),p(en),p(ids),Q,N,sms,repair_ctas,most_candidates,p(table),p(area),ctypes.byref(failed),p(th),None)
    return torch.from_numpy(ids),failed.value,th
