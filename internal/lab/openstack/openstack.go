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
	Flavors   []Flavor  // sizes of servers; a default set if nil
	Networks  []Network // networks of the project; lan and dmz if nil
	Roles     []string  // roles of the account; member if nil
	Gigabytes int       // quota of all volumes, GiB; 1000 if 0, none if negative
	Volumes   int       // quota of volumes; 100 if 0
	Servers   int       // quota of servers; 10 if 0
	Hash      string    // hash algorithm of Glance: sha512 or sha256; sha512 if empty
	Forgetful bool      // whether Cinder copies no properties of images to volumes
	Clones    bool      // whether volumes are clones of their images, which then cannot be deleted first
	Owned     bool      // whether networks belong to another project: only an admin may choose addresses

	TokenCalls int // calls for which a token is valid; 0 is unlimited
	EndUploads int // number of uploads during which the token is revoked
	CutUploads int // number of uploads whose connection is cut
	Damage     int // number of uploads in which one bit is changed
	BadVolumes int // number of volumes whose creation ends in error
	BadServers int // number of servers whose build ends in ERROR
	Late       int // number of lists that omit a new volume
}

// A Flavor is a size of servers.
type Flavor struct {
	ID, Name        string // identifier and name
	CPUs, RAM, Disk int    // processors, memory in MiB, root disk in GiB
}

// A Network is a network with at most one IPv4 subnet.
type Network struct {
	ID, Name string // identifier and name
	CIDR     string // address range of the subnet; empty if the network has none
}

// Cloud is a running emulation. Its methods may be called concurrently.
type Cloud struct {
	config Config           // configuration with defaults; the counters in it decrease
	server *httptest.Server // HTTPS server of all services
	ca     []byte           // certificate of the authority, PEM

	mu      sync.Mutex         // guards the fields below and the counters of config
	serial  int                // number of the newest ID
	tokens  map[string]int     // number of calls by token
	images  map[string]*image  // images by ID, including deleted ones
	volumes map[string]*volume // volumes by ID
	ports   map[string]*port   // ports by ID
	servers map[string]*server // servers by ID
	faults  []Fault            // answers of Trouble; those with Times 0 are used up
}

// Project is the ID of the only project.
const Project = "0123456789abcdef0123456789abcdef"

// Secrets of the account, which must not be seen anywhere.
const (
	Password = "correct horse battery staple" // password of the user mover
	Secret   = "application-secret-0815"      // secret of the application credential app1
)

// Start starts a cloud on the loopback interface. It panics if that fails, as httptest does.
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

// orDefault returns n, or otherwise if n is 0.
func orDefault(n, otherwise int) int {
	if n == 0 {
		return otherwise
	}
	return n
}

// Close stops the cloud and waits for its requests.
func (c *Cloud) Close() { c.server.Close() }

// CA returns the certificate of the authority that signed the cloud's certificate, in PEM.
func (c *Cloud) CA() []byte { return c.ca }

// AuthURL returns the URL of Keystone.
func (c *Cloud) AuthURL() string { return c.server.URL + "/identity" }

// CloudsYAML returns a clouds.yaml with two entries for this cloud: lab with a password and app with an
// application credential. ca is the path of a file with the certificate of CA.
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

// A Fault is an answer that the cloud gives in place of the correct one.
type Fault struct {
	Method, Path string // HTTP method, and a part of the URL's path
	Status       int    // HTTP status of the answer
	Body         string // body of the answer
	RetryAfter   string // value of the header Retry-After; empty omits it
	Times        int    // number of calls to answer; 0 answers none
}

// InjectFault makes the next matching calls receive the answer of f. An earlier fault takes precedence.
func (c *Cloud) InjectFault(f Fault) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.faults = append(c.faults, f)
}

// ClearFaults removes all faults that are not used up.
func (c *Cloud) ClearFaults() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.faults = nil
}

// newID returns a new UUID. IDs increase, so that sorting by ID is sorting by age. mu must be held.
func (c *Cloud) newID() string {
	c.serial++
	return fmt.Sprintf("%08x-0000-4000-8000-%012x", c.serial, c.serial)
}

// serveRequest answers all requests. It holds mu for the whole request, except while an upload is read.
func (c *Cloud) serveRequest(w http.ResponseWriter, r *http.Request) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.applyFault(w, r) { // faults take precedence over authentication
		return
	}
	service, rest, _ := strings.Cut(strings.Trim(r.URL.Path, "/"), "/")
	parts := strings.Split(rest, "/")
	if service == "identity" {
		c.serveKeystone(w, r, parts)
		return
	}
	if serveVersions(w, service, rest, r) { // requires no token
		return
	}
	if !c.checkToken(w, r) {
		return
	}
	switch service {
	case "image":
		imageAPI{c}.serve(w, r, parts[1:]) // without the version
	case "volume":
		volumeAPI{c}.serve(w, r, parts[2:]) // without version and project
	case "network":
		networkAPI{c}.serve(w, r, parts[1:])
	case "compute":
		computeAPI{c}.serve(w, r, parts[1:])
	default:
		writeError(w, http.StatusNotFound, "itemNotFound", "The resource could not be found.")
	}
}

// applyFault writes the answer of the first matching fault and returns true, or returns false. mu must
// be held.
func (c *Cloud) applyFault(w http.ResponseWriter, r *http.Request) bool {
	for i := range c.faults {
		f := &c.faults[i]
		if f.Times == 0 || f.Method != r.Method || !strings.Contains(r.URL.Path, f.Path) { // used up, or another call
			continue
		}
		f.Times-- // mu is held
		if f.RetryAfter != "" {
			w.Header().Set("Retry-After", f.RetryAfter)
		}
		w.WriteHeader(f.Status)
		_, _ = w.Write([]byte(f.Body)) // fails if the client has disconnected
		return true
	}
	return false
}

// serveVersions answers requests for the version of a service, which need no token. It returns false
// for other requests.
func serveVersions(w http.ResponseWriter, service, rest string, r *http.Request) bool {
	said := map[string]map[string]string{"image": {"": "v2.15"}, "network": {"": "v2.0"}, "volume": {"v3": "v3.0"}, "compute": {"v2.1": "v2.1"}}
	id, ok := said[service][strings.Trim(rest, "/")]
	if !ok || r.Method != http.MethodGet {
		return false
	}
	writeJSON(w, http.StatusOK, object{"versions": []object{{"id": id, "status": "CURRENT", "version": "", "min_version": ""}}})
	return true
}

// object is an object of JSON.
type object = map[string]any

// writeJSON writes a response with a body of JSON.
func writeJSON(w http.ResponseWriter, status int, what any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(what) // fails if the client has disconnected
}

// writeError writes an error in the format of Nova and Cinder.
func writeError(w http.ResponseWriter, status int, kind, message string) {
	writeJSON(w, status, object{kind: object{"code": status, "message": message}})
}

// decodeBody decodes at most 1 MiB of JSON into a value. On error it writes a response of status 400
// and returns false.
func decodeBody(w http.ResponseWriter, r *http.Request, into any) bool {
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, 1<<20)).Decode(into); err != nil {
		writeError(w, http.StatusBadRequest, "badRequest", "Malformed request body: "+err.Error())
		return false
	}
	return true
}

// newCertificate returns a self-signed pair for 127.0.0.1 and its certificate in PEM. It panics if the
// system has no randomness.
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
