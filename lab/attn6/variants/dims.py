"""The size of a cluster is known to the compiler: no look at it, no branch, in front of its barrier. In the room's folder."""
text = open("attend.cu").read()
mark = "__global__ void __launch_bounds__(THREADS, 1) attend_kernel"
assert mark in text
open("attend.cu", "w").write(text.replace(mark, "__global__ void __cluster_dims__(CLUSTER, 1, 1) __launch_bounds__(THREADS, 1) attend_kernel"))
