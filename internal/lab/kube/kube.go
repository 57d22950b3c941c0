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
	NoKubeVirt, NoCDI bool
	NoAsync           bool // CDI is so old that the proxy answers only when it is through
	NoProxyURL        bool // CDI reports no address of its proxy
	PortForward       bool // the proxy's certificate is of the name that CDI gives it, not of its address

	NotReady int // times that the proxy answers 503 to each upload
	TooOld   int // tokens that are refused
	Cut      int // uploads that are cut in the middle, each after one MiB
	Lose     int // uploads that are accepted and then lost: the pod restarts

	Hitch  string // state of VMs that should run, in place of Running, such as "ErrorUnschedulable"
	Passes int    // looks after which they run all the same; 0: they never do

	Stuck    bool                // volumes never get ready
	GiveUp   bool                // volumes end as Failed
	Small    int64               // bytes that volumes are smaller than requested
	Denied   map[string]bool     // "create virtualmachines", "get namespaces"
	Refuse   func(object) string // refusal of the admission for an object; empty accepts it
	Classes  []string            // storage classes
	Password string              // the token; "lab" if empty
}

type object = map[string]any

// Cluster is a running emulation. Its methods may be called concurrently.
type Cluster struct {
	config Config
	api    *httptest.Server
	proxy  *httptest.Server
	ca     []byte // PEM of who signed both

	mu      sync.Mutex
	objects map[string]*storedObject // objects by plural/namespace/name
	tokens  map[string]string
	serial  int
	tap     func(n int) Fate
	calls   int
}

// kept is an object and what the cluster does with it.
type storedObject struct {
	object   object
	looks    int // how often it was read: time goes by that
	gone     int // looks until it is gone; 0: it is not being deleted
	on       int // looks since it is to run, of a VM; 0: it is not to
	restarts int
	refused  int // uploads that were answered 503
	image    []byte
	taken    bool // the image is there
	done     bool // and written
}

// Fate is the result of a call.
type Fate int

// Fates.
const (
	Pass       Fate = iota // It is answered.
	Lost                   // The connection breaks before anything is done.
	Unanswered             // The connection breaks when all is done.
)

// Start starts a cluster on the loopback. It panics if that fails, as httptest does.
func Start(config Config) *Cluster {
	if config.Password == "" {
		config.Password = "lab"
	}
	c := &Cluster{config: config, objects: map[string]*storedObject{}, tokens: map[string]string{}}
	apiName, proxyName := "", ""
	if config.PortForward {
		proxyName = "cdi-uploadproxy"
	}
	var pairs [2]tls.Certificate
	c.ca, pairs = newCertificates(apiName, proxyName)
	c.api = c.startServer(pairs[0], c.serveAPI)
	c.proxy = c.startServer(pairs[1], c.serveUploadProxy)
	return c
}

// Close ends the cluster.
func (c *Cluster) Close() {
	c.api.CloseClientConnections()
	c.proxy.CloseClientConnections()
	c.api.Close()
	c.proxy.Close()
}

// Kubeconfig is how the cluster is reached, by a token.
func (c *Cluster) Kubeconfig() []byte { return c.KubeconfigWith(c.config.Password) }

// KubeconfigWith is Kubeconfig with another token.
func (c *Cluster) KubeconfigWith(token string) []byte {
	return fmt.Appendf(nil, `apiVersion: v1
kind: Config
current-context: lab
contexts: [{name: lab, context: {cluster: lab, user: lab, namespace: vms}}]
clusters: [{name: lab, cluster: {server: %q, certificate-authority-data: %s}}]
users: [{name: lab, user: {token: %q}}]
`, c.api.URL, base64.StdEncoding.EncodeToString(c.ca), token)
}

// Tap has hook asked about each call, before it is carried out: n counts from 1 since Tap. Nil lets all pass.
func (c *Cluster) Tap(hook func(n int) Fate) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.tap, c.calls = hook, 0
}

// Objects returns those of a plural, such as "datavolumes", in the order of their names.
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

// Put creates an object as another user.
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

// PowerOn starts an existing VM as another user, as virtctl does.
func (c *Cluster) PowerOn(namespace, name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	k := c.objects["virtualmachines/"+namespace+"/"+name]
	k.object["spec"].(object)["runStrategy"] = "Always"
	k.on = powered
	c.setVMStatus(k, "Running")
}

// PowerOff stops an existing VM as another user, as virtctl does: it is off at once.
func (c *Cluster) PowerOff(namespace, name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	k := c.objects["virtualmachines/"+namespace+"/"+name]
	k.object["spec"].(object)["runStrategy"] = "Halted"
	c.setVMStatus(k, "Stopped")
}

// Uploaded is what the volume holds; nil while CDI is not done with it.
func (c *Cluster) Uploaded(namespace, name string) []byte {
	c.mu.Lock()
	defer c.mu.Unlock()
	k := c.objects["datavolumes/"+namespace+"/"+name]
	if k == nil || !k.done {
		return nil
	}
	return k.image
}

func (c *Cluster) startServer(pair tls.Certificate, handle http.HandlerFunc) *httptest.Server {
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { c.applyTap(w, r, handle) }))
	s.TLS = &tls.Config{Certificates: []tls.Certificate{pair}}
	s.StartTLS()
	return s
}

// applyTap lets the tap decide the result of a call. Aborting a handler breaks its connection.
func (c *Cluster) applyTap(w http.ResponseWriter, r *http.Request, handle http.HandlerFunc) {
	c.mu.Lock()
	c.calls++
	n, hook := c.calls, c.tap
	c.mu.Unlock()
	fate := Pass
	if hook != nil {
		fate = hook(n)
	}
	switch fate {
	case Lost:
		panic(http.ErrAbortHandler)
	case Unanswered:
		handle(httptest.NewRecorder(), r)
		panic(http.ErrAbortHandler)
	}
	handle(w, r)
}

// newCertificates makes an authority and two certificates of it: for the loopback, or for a name.
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

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}
