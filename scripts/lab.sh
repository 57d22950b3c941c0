# Functions of scripts that use an emulated ESXi. They source this file, in the root of the project.
# shellcheck shell=bash

# start_lab FOLDER starts decamp-lab with FOLDER/config.json in the background, and waits until it accepts connections.
# $lab is its process. It writes its address and credentials to FOLDER/lab.json.
start_lab() {
	lab_folder=$1
	./decamp-lab --config "$lab_folder/config.json" --json >"$lab_folder/lab.json" &
	lab=$!
	for _ in $(seq 600); do
		[ ! -s "$lab_folder/lab.json" ] || return 0
		kill -0 "$lab" 2>/dev/null || break
		sleep 0.1
	done
	echo "decamp-lab did not start with $lab_folder/config.json" >&2
	return 1
}

# stop_lab ends the emulator that start_lab started, if any.
stop_lab() {
	[ -z "${lab:-}" ] || { kill "$lab" && wait "$lab"; } 2>/dev/null || :
}

# lab_value NAME prints a value of the host from lab.json: url, fingerprint or passwordFile. Later values with the same name
# belong to parts of the host.
lab_value() {
	grep -o "\"$1\":\"[^\"]*\"" "$lab_folder/lab.json" | head -n 1 | cut -d '"' -f 4
}
