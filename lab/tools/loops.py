import re,collections,sys
t=open(sys.argv[1]).read()
parts=re.split(r"\.section\s+\.text\.(\S+?),",t)
for name,body in zip(parts[1::2],parts[2::2]):
    if len(sys.argv)>2 and sys.argv[2] not in name: continue
    items=[]  # labels and instructions
    for line in body.split("\n"):
        m=re.match(r"\s*(\.L_x_\d+):",line)
        if m: items.append(("L",m[1])); continue
        m=re.match(r"\s+/\*([0-9a-f]+)\*/\s+(.*?);",line)
        if m: items.append(("I",m[2]))
    labels={}; ins=[]
    for k,v in items:
        if k=="L": labels[v]=len(ins)
        else: ins.append(v)
    q=[i for i,s in enumerate(ins) if "GMMA" in s]
    print(name[:80],len(ins),"GMMA",q)
    for i,s in enumerate(ins):
        m=re.search(r"BRA.*`\((\.L_x_\d+)\)",s)
        if m and m[1] in labels and labels[m[1]]<i and q and labels[m[1]]<=q[-1]<i:
            j=labels[m[1]]
            inside=[x for x in q if j<=x<=i]
            if len(inside)<4: continue
            c=collections.Counter(re.sub(r"^@!?U?P[T\d]+\s+","",s).split()[0].split(".")[0] for s in ins[j:i+1])
            print("  loop",j,i,i-j+1,"gmma",len(inside),c.most_common(45)); break
