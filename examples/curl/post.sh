#!/bin/sh
# Post an operation with nothing but curl, tried again until it is answered, and appended once:
# sh post.sh URL EVENT TYPE ID
set -eu
key=$(od -An -N16 -tx1 /dev/urandom | tr -d ' \n')
curl --silent --show-error --fail --retry 8 --retry-connrefused "$1" \
    -H 'Content-Type: application/json' -H "Idempotency-Key: $key" -H 'Prefer: return=representation' \
    -d "{\"event\":\"$2\",\"type\":\"$3\",\"id\":\"$4\"}"
