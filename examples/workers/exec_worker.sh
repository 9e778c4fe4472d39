#!/bin/sh
# A worker process for `handler = "exec"` with `mode = "worker"`. Copy it and write your own `handle`.
#
#     [queues.emails.handler-config]
#     command = ["./exec_worker.sh"]
#     mode = "worker"
#
# It needs a POSIX shell and sed, nothing else. Id and payload are the first fields of an item's line, so no JSON
# program is needed for them; use `jq` for attributes. docs/workers/processes.md explains the lines.

# Handles one item: $id and $payload. 0 is done, 65 a dead letter, anything else a retry. What it prints goes to the daemon's
# log. For long work: heartbeat.
handle() {
    printf '%s %s\n' "$id" "$payload"
}

heartbeat() {
    echo "{\"heartbeat\":\"$id\"}" >&3
}

# The text of a JSON string. Characters that JSON writes as \u.... stay as they are; newlines at the end are lost.
text() {
    printf '%b' "$(printf '%s\n' "$1" | sed 's/\\"/"/g')"
}

# Standard output is for the daemon: handlers write to standard error instead.
exec 3>&1 1>&2
read -r _hello # {"kvqueue":1,"queue":"emails"}
echo '{"kvqueue":1}' >&3
# At the end of the input the daemon needs this process no longer.
while IFS= read -r line; do
    case $line in
    '{"id":"'*'","payload":"'*) ;;
    '{"id":"'*)
        id=${line#'{"id":"'} id=${id%%'"'*}
        echo "{\"id\":\"$id\",\"outcome\":\"dead\",\"reason\":\"the payload is not text\"}" >&3
        continue
        ;;
    *) continue ;; # a cancellation, and the item has ended already
    esac
    id=${line#'{"id":"'} id=${id%%'"'*}
    json=$(printf '%s\n' "$line" | sed -E 's/^\{"id":"[^"]*","payload":"(([^"\\]|\\.)*)".*/\1/')
    payload=$(text "$json")
    handle </dev/null
    code=$?
    case $code in
    0) outcome='"outcome":"done"' ;;
    65) outcome='"outcome":"dead","reason":"exit code 65"' ;;
    *) outcome="\"outcome\":\"retry\",\"reason\":\"exit code $code\"" ;;
    esac
    echo "{\"id\":\"$id\",$outcome}" >&3
done
