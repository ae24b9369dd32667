#!/bin/sh
# Follow a feed with nothing but curl: sh follow.sh URL FILE [PASSWORD_FILE]
#
# Prints each event; FILE keeps the id of the last one, and the next run goes on from there. A new
# FILE begins with a copy of everything. The password is read from a file: on the command line of
# curl it could be seen by other users of the machine.
set -u
url=$1 file=$2 password_file=${3:-}
tab=$(printf '\t')

stream() {
    [ -n "$password_file" ] && printf 'user = ":%s"\n' "$(sed 's/["\\]/\\&/g' "$password_file")"
    printf 'header = "Accept: text/event-stream"\nheader = "Last-Event-ID: %s"\n' "$1"
}

while :; do
    id=$(cat "$file" 2>/dev/null || echo 0)
    stream "$id" | curl --silent --show-error --fail --no-buffer --config - "$url" |
        while IFS= read -r line; do
            case $line in
                'id: '*) id=${line#id: } ;;
                'event: '*) event=${line#event: } ;;
                'data: '*) printf '%s\n' "$event$tab${line#data: }" ;;
                '') printf %s "$id" >"$file.new" && mv "$file.new" "$file" ;;
            esac
        done
    sleep 1
done
