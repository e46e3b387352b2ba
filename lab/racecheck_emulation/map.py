import re,sys
f,kern=sys.argv[1],sys.argv[2]
want=None if len(sys.argv)<4 else set(int(x,16) for x in sys.argv[3].split(','))
on=False; line=[]; pending=[]
for l in open(f):
    if re.match(r'\.text\.',l): on = kern in l
    if not on: continue
    m=re.search(r'//## File "([^"]*)", line (\d+)( inlined at "([^"]*)", line (\d+))?',l)
    if m:
        pending.append(m.group(1).split('/')[-1]+':'+m.group(2)); 
        fresh=True
        continue
    m=re.match(r'\s+/\*([0-9a-f]{4,})\*/\s+(.*)',l)
    if m:
        if pending: line,pending=pending,[]
        a=int(m.group(1),16)
        if want is None or a in want: print(f'{a:05x} {m.group(2).split(";")[0].strip():75s} {" < ".join(line)}')
