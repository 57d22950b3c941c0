package lab

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

// control is the JSON API by which another process drives the lab. It asks for no password
// and therefore listens on loopback alone.
type control struct {
	server *http.Server
	addr   string
	served chan error
}

// ControlURL is the address of the control API.
func (l *Lab) ControlURL() string { return "http://" + l.control.addr }

func (l *Lab) startControl() error {
	ln, err := net.Listen("tcp", l.cfg.ControlAddr)
	if err != nil {
		return fmt.Errorf("listen for the control API: %w", err)
	}
	if !ln.Addr().(*net.TCPAddr).IP.IsLoopback() {
		return errors.Join(fmt.Errorf("control API: %s is not a loopback address", ln.Addr()), ln.Close())
	}
	c := &control{addr: ln.Addr().String(), served: make(chan error, 1)}
	c.server = &http.Server{Handler: l.controlMux(), ReadHeaderTimeout: 10 * time.Second}
	go func() { c.served <- c.server.Serve(ln) }()
	l.control = c
	return nil
}

// close lets requests finish: one of them may be restarting the lab.
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

// Info is what GET / of the control API says about the lab.
type Info struct {
	URL         string            `json:"url"`
	Fingerprint string            `json:"fingerprint"`
	User        string            `json:"user"`
	Hosts       map[string]string `json:"hosts,omitempty"` // host name to address, with Config.HostListeners
	VMs         []string          `json:"vms"`
	Limits      Limits            `json:"limits"`
	SSH         []SSHInfo         `json:"ssh"`    // the hosts' SSH servers
	Mounts      []Mount           `json:"mounts"` // NFS datastores mounted at run time
	NFC         map[string]string `json:"nfc"`    // host name to the address of its NFC server
}

// SSHInfo is where one host takes SSH connections.
type SSHInfo struct {
	Host    string `json:"host"`           // as the inventory names it
	Addr    string `json:"addr,omitempty"` // empty while the service is off
	HostKey string `json:"hostKey"`
}

func (l *Lab) info() Info {
	i := Info{URL: l.URL(), Fingerprint: l.Fingerprint(), User: l.cfg.User, Limits: l.limits(), Hosts: map[string]string{}, NFC: map[string]string{}}
	for name, e := range l.hosts {
		i.Hosts[name] = e.addr
	}
	for _, v := range l.cfg.VMs {
		i.VMs = append(i.VMs, v.Name)
	}
	for _, h := range l.shells {
		i.SSH = append(i.SSH, SSHInfo{Host: h.name, Addr: l.SSHAddr(h.name), HostKey: strings.TrimSpace(l.SSHHostKey(h.name))})
	}
	i.Mounts = l.Mounts()
	for _, h := range l.nfc.all {
		i.NFC[h.name] = h.addr
	}
	return i
}

func (l *Lab) controlMux() *http.ServeMux {
	mux := http.NewServeMux()
	handle := func(pattern string, f func(*http.Request) (any, error)) {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) { respond(w, r, f) })
	}
	act := func(pattern string, f func() error) {
		handle(pattern, func(*http.Request) (any, error) { return struct{}{}, f() })
	}
	handle("GET /{$}", func(*http.Request) (any, error) { return l.info(), nil })
	handle("GET /stats", func(*http.Request) (any, error) { return l.Stats(), nil })
	act("DELETE /stats", func() error { l.ResetStats(); return nil })
	handle("GET /faults", func(*http.Request) (any, error) { return l.faults.List(), nil })
	handle("POST /faults", l.postFault)
	handle("DELETE /faults/{id}", l.deleteFault)
	act("DELETE /faults", func() error { l.faults.Clear(); return nil })
	act("POST /release", func() error { l.faults.Release(); return nil })
	handle("PUT /limits", l.putLimits)
	handle("PUT /power/{vm}", l.putPower)
	handle("POST /writes/{vm}", l.postWrites)
	handle("PUT /nfc", l.putNFC)
	act("DELETE /nfc", func() error { l.DropNFC(); return nil })
	act("POST /certificate", l.ChangeCertificate)
	act("POST /restart", l.Restart)
	act("POST /stop", l.Stop)
	act("POST /resume", l.Resume)
	handle("PUT /ssh", l.putSSH)
	act("DELETE /ssh", func() error { l.DropSSH(); return nil })
	act("POST /powercut", func() error { l.PowerCutHost(); return nil })
	act("POST /boot", l.BootHost)
	act("POST /cutnfs", func() error { l.CutNFS(); return nil })
	act("POST /healnfs", func() error { l.HealNFS(); return nil })
	act("DELETE /sessions", func() error { l.KillSessions(); return nil })
	return mux
}

// respond writes what f returns as JSON; an error becomes 400 and its text.
func respond(w http.ResponseWriter, r *http.Request, f func(*http.Request) (any, error)) {
	v, err := f(r)
	w.Header().Set("Content-Type", "application/json")
	if err != nil {
		w.WriteHeader(http.StatusBadRequest)
		v = map[string]string{"error": err.Error()}
	}
	_ = json.NewEncoder(w).Encode(v) // the client has gone; nobody to tell
}

func decode(r *http.Request, v any) error {
	dec := json.NewDecoder(r.Body)
	dec.DisallowUnknownFields()
	if err := dec.Decode(v); err != nil {
		return fmt.Errorf("decode request: %w", err)
	}
	return nil
}

func (l *Lab) postFault(r *http.Request) (any, error) {
	var f Fault
	if err := decode(r, &f); err != nil {
		return nil, err
	}
	id, err := l.faults.Add(f)
	return map[string]int{"id": id}, err
}

func (l *Lab) deleteFault(r *http.Request) (any, error) {
	id, err := strconv.Atoi(r.PathValue("id"))
	if err != nil {
		return nil, fmt.Errorf("fault id: %w", err)
	}
	l.faults.Remove(id)
	return struct{}{}, nil
}

// putLimits changes the limits named in the request and keeps the others.
func (l *Lab) putLimits(r *http.Request) (any, error) {
	limits := l.limits()
	if err := decode(r, &limits); err != nil {
		return nil, err
	}
	l.SetLimits(limits)
	return limits, nil
}

func (l *Lab) putPower(r *http.Request) (any, error) {
	var want struct {
		On bool `json:"on"`
	}
	if err := decode(r, &want); err != nil {
		return nil, err
	}
	return want, l.SetPower(r.PathValue("vm"), want.On)
}

func (l *Lab) putSSH(r *http.Request) (any, error) {
	var want struct {
		On bool `json:"on"`
	}
	if err := decode(r, &want); err != nil {
		return nil, err
	}
	return want, l.SetSSH(want.On)
}

// postWrites lets a guest make its next writes.
func (l *Lab) postWrites(r *http.Request) (any, error) {
	var want struct {
		Count int `json:"count"`
	}
	if err := decode(r, &want); err != nil {
		return nil, err
	}
	return want, l.GuestWrites(r.PathValue("vm"), want.Count)
}

// putNFC changes the NFC rules named in the request and keeps the others.
func (l *Lab) putNFC(r *http.Request) (any, error) {
	rules := l.NFC()
	if err := decode(r, &rules); err != nil {
		return nil, err
	}
	return rules, l.SetNFC(rules)
}
