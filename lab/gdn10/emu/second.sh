O="0 1 2d 4w 6pd 5td 7s"; export O
{ for c in short short2 shorthalf handshort handshort2 cutshort; do echo "$c 1 state"; echo "$c 1 none"; done; } | xargs -P 2 -I J bash -c 'job J'
O="2d 4w 6pd"
{ for c in whole whole9 halves halves1 hand cut2 cut3 many385 gaps; do echo "$c 1 none"; done; for c in whole halves1 hand cut3 cut4 fliphand many385; do echo "$c 0 state"; done; echo "cut3 0 none"; } | xargs -P 2 -I J bash -c 'job J'
