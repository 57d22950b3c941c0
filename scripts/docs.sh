#!/usr/bin/env bash
# Builds the documentation site into build/site. A broken link or anchor, or a page without an entry in the
# navigation, fails the build.
set -euo pipefail
cd "$(dirname "$0")/.."
venv=build/mkdocs
if ! cmp -s scripts/docs-requirements.txt "$venv/requirements.txt"; then
	python3 -m venv --clear "$venv"
	"$venv/bin/pip" install -q -r scripts/docs-requirements.txt
	cp scripts/docs-requirements.txt "$venv/requirements.txt"
fi
NO_MKDOCS_2_WARNING=1 "$venv/bin/mkdocs" build -q --strict --clean
echo "docs: build/site/index.html"
