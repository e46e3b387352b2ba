from route import *
run(901,132,31,'none'); run(1536,132,32,'some'); run(513,114,33,'some'); run(4096,132,34,'some')
