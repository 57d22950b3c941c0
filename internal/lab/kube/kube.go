// Package kube is an emulated Kubernetes cluster with KubeVirt and CDI, as far as VM migrations use it: an API
// server that stores objects, and CDI's upload proxy, which stores uploads. It runs no VMs and checks no
// schema: test/kubevirt validates objects with the real ones.
//
//	c := kube.Start(kube.Config{})
//	defer c.Close()
//	os.WriteFile(path, c.Kubeconfig(), 0o600)
//	c.Uploaded("vms", "web01-disk0") // data that CDI would have written to the volume
//
// It misbehaves as real clusters do: volumes take a while to be ready, the proxy answers 503 until its pod
// listens, tokens expire, transfers are cut and the pod restarts, deleted objects stay until their dependents
// are gone. The behaviour is that of CDI 1.64's uploadproxy and uploadserver, and of the API conventions of
// Kubernetes, according to their sources.
package kube

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"maps"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"time"
)

// Config sets the behaviour of the cluster. With the zero value all operations succeed after a while.
type Config struct {
	NoKubeVirt, NoCDI bool // whether the API groups of KubeVirt and CDI are missing
	NoAsync           bool // whether CDI is so old that its proxy responds only after processing the image
	NoProxyURL        bool // whether CDI reports no address of its proxy
	PortForward       bool // whether the proxy's certificate is for CDI's service name, as with a forwarded port

	NotReady int // number of 503 responses of the proxy to each upload
	TooOld   int // number of tokens that are rejected as expired
	Cut      int // number of uploads that are cut, each after one MiB
	Lose     int // number of uploads that are accepted and lost by a restart of the pod

	Hitch  string // status of VMs that should run, such as "ErrorUnschedulable"; empty starts them
	Passes int    // requests after which such a VM runs after all; 0 is never

	Stuck    bool                // whether volumes stay in phase Pending
	GiveUp   bool                // whether volumes end in phase Failed
	Small    int64               // bytes by which volumes are smaller than requested
	Denied   map[string]bool     // denied operations, such as "create virtualmachines"
	Refuse   func(object) string // admission webhook: returns a reason, or empty to accept an object
	NoMultus bool                // whether there are no NetworkAttachmentDefinitions

	OwnNetworks bool // whether NetworkAttachmentDefinitions of all namespaces together are denied

	Classes  []string // names of the storage classes
	Password string   // bearer token; "lab" if empty
}

// object is an object of JSON.
type object = map[string]any

// Cluster is a running emulation. Its methods may be called concurrently.
type Cluster struct {
	config Config           // configuration; the counters in it decrease
	api    *httptest.Server // HTTPS server of the API
	proxy  *httptest.Server // HTTPS server of CDI's upload proxy
	ca     []byte           // certificate that signed both server certificates, PEM

	mu      sync.Mutex               // guards the fields below and the counters of config
	objects map[string]*storedObject // objects by address.key
	tokens  map[string]string        // volume of each upload token, as NAMESPACE/NAME
	serial  int                      // number of the newest UID, resource version or token
	tap     func(n int) Outcome      // decides the outcome of each call; nil lets all pass
	reads   []bool                   // calls since SetCallHook, by whether the call only reads
}

// A storedObject is an object with its state in the emulation. Cluster.mu guards its fields.
type storedObject struct {
	object   object // the object as the API returns it
	looks    int    // number of requests that read it, which is its age
	gone     int    // requests until it disappears; 0 if it is not being deleted
	on       int    // requests since a VM should run; 0 if it should not
	restarts int    // restarts of the upload pod
	refused  int    // uploads that were answered with 503
	image    []byte // uploaded image; nil before the upload
	taken    bool   // whether the image was received
	done     bool   // whether the image was written to the volume
}

// An Outcome is what happens to a call.
type Outcome int

// Fates.
const (
	Pass       Outcome = iota // The call is executed and answered.
	Lost                      // The connection breaks before the call is executed.
	Unanswered                // The call is executed, and the connection breaks before the response.
)

// Start starts a cluster on the loopback interface. It panics if that fails, as httptest does.
func Start(config Config) *Cluster {
	if config.Password == "" {
		config.Password = "lab"
	}
	c := &Cluster{config: config, objects: map[string]*storedObject{}, tokens: map[string]string{}}
	apiName, proxyName := "", ""
	if config.PortForward {
		proxyName = "cdi-uploadproxy" // service name of CDI
	}
	var pairs [2]tls.Certificate
	c.ca, pairs = newCertificates(apiName, proxyName)
	c.api = c.startServer(pairs[0], c.serveAPI)
	c.proxy = c.startServer(pairs[1], c.serveUploadProxy)
	return c
}

// Close breaks all connections and stops the servers.
func (c *Cluster) Close() {
	c.api.CloseClientConnections()
	c.proxy.CloseClientConnections()
	c.api.Close()
	c.proxy.Close()
}

