# bash .gpu/lab/ncu/ncu.sh CASE REGEX COUNT SKIP TAG
python3 .gpu/lab/ncu/drive.py $1 > /dev/null 2>&1   # builds
timeout 90 ncu --clock-control none --set full --section SourceCounters -k regex:$2 -s ${4:-0} -c $3 -f -o /tmp/ncu-$5 python3 .gpu/lab/ncu/drive.py $1 > $OUT/ncu-$5.log 2>&1
ncu --import /tmp/ncu-$5.ncu-rep --page source --csv --print-source sass > $OUT/$5.source.csv 2> $OUT/$5.err || ncu --import /tmp/ncu-$5.ncu-rep --page source --csv > $OUT/$5.source.csv 2>> $OUT/$5.err
ncu --import /tmp/ncu-$5.ncu-rep --page details --csv > $OUT/$5.details.csv 2>> $OUT/$5.err
ls -la /tmp/ncu-$5.ncu-rep $OUT/$5.*
