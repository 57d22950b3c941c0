package vsphere

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// control is the JSON API by which another process controls the emulator. It requires no password and
// therefore listens only on loopback addresses.
type control struct {
	lab    *Lab         // emulator that it controls
	server *http.Server // HTTP server
	addr   string       // host:port of the server
	served chan error   // receives the result of Serve
}

// ControlURL returns the URL of the control API.
func (l *Lab) ControlURL() string { return "http://" + l.control.addr }

// startControl starts the control API of l. An address that is not loopback is an error.
func startControl(l *Lab) (*control, error) {
	ln, err := net.Listen("tcp", l.cfg.ControlAddr)
	if err != nil {
		return nil, fmt.Errorf("listen for the control API: %w", err)
	}
	if !ln.Addr().(*net.TCPAddr).IP.IsLoopback() { // the API has no authentication
		return nil, errors.Join(fmt.Errorf("control API: %s is not a loopback address", ln.Addr()), ln.Close())
	}
	c := &control{lab: l, addr: ln.Addr().String(), served: make(chan error, 1)}
	c.server = &http.Server{Handler: c.newMux(), ReadHeaderTimeout: 10 * time.Second}
	go func() { c.served <- c.server.Serve(ln) }()
	return c, nil
}

// close waits for requests, because a request may be restarting the emulator.
func (c *control) close() error {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	err := c.server.Shutdown(ctx)
	if err != nil {
		err = errors.Join(err, c.server.Close())
	}
	<-c.served
	return err
}

// Info is the response to GET / of the control API.
type Info struct {
	URL         string            `json:"url"`             // URL of the API
	Fingerprint string            `json:"fingerprint"`     // SHA-256 of the certificate
	User        string            `json:"user"`            // name of the account
	Hosts       map[string]string `json:"hosts,omitempty"` // host name to address, with Config.HostListeners
	VMs         []string          `json:"vms"`             // names of the VMs
	Limits      Limits            `json:"limits"`          // limits in force
	SSH         []SSHInfo         `json:"ssh"`             // the hosts' SSH servers
	Mounts      []Mount           `json:"mounts"`          // NFS datastores mounted at run time
	NFC         map[string]string `json:"nfc"`             // host name to the address of its NFC server
}

// SSHInfo is the SSH server of one host.
type SSHInfo struct {
	Host    string `json:"host"`           // name of the host in the inventory
	Addr    string `json:"addr,omitempty"` // empty while the service is off
	HostKey string `json:"hostKey"`        // public key in the format of authorized_keys
}

// labInfo returns the answer to GET /.
func (c *control) labInfo() Info {
	i := Info{URL: c.lab.URL(), Fingerprint: c.lab.Fingerprint(), User: c.lab.cfg.User, Limits: c.lab.currentLimits(), Hosts: map[string]string{}, NFC: map[string]string{}}
	for name, e := range c.lab.hosts {
		i.Hosts[name] = e.addr
	}
	for _, v := range c.lab.cfg.VMs {
		i.VMs = append(i.VMs, v.Name)
	}
	for _, h := range c.lab.sshHosts.all {
		i.SSH = append(i.SSH, SSHInfo{Host: h.name, Addr: c.lab.SSHAddr(h.name), HostKey: strings.TrimSpace(c.lab.SSHHostKey(h.name))})
	}
	i.Mounts = c.lab.Mounts()
	for _, h := range c.lab.nfcHosts.all {
		i.NFC[h.name] = h.addr
	}
	return i
}

