import json,glob,collections,datetime,statistics as st
T=lambda s: datetime.datetime.fromisoformat(s.replace("Z","+00:00")).timestamp()
S=json.load(open("scale/nvidia-h200.json")); 
W={p["name"]:(T(p["measured_at"])-p["wall_s"],T(p["measured_at"])) for p in S["phases"]}
for room in ("dsa_indexer","gdn_prefill","gdn_decode"):
    by=collections.defaultdict(dict)
    for l in open(f"traces/nvidia-h200/{room}.jsonl"):
        d=json.loads(l); h=d["harness"]; t=T(h["started_at"])
        for n,(a,b) in W.items():
            if a<=t<=b: by[d["workload"]["uuid"]][n]=(h["measurement"]["stages_s"],(h.get("worker") or h["measurement"].get("worker"))["gpu"][-4:],T(h["ended_at"])-t,t-a)
    for n in ("two","kill"):
        rows=[(x["one"],x[n]) for x in by.values() if "one" in x and n in x]
        for g in ("0771","39eb"):
            sel=[r for r in rows if r[1][1]==g and r[0][0]["correctness"]<1 and r[1][0]["correctness"]<1]
            if not sel: continue
            print(room,n,g,len(sel),{k:(round(1000*st.mean(r[0][0].get(k,0) for r in sel),1),round(1000*st.mean(r[1][0].get(k,0) for r in sel),1)) for k in ("inputs","reference","build","correctness","timing","total")}, "span",round(1000*st.mean(r[0][2] for r in sel)),round(1000*st.mean(r[1][2] for r in sel)))
