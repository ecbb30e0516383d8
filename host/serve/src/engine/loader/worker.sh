#!/bin/sh
# A worker for tests: does as a file in its pipeline's folder says, or else tells what `ready.json` there holds.
for file; do :; done
folder=${file%/*}
test -e "$folder/hangs" && exec sleep 1000
test -e "$folder/dies" && exit 1
cat "$folder/ready.json" >&0
exec sleep 1000
