// Package kubevirt validates decamp's manifests for KubeVirt against the schemas that KubeVirt and CDI install in a
// cluster. It uses the validation code of Kubernetes and also reports unknown fields.
//
// The command crds prints those schemas for tests with a real API server (make test-kube).
//
// It is a separate module, so that decamp does not depend on Kubernetes for its tests.
package kubevirt
