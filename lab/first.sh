# bash lab/first.sh "ROOM:SECONDS ..."
. .gpu/setup
start=$SECONDS; O=$OUT; 
for r in $1; do room=${r%%:*}; s=${r##*:}
  echo "==== $room [$((SECONDS-start)) s]"; mkdir -p $O/$room
  OUT=$O/$room timeout -k 5 $((s+15)) bash lab/$room/run.sh $s > $O/$room.txt 2>&1; echo "rc $?"; tail -c ${2:-5500} $O/$room.txt
done
(cd $O && tar czf all.tgz * --exclude=all.tgz 2>/dev/null; ls | grep -v all.tgz | xargs rm -rf)
echo "[$((SECONDS-start)) s]"
