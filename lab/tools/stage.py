import json,glob,collections,datetime
T=lambda s: datetime.datetime.fromisoformat(s.replace("Z","+00:00")).timestamp()
S=json.load(open("scale/nvidia-h200.json")); 
W={p["name"]:(T(p["measured_at"])-p["wall_s"],T(p["measured_at"])) for p in S["phases"]}
rows=[]
for f in glob.glob("traces/nvidia-h200/*.jsonl"):
    room=f.split("/")[-1][:-6]
    for l in open(f):
        try: d=json.loads(l); h=d["harness"]
        except Exception: continue
        if "stages_s" in h.get("measurement",{}): st=h["measurement"]["stages_s"]
        elif "stages_s" in h: st=h["stages_s"]
        else: continue
        rows.append((T(h["started_at"]),room,d["workload"]["axes"],st,h.get("worker") or h["measurement"].get("worker")))
rows.sort(key=lambda r:r[0])
for n,(a,b) in sorted(W.items(),key=lambda x:x[1]):
    tab=collections.defaultdict(lambda: collections.Counter()); 
    for t,room,ax,st,w in rows:
        if a<=t<=b:
            for k,v in st.items(): tab[room][k]+=v
            tab[room]["n"]+=1
    print(n)
    for r,c in tab.items(): print("   ",r,{k:round(v,1) for k,v in c.items()})
    mine=[(st["correctness"],room,ax,round(t-a,1),w["gpu"][-4:]) for t,room,ax,st,w in rows if a<=t<=b]
    mine.sort(key=lambda r:-r[0]); 
    for m in mine[:8]: print("      ",round(m[0],2),m[1:])
