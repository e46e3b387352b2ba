"""Stamps of an emulated call as lab.py keeps them: EMU=/tmp/g9/emu_stamped dump.py OUT.npz CASE..."""
import os,sys
os.environ['NO_RC']='1'
sys.path.insert(0,os.path.dirname(os.path.abspath(__file__))); sys.path.insert(0,os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from drive import *
import fast, numpy as np, patch
L.lab_array.restype=ctypes.c_void_p; L.lab_array.argtypes=[ctypes.c_int]; keep={}
for name in sys.argv[2:]:
    s,c,x,g=fast.CASES[name]; c=int(os.environ.get("SCAN",c)); fast.S.value,fast.C.value=s,c
    for i,(n,size) in enumerate(patch.SIZES.items()): ctypes.memset(L.lab_array(i),0,size*(8 if n=='ctas' else 4))
    native(x(),g)
    for i,(n,size) in enumerate(patch.SIZES.items()):
        t=np.uint64 if n=='ctas' else np.uint32
        keep[f'{name}:{n}']=np.ctypeslib.as_array(ctypes.cast(L.lab_array(i),ctypes.POINTER(ctypes.c_uint64 if n=='ctas' else ctypes.c_uint32)),(size,)).astype(t).copy()
    call=keep[f'{name}:ctas'].reshape(patch.SIZES['ctas']//8,8).astype(np.int64); b=call[:,0]>0
    span=(call[b,2].max()-call[b,0].min())/1e3
    keep[f'{name}:spans']=np.array([span+5]); keep[f'{name}:plain']=np.array([span+4])
np.savez_compressed(sys.argv[1],**keep)
