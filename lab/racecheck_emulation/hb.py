from drive import *
import sys, subprocess
S=ctypes.c_int.in_dll(L,'solve_ctas'); C=ctypes.c_int.in_dll(L,'scan_ctas'); ctypes.c_int.in_dll(L,'rc_holder').value=int(os.environ.get('HOLDER','0'))
SO=os.environ.get('EMU','/tmp/ng/emu')+'/'+os.environ['SO']
def lines(a):
    o=subprocess.run(['addr2line','-i','-f','-C','-e',SO,a],capture_output=True,text=True).stdout.split('\n')
    o=[(f.split('(')[0].split('::')[-1],l.split('/')[-1].split(' ')[0]) for f,l in zip(o[::2],o[1::2]) if 'shelf' not in l and 'machine' not in l]
    return ' < '.join(f'{f} {l}' for f,l in o[:2])
import tempfile
def check(what,mode,s,c,x,g,only='solve'):
    L.rc_mode(*mode); S.value,C.value=s,c
    sys.stdout.flush(); f=tempfile.TemporaryFile(); keep=os.dup(1); os.dup2(f.fileno(),1)
    report(what,x,g); sys.stdout.flush(); L.rc_print(); os.dup2(keep,1); f.seek(0); text=f.read().decode()
    print('#',what,mode,text.split('\n')[0].split('groups')[1]); agg={}
    for l in text.split('\n'):
        if l.startswith('PAIR'):
            w=l.split(); k=(lines(w[1]),lines(w[2])); n=[int(w[4]),int(w[6]),int(w[8].rstrip(',')),int(w[12])]
            agg[k]=[a+b for a,b in zip(agg.get(k,[0]*4),n)]
    for k,n in agg.items(): print('   ',k[0],'|',k[1],'| RAW %d WAR %d WAW %d, of other warps %d'%tuple(n))
    print('   ',len(agg),'pairs',flush=True)
if __name__=='__main__':
    modes=[tuple(map(int,m.split(','))) for m in sys.argv[1:]]
    for m in modes:
        check('[300,70]',m,1,1,batch_of([300,70],4),0)
