//go:build kube

package kubevirt

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"os"
	"testing"

	"go.yaml.in/yaml/v3"
)

// collections are the API paths for the kinds in decamp's manifests.
var collections = map[string]string{
	"Service":             "/api/v1/namespaces/decamp/services",
	"Deployment":          "/apis/apps/v1/namespaces/decamp/deployments",
	"StatefulSet":         "/apis/apps/v1/namespaces/decamp/statefulsets",
	"PodDisruptionBudget": "/apis/policy/v1/namespaces/decamp/poddisruptionbudgets",
	"NetworkPolicy":       "/apis/networking.k8s.io/v1/namespaces/decamp/networkpolicies",
}

// The API server accepts the manifests of packaging/kubernetes with strict validation. It accepts their pods in a
// namespace with the pod security standard "restricted", and refuses pods with the host's network.
func TestRealAPIServerAcceptsPackaging(t *testing.T) {
	s := startAPIServer(t)
	s.create(t, "/api/v1/namespaces", map[string]any{"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{
		"name": "decamp", "labels": map[string]any{"pod-security.kubernetes.io/enforce": "restricted"},
	}})
	text, err := os.ReadFile("../../../packaging/kubernetes/decamp.yaml")
	if err != nil {
		t.Fatal(err)
	}
	const strict = "?fieldValidation=Strict"
	documents, pods := yaml.NewDecoder(bytes.NewReader(text)), 0
	for {
		var o map[string]any
		if err := documents.Decode(&o); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		kind, _ := o["kind"].(string)
		path, known := collections[kind]
		if !known {
			t.Fatalf("an object of the unknown kind %q", kind)
		}
		created := s.create(t, path+strict, o)
		template, isWorkload := created["spec"].(map[string]any)["template"].(map[string]any)
		if !isWorkload {
			continue
		}
		pods++
		spec := template["spec"].(map[string]any)
		if kind == "StatefulSet" { // the controller adds the volumes of the claims
			for _, name := range []string{"state", "images"} {
				spec["volumes"] = append(spec["volumes"].([]any), map[string]any{"name": name, "emptyDir": map[string]any{}})
			}
		}
		pod := map[string]any{"apiVersion": "v1", "kind": "Pod", "metadata": map[string]any{"generateName": "decamp-"}, "spec": spec}
		s.create(t, "/api/v1/namespaces/decamp/pods"+strict, pod)
		spec["hostNetwork"] = true
		code, answer, err := s.send(t.Context(), http.MethodPost, "/api/v1/namespaces/decamp/pods"+strict, "application/json", pod)
		if err != nil || code != http.StatusForbidden {
			t.Errorf("a pod with hostNetwork: got %d %s, %v, want forbidden", code, answer, err)
		}
	}
	if pods != 2 {
		t.Errorf("got %d workloads, want 2", pods)
	}
}