// newMux returns the routes of the API.
func (c *control) newMux() *http.ServeMux {
	mux := http.NewServeMux()
	handle := func(pattern string, f func(*http.Request) (any, error)) {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) { writeResponse(w, r, f) })
	}
	act := func(pattern string, f func() error) {
		handle(pattern, func(*http.Request) (any, error) { return struct{}{}, f() })
	}
	handle("GET /{$}", func(*http.Request) (any, error) { return c.labInfo(), nil })
	handle("GET /stats", func(*http.Request) (any, error) { return c.lab.Stats(), nil })
	act("DELETE /stats", func() error { c.lab.ResetStats(); return nil })
	handle("GET /faults", func(*http.Request) (any, error) { return c.lab.faults.List(), nil })
	handle("POST /faults", c.postFault)
	handle("DELETE /faults/{id}", c.deleteFault)
	act("DELETE /faults", func() error { c.lab.faults.Clear(); return nil })
	act("POST /release", func() error { c.lab.faults.Release(); return nil })
	handle("PUT /limits", c.putLimits)
	handle("PUT /power/{vm}", c.putPower)
	handle("POST /writes/{vm}", c.postWrites)
	handle("PUT /nfc", c.putNFC)
	act("DELETE /nfc", func() error { c.lab.DropNFC(); return nil })
	act("POST /certificate", c.lab.ChangeCertificate)
	act("POST /restart", c.lab.Restart)
	act("POST /stop", c.lab.Stop)
	act("POST /resume", c.lab.Resume)
	handle("PUT /ssh", c.putSSH)
	act("DELETE /ssh", func() error { c.lab.DropSSH(); return nil })
	act("POST /powercut", func() error { c.lab.PowerCutHost(); return nil })
	act("POST /boot", c.lab.BootHost)
	act("POST /cutnfs", func() error { c.lab.CutNFS(); return nil })
	act("POST /healnfs", func() error { c.lab.HealNFS(); return nil })
	act("DELETE /sessions", func() error { c.lab.KillSessions(); return nil })
	return mux
}

// writeResponse writes the result of f as JSON. An error has status 400.
func writeResponse(w http.ResponseWriter, r *http.Request, f func(*http.Request) (any, error)) {
	v, err := f(r)
	w.Header().Set("Content-Type", "application/json")
	if err != nil {
		w.WriteHeader(http.StatusBadRequest)
		v = map[string]string{"error": err.Error()}
	}
	_ = json.NewEncoder(w).Encode(v) // fails if the client has disconnected
}

// decodeBody decodes the body of a request into v. Unknown fields are errors.
func decodeBody(r *http.Request, v any) error {
	dec := json.NewDecoder(r.Body)
	dec.DisallowUnknownFields()
	if err := dec.Decode(v); err != nil {
		return fmt.Errorf("decode request: %w", err)
	}
	return nil
}

// postFault adds a fault and returns its ID.
func (c *control) postFault(r *http.Request) (any, error) {
	var f Fault
	if err := decodeBody(r, &f); err != nil {
		return nil, err
	}
	id, err := c.lab.faults.Add(f)
	return map[string]int{"id": id}, err
}

// deleteFault removes a fault.
func (c *control) deleteFault(r *http.Request) (any, error) {
	id, err := strconv.Atoi(r.PathValue("id"))
	if err != nil {
		return nil, fmt.Errorf("fault id: %w", err)
	}
	c.lab.faults.Remove(id)
	return struct{}{}, nil
}

// putLimits changes the limits named in the request and keeps the others.
func (c *control) putLimits(r *http.Request) (any, error) {
	limits := c.lab.currentLimits()
	if err := decodeBody(r, &limits); err != nil {
		return nil, err
	}
	c.lab.SetLimits(limits)
	return limits, nil
}

// putPower switches a VM on or off.
func (c *control) putPower(r *http.Request) (any, error) {
	var want struct {
		On bool `json:"on"`
	}
	if err := decodeBody(r, &want); err != nil {
		return nil, err
	}
	return want, c.lab.SetPower(r.PathValue("vm"), want.On)
}

// putSSH starts or stops the SSH servers.
func (c *control) putSSH(r *http.Request) (any, error) {
	var want struct {
		On bool `json:"on"`
	}
	if err := decodeBody(r, &want); err != nil {
		return nil, err
	}
	return want, c.lab.SetSSH(want.On)
}

// postWrites makes a guest execute its next writes.
func (c *control) postWrites(r *http.Request) (any, error) {
	var want struct {
		Count int `json:"count"`
	}
	if err := decodeBody(r, &want); err != nil {
		return nil, err
	}
	return want, c.lab.GuestWrites(r.PathValue("vm"), want.Count)
}

// putNFC changes the NFC rules named in the request and keeps the others.
func (c *control) putNFC(r *http.Request) (any, error) {
	rules := c.lab.NFC()
	if err := decodeBody(r, &rules); err != nil {
		return nil, err
	}
	return rules, c.lab.SetNFC(rules)
}
