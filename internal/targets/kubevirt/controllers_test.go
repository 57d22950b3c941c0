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

// fakeControllers replace the controllers of CDI, KubeVirt and Kubernetes. They make volumes ready, receive images,
// start VMs in the namespaces for which a test enables it, and remove deleted objects. They use only the API of the
// real server. They patch the status of objects and remove finalizers. An aggregated API returns the upload tokens.
type fakeControllers struct {
	server *apiServer
	proxy  *httptest.Server // CDI's upload proxy
	tokens *httptest.Server // CDI's API server

	mu            sync.Mutex
	volumeByToken map[string]string // namespace/name of a volume
	images        map[string][]byte // images by namespace/name
	startEnabled  map[string]bool   // namespaces whose VMs can start
}

// startControllers installs the API of CDI and runs the controllers until the test ends.
func startControllers(t *testing.T, s *apiServer) *fakeControllers {
	t.Helper()
	c := &fakeControllers{server: s, volumeByToken: map[string]string{}, images: map[string][]byte{}, startEnabled: map[string]bool{}}
	c.proxy = httptest.NewTLSServer(http.HandlerFunc(c.serveUpload))
	c.tokens = httptest.NewTLSServer(http.HandlerFunc(c.serveTokens))
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

// install registers the proxy and the API server for tokens with the cluster.
func (c *fakeControllers) install(t *testing.T) {
	t.Helper()
	c.server.create(t, "/apis/cdi.kubevirt.io/v1beta1/cdiconfigs", map[string]any{
		"apiVersion": "cdi.kubevirt.io/v1beta1", "kind": "CDIConfig", "metadata": map[string]any{"name": "config"}, "spec": map[string]any{},
		"status": map[string]any{"uploadProxyURL": strings.TrimPrefix(c.proxy.URL, "https://"), "uploadProxyCA": string(certificatePEM(c.proxy))},
	})
	at, err := url.Parse(c.tokens.URL)
	if err != nil {
		t.Fatal(err)
	}
	port, err := strconv.Atoi(at.Port())
	if err != nil {
		t.Fatal(err)
	}
	c.server.create(t, "/api/v1/namespaces/default/services", map[string]any{
		"apiVersion": "v1", "kind": "Service", "metadata": map[string]any{"name": "cdi-api"},
		"spec": map[string]any{"type": "ExternalName", "externalName": at.Hostname()},
	})
	c.server.create(t, "/apis/apiregistration.k8s.io/v1/apiservices", map[string]any{
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

// reconcile takes every object one step further. A failed request is repeated in the next round.
func (c *fakeControllers) reconcile(ctx context.Context) {
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
				status := c.volumeStatus(m.Namespace+"/"+m.Name, o.Status.Phase)
				if strings.Contains(kind, "virtualmachines") {
					status = c.vmStatus(m.Namespace, o.Spec.RunStrategy, o.Status.Printable)
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

// volumeStatus returns the next status of a volume, or nil if it does not change.
func (c *fakeControllers) volumeStatus(volume, phase string) map[string]any {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case phase == "":
		delete(c.images, volume) // content of an older volume with this name
		return map[string]any{"phase": "Pending"}
	case phase == "Pending":
		return map[string]any{"phase": "UploadReady"}
	case phase == "UploadReady" && c.images[volume] != nil:
		return map[string]any{"phase": "Succeeded"}
	}
	return nil
}

// vmStatus returns the next status of a VM, or nil if it does not change.
func (c *fakeControllers) vmStatus(namespace, strategy, printable string) map[string]any {
	c.mu.Lock()
	defer c.mu.Unlock()
	next := map[string]string{"Halted": "Stopped", "Always": "Starting", "Always Starting": "Running"}
	at, ok := next[strategy+" "+printable]
	if !ok && printable != "Running" {
		at = next[strategy]
	}
	if !c.startEnabled[namespace] || at == "" || at == printable {
		return nil
	}
	return map[string]any{"printableStatus": at, "created": at != "Stopped"}
}

// enableStart makes the VMs of a namespace start according to their run strategy.
func (c *fakeControllers) enableStart(namespace string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.startEnabled[namespace] = true
}

// serveTokens is CDI's API server. The Kubernetes API server queries its resources and forwards requests to it.
func (c *fakeControllers) serveTokens(w http.ResponseWriter, r *http.Request) {
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
	c.volumeByToken[token] = parts[5] + "/" + request["spec"].(map[string]any)["pvcName"].(string)
	c.mu.Unlock()
	request["status"] = map[string]any{"token": token}
	w.WriteHeader(http.StatusCreated)
	_ = json.NewEncoder(w).Encode(request) // the client may have disconnected
}

// serveUpload is the upload proxy.
func (c *fakeControllers) serveUpload(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodPost {
		return
	}
	image, err := io.ReadAll(r.Body)
	c.mu.Lock()
	defer c.mu.Unlock()
	volume := c.volumeByToken[strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")]
	switch {
	case volume == "":
		w.WriteHeader(http.StatusUnauthorized)
	case err != nil || int64(len(image)) != r.ContentLength:
		w.WriteHeader(http.StatusInternalServerError)
	default:
		c.images[volume] = image
	}
}

// uploadedImage returns the content of a volume.
func (c *fakeControllers) uploadedImage(namespace, name string) []byte {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.images[namespace+"/"+name]
}

func certificatePEM(s *httptest.Server) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})
}

// eventually waits until the API server has processed a change.
func (s *apiServer) eventually(t *testing.T, condition string, done func() bool) {
	t.Helper()
	for deadline := time.Now().Add(startupTimeout); !done(); {
		if time.Now().After(deadline) {
			t.Fatalf("timeout while waiting until %s", condition)
		}
		if err := waitFor(t.Context(), 50*time.Millisecond); err != nil {
			t.Fatal(err)
		}
	}
}
