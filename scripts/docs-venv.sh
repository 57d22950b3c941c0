# shellcheck shell=bash
# Installs the pinned Python packages of the documentation into build/mkdocs. docs.sh and screens.sh read this file.
# shellcheck disable=SC2034 # the scripts that read this file use it
venv=build/mkdocs
if ! cmp -s scripts/docs-requirements.txt "$venv/requirements.txt"; then
	python3 -m venv --clear "$venv"
	"$venv/bin/pip" install -q -r scripts/docs-requirements.txt
	cp scripts/docs-requirements.txt "$venv/requirements.txt"
fi