// Kubeconfig returns a kubeconfig file for the cluster with the valid token.
func (c *Cluster) Kubeconfig() []byte { return c.KubeconfigWith(c.config.Password) }

// KubeconfigWith returns a kubeconfig file with another token.
func (c *Cluster) KubeconfigWith(token string) []byte {
	return fmt.Appendf(nil, `apiVersion: v1
kind: Config
current-context: lab
contexts: [{name: lab, context: {cluster: lab, user: lab, namespace: vms}}]
clusters: [{name: lab, cluster: {server: %q, certificate-authority-data: %s}}]
users: [{name: lab, user: {token: %q}}]
`, c.api.URL, base64.StdEncoding.EncodeToString(c.ca), token)
}

// SetCallHook calls hook before each call; n counts calls from 1 since then. A nil hook lets all calls pass.
func (c *Cluster) SetCallHook(hook func(n int) Outcome) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.tap, c.reads = hook, nil
}

// Reads reports whether the n-th call since SetCallHook is a request that only reads.
func (c *Cluster) Reads(n int) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.reads[n-1]
}

// Objects returns the objects of a resource, such as "datavolumes", sorted by namespace and name. They
// are not copies.
func (c *Cluster) Objects(plural string) (all []map[string]any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, key := range slices.Sorted(maps.Keys(c.objects)) {
		if strings.HasPrefix(key, plural+"/") {
			all = append(all, c.objects[key].object)
		}
	}
	return all
}

// Put creates or replaces an object as another user.
func (c *Cluster) Put(plural, namespace, name string, o map[string]any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.addObject(plural, namespace, name, o)
}

// Remove removes an object at once, as another user.
func (c *Cluster) Remove(plural, namespace, name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.objects, address{plural: plural, namespace: namespace, name: name}.key())
}

// PowerOn starts an existing VM as another user, like virtctl. The VM runs at once.
func (c *Cluster) PowerOn(namespace, name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	k := c.objects["virtualmachines/"+namespace+"/"+name]
	k.object["spec"].(object)["runStrategy"] = "Always"
	k.on = powered // skips the states before Running
	c.setVMStatus(k, "Running")
}

// PowerOff stops an existing VM as another user, like virtctl. The VM is off at once.
func (c *Cluster) PowerOff(namespace, name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	k := c.objects["virtualmachines/"+namespace+"/"+name]
	k.object["spec"].(object)["runStrategy"] = "Halted"
	c.setVMStatus(k, "Stopped")
}

// Uploaded returns the image in a volume; nil until CDI has written it.
func (c *Cluster) Uploaded(namespace, name string) []byte {
	c.mu.Lock()
	defer c.mu.Unlock()
	k := c.objects["datavolumes/"+namespace+"/"+name]
	if k == nil || !k.done {
		return nil
	}
	return k.image
}

// startServer starts an HTTPS server whose calls pass the tap.
func (c *Cluster) startServer(pair tls.Certificate, handle http.HandlerFunc) *httptest.Server {
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { c.applyTap(w, r, handle) }))
	s.TLS = &tls.Config{Certificates: []tls.Certificate{pair}}
	s.StartTLS()
	return s
}

// applyTap handles a call according to the tap. Aborting a handler breaks its connection.
func (c *Cluster) applyTap(w http.ResponseWriter, r *http.Request, handle http.HandlerFunc) {
	c.mu.Lock()
	c.reads = append(c.reads, r.Method == http.MethodGet)
	n, hook := len(c.reads), c.tap // the hook runs without mu
	c.mu.Unlock()
	outcome := Pass
	if hook != nil {
		outcome = hook(n)
	}
	switch outcome {
	case Lost:
		panic(http.ErrAbortHandler)
	case Unanswered:
		handle(httptest.NewRecorder(), r) // the response is lost
		panic(http.ErrAbortHandler)
	}
	handle(w, r)
}

// newCertificates returns an authority and two certificates that it signed. An empty name stands for
// the loopback addresses.
func newCertificates(names ...string) (ca []byte, pairs [2]tls.Certificate) {
	key := must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))
	root := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "lab"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().AddDate(1, 0, 0),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der := must(x509.CreateCertificate(rand.Reader, root, root, &key.PublicKey, key))
	for i, name := range names {
		leaf := &x509.Certificate{
			SerialNumber: big.NewInt(int64(i + 2)), NotBefore: root.NotBefore, NotAfter: root.NotAfter,
			KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		}
		if name == "" {
			leaf.IPAddresses = []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback}
		} else {
			leaf.DNSNames = []string{name}
		}
		own := must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))
		pairs[i] = tls.Certificate{PrivateKey: own, Certificate: [][]byte{must(x509.CreateCertificate(rand.Reader, leaf, root, &own.PublicKey, key))}}
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pairs
}

// must returns v, and panics if err is not nil.
func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}
