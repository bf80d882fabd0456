#!/usr/bin/env bash
# A worker in bash: counts the words of a text. It implements the worker protocol itself; jq reads and writes the JSON.
#
# In ostler.toml:   [pool.texts]
#                   executor = "process"
#                   command = ["bash", "examples/worker.sh"]
# Then:             ostler submit texts count --payload '{"text":"to be or not"}' --wait
set -euo pipefail

# The socket to the node. No other process may inherit it, so every command below runs with `{node}>&-`.
node=${OSTLER_FD:?"this is a worker, and a node starts it"}
unset OSTLER_FD

# ask FILTER: the result of a jq filter on the last frame.
ask() { jq -r "$1" <<<"$frame" {node}>&-; }

# say TYPE FIELDS: sends a frame about the task. FIELDS is a jq object, evaluated on the task.
say() { jq -c "{type: \"$1\", id, token} + $2" <<<"$task" >&"$node" {node}>&-; }

# saved: waits until the node has confirmed a step. False if the task is no longer ours.
saved() {
    while read -r -u "$node" frame; do
        case $(ask .type) in
            saved) return 0 ;;
            lost | cancel) return 1 ;;
        esac
    done
    exit 1 # The node is gone.
}

# Runs one task and sends its one result.
count() {
    if [[ $(ask '.payload | objects | .text | type') != string ]]; then
        say result '{ok: false, error: {class: "permanent", message: "the payload has no text"}}'
        return
    fi
    if [[ $(ask '.steps | has("split")') == false ]]; then
        # A step counts only once it is saved. A later attempt has it in its steps, and skips this block.
        task=$(jq -c '.steps.split = [.payload.text | splits("\\s+") | select(. != "")]' <<<"$task" {node}>&-)
        say step '{name: "split", value: .steps.split}'
        saved || { say result '{ok: false, error: {message: "told to stop"}}' && return; }
    fi
    say progress '{done: (.steps.split | length), total: (.steps.split | length)}'
    echo "what is printed is in the task's log"
    say result '{ok: true, output: {words: (.steps.split | length)}}'
}

while read -r -u "$node" frame; do
    case $(ask .type) in
        hello) echo '{"type":"ready","protocol":1,"sdk":"bash","kinds":["count"]}' >&"$node" ;;
        task) task=$frame && count ;;
        stop) exit 0 ;;
    esac
done
