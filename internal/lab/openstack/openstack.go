// Package openstack is an emulated OpenStack cloud, as far as VM migrations use it: Keystone, Glance, Cinder,
// Neutron and Nova at one address. It stores uploads, so that a test can compare them; it runs no servers.
//
//	c := openstack.Start(openstack.Config{})
//	defer c.Close()
//	os.WriteFile(path, c.CloudsYAML(caPath), 0o600)
//	c.Volumes()[0].Data // data that the guest would read
//
// It misbehaves as real clouds do: volumes take several requests to be created and deleted, and may end in
// error; lists do not show new objects at once; tokens expire, also during an upload; each service refuses
// quotas in a different way; an image cannot be deleted while volumes are clones of it. Time advances with
// requests. The behaviour is that of the API references and of the services' sources of 2024; no code was
// copied from them.
package openstack

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"time"
)

// Config sets the behaviour of the cloud. With the zero value all operations succeed after a while.
type Config struct {
	Flavors   []Flavor  // some if nil
	Networks  []Network // lan and dmz if nil
	Roles     []string  // roles of the account; member if nil
	Gigabytes int       // quota of all volumes, GiB; 1000 if 0, none if negative
	Volumes   int       // quota of volumes; 100 if 0
	Servers   int       // quota of servers; 10 if 0
	Hash      string    // Glance's algorithm; sha512 if empty
	Forgetful bool      // Cinder takes no properties of images over
	Clones    bool      // volumes are clones of their images, which cannot be deleted before them
	Owned     bool      // networks belong to another project: only an admin may select addresses

	TokenCalls int // calls that a token is good for; 0: any number
	EndUploads int // uploads in whose middle the token ends
	CutUploads int // uploads that are cut off
	Damage     int // uploads in which one byte is changed
	BadVolumes int // volumes that end in error
	BadServers int // servers that end in error
	Late       int // lists that do not show a volume that was just made
}

// A Flavor is a size of servers.
type Flavor struct {
	ID, Name        string
	CPUs, RAM, Disk int // MiB, GiB
}

// A Network is one that ports can be on.
type Network struct {
	ID, Name string
	CIDR     string // CIDR of its subnet; none if empty
}

// Cloud is a running emulation. Its methods may be called concurrently.
type Cloud struct {
	config Config
	server *httptest.Server
	ca     []byte // PEM

	mu      sync.Mutex
	serial  int
	tokens  map[string]int // calls that were made
	images  map[string]*image
	volumes map[string]*volume
	ports   map[string]*port
	servers map[string]*server
	faults  []Fault
}

// Project is the only one.
const Project = "0123456789abcdef0123456789abcdef"

// Secrets of the account, which must not be seen anywhere.
const (
	Password = "correct horse battery staple"
	Secret   = "application-secret-0815"
)

// Start starts a cloud on the loopback. It panics if that fails, as httptest does.
func Start(config Config) *Cloud {
	if config.Flavors == nil {
		config.Flavors = []Flavor{
			{"1", "m1.tiny", 1, 512, 1}, {"2", "m1.small", 1, 2048, 20}, {"3", "m1.medium", 2, 4096, 40},
			{"v2", "v2.256", 2, 256, 0}, {"v4", "v4.768", 4, 768, 0}, {"d4", "d4.768", 4, 768, 10},
		}
	}
	if config.Networks == nil {
		config.Networks = []Network{{"aaaaaaaa-0000-4000-8000-000000000001", "lan", "10.1.0.0/16"}, {"aaaaaaaa-0000-4000-8000-000000000002", "dmz", ""}}
	}
	if config.Roles == nil {
		config.Roles = []string{"member", "reader"}
	}
	config.Gigabytes, config.Volumes, config.Servers = orDefault(config.Gigabytes, 1000), orDefault(config.Volumes, 100), orDefault(config.Servers, 10)
	if config.Hash == "" {
		config.Hash = "sha512"
	}
	c := &Cloud{
		config: config, tokens: map[string]int{}, images: map[string]*image{}, volumes: map[string]*volume{},
		ports: map[string]*port{}, servers: map[string]*server{},
	}
	pair, ca := newCertificate()
	c.ca = ca
	c.server = httptest.NewUnstartedServer(http.HandlerFunc(c.serveRequest))
	c.server.TLS = &tls.Config{Certificates: []tls.Certificate{pair}}
	c.server.StartTLS()
	return c
}

func orDefault(n, otherwise int) int {
	if n == 0 {
		return otherwise
	}
	return n
}

// Close ends the cloud.
func (c *Cloud) Close() { c.server.Close() }

