#!/bin/sh
# Builds the API server of Kubernetes from its module (test/kubeapiserver), and writes it and the resource definitions
# of KubeVirt and CDI to build/kube, for make test-kube. The build takes 15 minutes on two cores, once for each go.sum.
set -eu
cd "$(dirname "$0")/.."
mkdir -p build/kube
sum=$(sha256sum <test/kubeapiserver/go.sum | cut -d ' ' -f 1)
if [ "$(cat build/kube/kube-apiserver.sum 2>/dev/null)" != "$sum" ] || [ ! -x build/kube/kube-apiserver ]; then
	echo "kube: building the API server of Kubernetes, which takes 15 minutes" >&2
	(cd test/kubeapiserver && ${GO:-go} build -trimpath -ldflags '-s -w' -o ../../build/kube/kube-apiserver .)
	echo "$sum" >build/kube/kube-apiserver.sum # last: an interrupted build is repeated
fi
(cd test/kubevirt && ${GO:-go} run -trimpath ./crds) >build/kube/crds.json.new
mv build/kube/crds.json.new build/kube/crds.json
