#!/bin/sh
# Compares the JSON reports of two builds of gpuwhy for all recorded sessions, byte for byte. For changes of the engine
# that must not change its results.
#
#     benches/same_reports.sh OLD/target/release NEW/target/release
#
# The sessions are played once, by the old build; both read the same traces. Exit status 0: all are equal.
set -eu
old=$1 new=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
different=0
for fixture in "$(dirname "$0")"/../testing/fixtures/*.cupti.zst; do
    name=$(basename "$fixture" .cupti.zst)
    "$old/gpuwhy" demo --fast "$name" --output "$work" >"$work/log" 2>&1 || { cat "$work/log"; exit 2; }
    "$old/gpuwhy" report --json "$work/$name.gpuwhy" >"$work/old.json"
    "$new/gpuwhy" report --json "$work/$name.gpuwhy" >"$work/new.json"
    if cmp -s "$work/old.json" "$work/new.json"; then
        echo "same       $name"
    else
        echo "DIFFERENT  $name"
        different=1
    fi
done
exit "$different"
