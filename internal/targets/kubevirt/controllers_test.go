//go:build kube

package kubevirt

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"encoding/pem"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// Controllers stand in for those of CDI, of KubeVirt and of Kubernetes: volumes get ready and take images, VMs
// start where somebody wants to see that, and what is deleted goes. They are seen through the real API server only: the status of objects is patched,
// finalizers are taken off, and upload tokens come from an API that the server aggregates.
type controllers struct {
	server *apiServer
	proxy  *httptest.Server // CDI's upload proxy
	tokens *httptest.Server // CDI's API server

	mu     sync.Mutex
	leave  map[string]string // namespace/name of a volume, by token
	images map[string][]byte // by namespace/name
	power  map[string]bool   // namespaces whose VMs start when they are to
}

// startControllers installs CDI's part in the cluster and plays it until the test ends.
func startControllers(t *testing.T, s *apiServer) *controllers {
	t.Helper()
	c := &controllers{server: s, leave: map[string]string{}, images: map[string][]byte{}, power: map[string]bool{}}
	c.proxy = httptest.NewTLSServer(http.HandlerFunc(c.receive))
	c.tokens = httptest.NewTLSServer(http.HandlerFunc(c.token))
	t.Cleanup(c.proxy.Close)
	t.Cleanup(c.tokens.Close)
	c.install(t)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for waitFor(ctx, 10*time.Millisecond) == nil {
			c.reconcile(ctx)
		}
	}()
	t.Cleanup(func() { cancel(); <-ended })
	return c
}

// install tells the cluster where the proxy is, and who gives out tokens.
func (c *controllers) install(t *testing.T) {
	t.Helper()
	c.server.put(t, "/apis/cdi.kubevirt.io/v1beta1/cdiconfigs", map[string]any{
		"apiVersion": "cdi.kubevirt.io/v1beta1", "kind": "CDIConfig", "metadata": map[string]any{"name": "config"}, "spec": map[string]any{},
		"status": map[string]any{"uploadProxyURL": strings.TrimPrefix(c.proxy.URL, "https://"), "uploadProxyCA": string(certificate(c.proxy))},
	})
	at, err := url.Parse(c.tokens.URL)
	if err != nil {
		t.Fatal(err)
	}
	port, err := strconv.Atoi(at.Port())
	if err != nil {
		t.Fatal(err)
	}
	c.server.put(t, "/api/v1/namespaces/default/services", map[string]any{
		"apiVersion": "v1", "kind": "Service", "metadata": map[string]any{"name": "cdi-api"},
		"spec": map[string]any{"type": "ExternalName", "externalName": at.Hostname()},
	})
	c.server.put(t, "/apis/apiregistration.k8s.io/v1/apiservices", map[string]any{
		"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService", "metadata": map[string]any{"name": "v1beta1.upload.cdi.kubevirt.io"},
		"spec": map[string]any{
			"group": "upload.cdi.kubevirt.io", "version": "v1beta1", "groupPriorityMinimum": 1000, "versionPriority": 15,
			"insecureSkipTLSVerify": true, "service": map[string]any{"namespace": "default", "name": "cdi-api", "port": port},
		},
	})
	c.server.eventually(t, "upload tokens are served", func() bool {
		code, _, err := c.server.send(t.Context(), http.MethodGet, "/apis/upload.cdi.kubevirt.io/v1beta1", "", nil)
		return err == nil && code == http.StatusOK
	})
}

