// Package kubevirt validates decamp's manifests for KubeVirt against the schemas that KubeVirt and CDI
// install in a cluster, with the code of a cluster. Unknown fields are found, as a strict create does.
//
// The command crds prints those schemas for the tests that have a real API server (make test-kube).
//
// It is a separate module, so that decamp does not depend on Kubernetes for its tests.
package kubevirt
