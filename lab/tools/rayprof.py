import cProfile,pstats,ray,sys
p=cProfile.Profile(); p.enable(); ray.init(include_dashboard=False, log_to_driver=False, num_cpus=4); p.disable()
s=pstats.Stats(p); s.sort_stats("cumulative").print_stats(45)