// reconcile takes every object one step further. What fails is tried again with the next round.
func (c *controllers) reconcile(ctx context.Context) {
	for _, kind := range []string{"/apis/cdi.kubevirt.io/v1beta1/%datavolumes", "/apis/kubevirt.io/v1/%virtualmachines"} {
		_, text, err := c.server.send(ctx, http.MethodGet, strings.Replace(kind, "%", "", 1), "", nil)
		var list struct {
			Items []struct {
				Metadata struct {
					meta
					Deleted string `json:"deletionTimestamp"`
				} `json:"metadata"`
				Spec struct {
					RunStrategy string `json:"runStrategy"`
				} `json:"spec"`
				Status struct {
					Phase     string `json:"phase"`
					Printable string `json:"printableStatus"`
				} `json:"status"`
			} `json:"items"`
		}
		if err != nil || json.Unmarshal(text, &list) != nil {
			return
		}
		for _, o := range list.Items {
			m := o.Metadata
			path := strings.Replace(kind, "%", "namespaces/"+m.Namespace+"/", 1) + "/" + m.Name
			change := map[string]any{"metadata": map[string]any{"uid": m.UID, "finalizers": nil}}
			if m.Deleted == "" {
				status := c.volume(m.Namespace+"/"+m.Name, o.Status.Phase)
				if strings.Contains(kind, "virtualmachines") {
					status = c.machine(m.Namespace, o.Spec.RunStrategy, o.Status.Printable)
				}
				if status == nil {
					continue
				}
				path += "/status"
				change = map[string]any{"metadata": map[string]any{"uid": m.UID}, "status": status}
			}
			_, _, _ = c.server.send(ctx, http.MethodPatch, path, "application/merge-patch+json", change)
		}
	}
}

// volume is the status that a volume comes to; nil if it stays.
func (c *controllers) volume(volume, phase string) map[string]any {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case phase == "":
		delete(c.images, volume) // of an older one of that name
		return map[string]any{"phase": "Pending"}
	case phase == "Pending":
		return map[string]any{"phase": "UploadReady"}
	case phase == "UploadReady" && c.images[volume] != nil:
		return map[string]any{"phase": "Succeeded"}
	}
	return nil
}

// machine is the status that a VM comes to; nil if it stays.
func (c *controllers) machine(namespace, strategy, printable string) map[string]any {
	c.mu.Lock()
	defer c.mu.Unlock()
	next := map[string]string{"Halted": "Stopped", "Always": "Starting", "Always Starting": "Running"}
	at, ok := next[strategy+" "+printable]
	if !ok && printable != "Running" {
		at = next[strategy]
	}
	if !c.power[namespace] || at == "" || at == printable {
		return nil
	}
	return map[string]any{"printableStatus": at, "created": at != "Stopped"}
}

// start has the VMs of a namespace start when they are to.
func (c *controllers) start(namespace string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.power[namespace] = true
}

// token is CDI's API server. Kubernetes' asks it for what it has, and passes requests on.
func (c *controllers) token(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	parts := strings.Split(r.URL.Path, "/") // /apis/GROUP/VERSION/namespaces/NAMESPACE/PLURAL
	if r.Method != http.MethodPost || len(parts) != 7 {
		_ = json.NewEncoder(w).Encode(map[string]any{
			"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": "upload.cdi.kubevirt.io/v1beta1",
			"resources": []map[string]any{{"name": "uploadtokenrequests", "namespaced": true, "kind": "UploadTokenRequest", "verbs": []string{"create"}}},
		})
		return
	}
	var request map[string]any
	if json.NewDecoder(r.Body).Decode(&request) != nil {
		http.Error(w, "no JSON", http.StatusBadRequest)
		return
	}
	token := rand.Text()
	c.mu.Lock()
	c.leave[token] = parts[5] + "/" + request["spec"].(map[string]any)["pvcName"].(string)
	c.mu.Unlock()
	request["status"] = map[string]any{"token": token}
	w.WriteHeader(http.StatusCreated)
	_ = json.NewEncoder(w).Encode(request) // who is gone needs no answer
}

// receive is the upload proxy.
func (c *controllers) receive(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodPost {
		return
	}
	image, err := io.ReadAll(r.Body)
	c.mu.Lock()
	defer c.mu.Unlock()
	volume := c.leave[strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")]
	switch {
	case volume == "":
		w.WriteHeader(http.StatusUnauthorized)
	case err != nil || int64(len(image)) != r.ContentLength:
		w.WriteHeader(http.StatusInternalServerError)
	default:
		c.images[volume] = image
	}
}

// image is what a volume holds.
func (c *controllers) image(namespace, name string) []byte {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.images[namespace+"/"+name]
}

func certificate(s *httptest.Server) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})
}

// eventually waits for what takes the API server a while.
func (s *apiServer) eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	for deadline := time.Now().Add(startup); !is(); {
		if time.Now().After(deadline) {
			t.Fatalf("never: %s", what)
		}
		if err := waitFor(t.Context(), 50*time.Millisecond); err != nil {
			t.Fatal(err)
		}
	}
}
