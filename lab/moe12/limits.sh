# bash FOLDER/limits.sh, as run.sh; at most 20 s behind the build. Both ways to serve a call near their limit, in turns: the stream and
# tiles at T = 8 to 80.
WHAT=limits exec bash "$(dirname "$0")/run.sh"
