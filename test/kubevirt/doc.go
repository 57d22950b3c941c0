// Package kubevirt judges what decamp writes for KubeVirt by the schemas that KubeVirt and CDI install
// in a cluster, with the code by which a cluster does: unknown fields are found, as a strict create
// finds them.
//
// The command crds prints those schemas for the tests that have a real API server (make test-kube).
//
// It is a module of its own, so that decamp does not depend on Kubernetes for its tests.
package kubevirt
