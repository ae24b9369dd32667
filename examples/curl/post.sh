#!/bin/sh
# Post an operation with nothing but curl, tried again until it is answered, and appended once:
# sh post.sh URL EVENT TYPE ID
#
# Only an answer with the event ids counts: a proxy may answer 200 with a page of its own.
set -u
key=$(od -An -N16 -tx1 /dev/urandom | tr -d ' \n')
for delay in 1 2 4 8 16 32 32 0; do
    answer=$(curl --silent --show-error --max-time 40 --write-out '\n%{http_code} %header{retry-after}' "$1" \
        -H 'Content-Type: application/json' -H "Idempotency-Key: $key" -H 'Prefer: return=representation' \
        -d "{\"event\":\"$2\",\"type\":\"$3\",\"id\":\"$4\"}")
    failed=$?
    last=${answer##*
}
    status=${last%% *} after=${last#* }
    body=${answer%
*}
    case $failed:$status:$body in
        0:200:'{"ids":['*) printf '%s\n' "$body" && exit ;;
        *:408:* | *:425:* | *:429:*) ;;
        *:[34]??:*) break ;; # final: it would be answered again
    esac
    [ "$after" -gt "$delay" ] 2>/dev/null && [ "$after" -le 32 ] && delay=$after # the server asks for it
    sleep "$delay"
done
printf 'not posted: %s %s\n' "$status" "$body" >&2
exit 1