// CA is the certificate of the authority that signed the cloud's.
func (c *Cloud) CA() []byte { return c.ca }

// AuthURL is where Keystone answers.
func (c *Cloud) AuthURL() string { return c.server.URL + "/identity" }

// CloudsYAML is a clouds.yaml with this cloud by the names lab, with a password, and app, with an application
// credential. ca is the file that CA was written to.
func (c *Cloud) CloudsYAML(ca string) []byte {
	return fmt.Appendf(nil, `clouds:
  lab:
    auth: {auth_url: %q, username: mover, password: %q, project_name: vms, user_domain_name: Default, project_domain_name: Default}
    region_name: RegionOne
    cacert: %q
  app:
    auth_type: v3applicationcredential
    auth: {auth_url: %q, application_credential_id: app1, application_credential_secret: %q}
    region_name: RegionOne
    verify: false
`, c.AuthURL(), Password, ca, c.AuthURL(), Secret)
}

// A Fault is an answer in place of the right one.
type Fault struct {
	Method, Path string // Path is part of it
	Status       int
	Body         string
	RetryAfter   string
	Times        int
}

// Trouble has the next calls that match answered so.
func (c *Cloud) Trouble(f Fault) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.faults = append(c.faults, f)
}

// Quiet forgets all trouble that has not come yet.
func (c *Cloud) Quiet() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.faults = nil
}

// newID makes the ID of something.
func (c *Cloud) newID() string {
	c.serial++
	return fmt.Sprintf("%08x-0000-4000-8000-%012x", c.serial, c.serial)
}

// serveRequest is the whole cloud.
func (c *Cloud) serveRequest(w http.ResponseWriter, r *http.Request) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.applyFault(w, r) {
		return
	}
	service, rest, _ := strings.Cut(strings.Trim(r.URL.Path, "/"), "/")
	parts := strings.Split(rest, "/")
	if service == "identity" {
		c.serveKeystone(w, r, parts)
		return
	}
	if serveVersions(w, service, rest, r) {
		return
	}
	if !c.checkToken(w, r) {
		return
	}
	switch service {
	case "image":
		imageAPI{c}.serve(w, r, parts[1:])
	case "volume":
		volumeAPI{c}.serve(w, r, parts[2:])
	case "network":
		networkAPI{c}.serve(w, r, parts[1:])
	case "compute":
		computeAPI{c}.serve(w, r, parts[1:])
	default:
		writeError(w, http.StatusNotFound, "itemNotFound", "The resource could not be found.")
	}
}

func (c *Cloud) applyFault(w http.ResponseWriter, r *http.Request) bool {
	for i := range c.faults {
		f := &c.faults[i]
		if f.Times == 0 || f.Method != r.Method || !strings.Contains(r.URL.Path, f.Path) {
			continue
		}
		f.Times--
		if f.RetryAfter != "" {
			w.Header().Set("Retry-After", f.RetryAfter)
		}
		w.WriteHeader(f.Status)
		_, _ = w.Write([]byte(f.Body)) // fails if the client has disconnected
		return true
	}
	return false
}

// serveVersions returns each service's description without authentication.
func serveVersions(w http.ResponseWriter, service, rest string, r *http.Request) bool {
	said := map[string]map[string]string{"image": {"": "v2.15"}, "network": {"": "v2.0"}, "volume": {"v3": "v3.0"}, "compute": {"v2.1": "v2.1"}}
	id, ok := said[service][strings.Trim(rest, "/")]
	if !ok || r.Method != http.MethodGet {
		return false
	}
	writeJSON(w, http.StatusOK, object{"versions": []object{{"id": id, "status": "CURRENT", "version": "", "min_version": ""}}})
	return true
}

type object = map[string]any

func writeJSON(w http.ResponseWriter, status int, what any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(what) // fails if the client has disconnected
}

// writeError answers as Nova and Cinder do.
func writeError(w http.ResponseWriter, status int, kind, message string) {
	writeJSON(w, status, object{kind: object{"code": status, "message": message}})
}

func decodeBody(w http.ResponseWriter, r *http.Request, into any) bool {
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, 1<<20)).Decode(into); err != nil {
		writeError(w, http.StatusBadRequest, "badRequest", "Malformed request body: "+err.Error())
		return false
	}
	return true
}

// newCertificate returns a pair for the loopback, and the authority that signed it.
func newCertificate() (tls.Certificate, []byte) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		panic(err)
	}
	t := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "OpenStack lab"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().AddDate(1, 0, 0), IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, t, t, &key.PublicKey, key)
	if err != nil {
		panic(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}
