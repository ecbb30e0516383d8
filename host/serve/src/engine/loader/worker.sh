#!/bin/sh
# A worker for tests: does as a file in its pipeline's folder says, or else tells what `ready.json` there holds.
for source; do :; done
test -e "$source/hangs" && exec sleep 1000
test -e "$source/dies" && exit 1
cat "$source/ready.json" >&0
exec sleep 1000
