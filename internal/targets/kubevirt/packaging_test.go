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

// collections are the paths of the kinds that the manifests of decamp itself have.
var collections = map[string]string{
	"Service":             "/api/v1/namespaces/decamp/services",
	"Deployment":          "/apis/apps/v1/namespaces/decamp/deployments",
	"StatefulSet":         "/apis/apps/v1/namespaces/decamp/statefulsets",
	"PodDisruptionBudget": "/apis/policy/v1/namespaces/decamp/poddisruptionbudgets",
	"NetworkPolicy":       "/apis/networking.k8s.io/v1/namespaces/decamp/networkpolicies",
}

// The API server accepts the manifests of packaging/kubernetes, strictly. Its admission accepts their pods in a
// namespace that enforces the pod security standard restricted, and refuses a privileged one.
func TestRealAPIServerTakesThePackaging(t *testing.T) {
	s := startAPIServer(t)
	s.put(t, "/api/v1/namespaces", map[string]any{"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{
		"name": "decamp", "labels": map[string]any{"pod-security.kubernetes.io/enforce": "restricted"},
	}})
	text, err := os.ReadFile("../../../packaging/kubernetes/decamp.yaml")
	if err != nil {
		t.Fatal(err)
	}
	const strictly = "?fieldValidation=Strict"
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
		made := s.put(t, path+strictly, o)
		template, isWorkload := made["spec"].(map[string]any)["template"].(map[string]any)
		if !isWorkload {
			continue
		}
		pods++
		spec := template["spec"].(map[string]any)
		if kind == "StatefulSet" { // its controller adds volumes of the claims
			for _, name := range []string{"state", "images"} {
				spec["volumes"] = append(spec["volumes"].([]any), map[string]any{"name": name, "emptyDir": map[string]any{}})
			}
		}
		pod := map[string]any{"apiVersion": "v1", "kind": "Pod", "metadata": map[string]any{"generateName": "decamp-"}, "spec": spec}
		s.put(t, "/api/v1/namespaces/decamp/pods"+strictly, pod)
		spec["hostNetwork"] = true
		code, answer, err := s.send(t.Context(), http.MethodPost, "/api/v1/namespaces/decamp/pods"+strictly, "application/json", pod)
		if err != nil || code != http.StatusForbidden {
			t.Errorf("a pod in the network of its node: %d %s, %v", code, answer, err)
		}
	}
	if pods != 2 {
		t.Errorf("%d workloads", pods)
	}
}
