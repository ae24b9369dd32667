#!/bin/sh
# Follow a feed with nothing but curl: sh follow.sh URL FILE [PASSWORD_FILE]
#
# Prints each event; FILE keeps the id of the last one, and the next run goes on from there. A new
# FILE begins with a copy of everything. The password is read from a file: on the command line of
# curl it could be seen by other users of the machine. A lost connection and a proxy's 502 are tried
# again; an answer that would be given again, such as 401, ends the script.
set -u
url=$1 file=$2 password_file=${3:-}
tab=$(printf '\t')

stream() {
    [ -n "$password_file" ] && printf 'user = ":%s"\n' "$(sed 's/["\\]/\\&/g' "$password_file")"
    printf 'header = "Accept: text/event-stream"\nheader = "Last-Event-ID: %s"\n' "$1"
}

while :; do
    id=$(cat "$file" 2>/dev/null || echo 0)
    # The first lines are the header; an event is printed when its block is complete.
    stream "$id" | curl --silent --show-error --include --no-buffer --config - "$url" | {
        data='' is_body='' kind=''
        while IFS= read -r line; do
            case $is_body$line in
                HTTP/*) status=${line#* } && status=${status%%[!0-9]*} ;;
                [Cc]ontent-[Tt]ype:*) kind=$line ;;
                "$(printf '\r')")
                    case $status$kind in
                        1* | 408* | 425* | 429* | 5*) ;;
                        200*text/event-stream*) is_body=: ;;
                        *) printf 'not an event stream: %s %s\n' "$status" "$kind" >&2 && exit 3 ;;
                    esac
                    ;;
                ':id: '*) id=${line#id: } ;;
                ':event: '*) event=${line#event: } ;;
                ':data: '*) data=$event$tab${line#data: } ;;
                :)
                    [ -n "$data" ] && printf '%s\n' "$data"
                    data=''
                    printf %s "$id" >"$file.new" && mv "$file.new" "$file"
                    ;;
            esac
        done
    }
    [ $? -eq 3 ] && exit 1
    sleep 1
done
