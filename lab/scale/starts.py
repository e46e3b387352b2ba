import os, subprocess, sys, time
t=time.time
def sh(c, **e):
    a=t(); subprocess.run([sys.executable,"-c",c],env={**os.environ,**e}); return round(t()-a,2)
print("bare", sh("pass"), "torch", sh("import torch"), sh("import torch"), "judge", sh("import harness.evaluate.judge, harness.evaluate.start, harness.evaluators, triton"), sh("import harness.evaluate.judge, harness.evaluate.start, harness.evaluators, triton"))
c='''
import time; a=time.time()
import torch; b=time.time()
torch.cuda.set_device(0); torch.cuda.synchronize(); c=time.time()
x=torch.zeros(4,device="cuda")+1; x.item(); d=time.time()
torch.randn(64,64,device="cuda")@torch.randn(64,64,device="cuda"); torch.cuda.synchronize(); e=time.time()
print("torch",round(b-a,2),"context",round(c-b,2),"first kernel",round(d-c,2),"cublas",round(e-d,2))
'''
sh(c,CUDA_VISIBLE_DEVICES="0"); sh(c,CUDA_VISIBLE_DEVICES="1"); sh(c,CUDA_VISIBLE_DEVICES="0")
ps=[subprocess.Popen([sys.executable,"-c",c],env={**os.environ,"CUDA_VISIBLE_DEVICES":str(i)}) for i in (0,1)]; [p.wait() for p in ps]
a=t(); import ray, ray.exceptions, ray.util.scheduling_strategies; b=t()
os.environ["RAY_USAGE_STATS_ENABLED"]="0"
ray.init(address="local", num_gpus=2, num_cpus=3, log_to_driver=False, include_dashboard=False, logging_level="ERROR", object_store_memory=1<<28); c=t()
class A:
    def f(self): return os.environ.get("CUDA_VISIBLE_DEVICES")
hs=[ray.remote(A).options(num_gpus=1,num_cpus=0,max_restarts=0).remote() for _ in (0,1)]
print(ray.get([h.f.remote() for h in hs])); d=t(); ray.shutdown(); e=t()
print("ray import",round(b-a,2),"init",round(c-b,2),"actors",round(d-c,2),"shutdown",round(e-d,2))
from harness.devices import own_cores, spare_cores, read_facts
a=t(); print(list(own_cores("0")),list(own_cores("1")),len(spare_cores(4)), round(t()-a,2)); a=t(); read_facts("cuda:0"); print("facts",round(t()-a,2))
