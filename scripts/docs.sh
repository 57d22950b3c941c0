#!/usr/bin/env bash
# Builds the documentation site into build/site. A broken link or anchor, or a page without an entry in the
# navigation, fails the build.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/docs-venv.sh
NO_MKDOCS_2_WARNING=1 "$venv/bin/mkdocs" build -q --strict --clean
echo "docs: build/site/index.html"
