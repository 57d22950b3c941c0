package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/lab"
)

// serveLab runs the emulator until ctx ends. It writes the password to a file in a temporary folder,
// which it removes at the end.
func (o *options) serveLab(ctx context.Context, cfg lab.Config, stdout io.Writer) (err error) {
	dir, err := os.MkdirTemp("", "decamp-lab-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	l, err := lab.Start(ctx, cfg)
	if err != nil {
		return startFault(err)
	}
	defer func() { err = errors.Join(err, l.Close()) }()
	facts := newFacts(l, cfg, filepath.Join(dir, "password"))
	if err := os.WriteFile(facts.PasswordFile, []byte(l.Password()+"\n"), 0o600); err != nil {
		return err
	}
	if o.json {
		encoder := json.NewEncoder(stdout)
		encoder.SetEscapeHTML(false) // URLs stay readable
		err = encoder.Encode(facts)
	} else {
		_, err = io.WriteString(stdout, facts.formatText())
	}
	if err == nil { // without the addresses no client can connect
		<-ctx.Done()
	}
	return err
}

// startFault returns an error of lab.Start as a fault: Unreachable if the emulator cannot listen on its
// address, otherwise Invalid.
func startFault(err error) error {
	var listen *net.OpError
	if errors.As(err, &listen) {
		return fault.New(fault.Unreachable, "%w", err).WithHint("choose another address: --listen 127.0.0.1:0 selects a free port")
	}
	return fault.Wrap(fault.Invalid, err)
}

// facts are the addresses and secrets that a client of the emulator needs. The JSON form is the output
// of --json.
type facts struct {
	URL          string   `json:"url"`          // URL for commands of decamp
	API          string   `json:"api"`          // URL of the vSphere API for other clients
	User         string   `json:"user"`         // user name
	PasswordFile string   `json:"passwordFile"` // file with the password
	Fingerprint  string   `json:"fingerprint"`  // SHA-256 of the certificate, as AA:BB:…
	Control      string   `json:"control"`      // URL that accepts faults; see docs/lab.md
	VMs          []string `json:"vms"`          // names of the VMs; not nil

	SSH []lab.SSHServer `json:"ssh"` // SSH servers, one for each host
}

// newFacts returns the facts about a running emulator.
func newFacts(l *lab.Lab, cfg lab.Config, passwordFile string) facts {
	// the URL has no password, because URLs appear in shell histories
	u := url.URL{Scheme: "esxi", User: url.User(l.User()), Host: l.Addr()}
	if cfg.VCenter {
		u.Scheme = "vcenter"
	}
	f := facts{
		URL: u.String(), API: l.URL(), User: l.User(), PasswordFile: passwordFile,
		Fingerprint: l.Fingerprint(), Control: l.ControlURL(), VMs: []string{}, SSH: l.SSHServers(),
	}
	for _, vm := range cfg.VMs {
		f.VMs = append(f.VMs, vm.Name)
	}
	return f
}

// formatText returns the facts as text, with commands to try.
func (f facts) formatText() string {
	var b strings.Builder
	fmt.Fprintf(&b, `The emulator is ready. Press Ctrl-C to stop it.

  API          %s
  user         %s
  password     in %s
  SHA-256      %s
  control      %s
`, f.API, f.User, f.PasswordFile, f.Fingerprint, f.Control)
	for _, s := range f.SSH {
		state := "off until TSM-SSH is started: decamp's --enable-ssh"
		if s.Running {
			state = "on"
		}
		fmt.Fprintf(&b, "  SSH          %s, host %s; %s\n", cmp.Or(s.Addr, "on a free port"), s.Host, state)
		fmt.Fprintf(&b, "  SSH key      %s\n", s.Fingerprint)
	}
	fmt.Fprintf(&b, `
Try, in another terminal:

  export DECAMP_PASSWORD_FILE=%s
  decamp ls %s --fingerprint %s
`, f.PasswordFile, f.URL, f.Fingerprint)
	if len(f.VMs) > 0 {
		fmt.Fprintf(&b, "  decamp migrate --to dir:/var/tmp %s %s\n", f.URL, fault.Quote(f.VMs[0]))
	}
	fmt.Fprintf(&b, "  curl -X POST %s/faults -d '{\"kind\":\"reset\",\"at\":1000000,\"count\":3}'   # break three responses\n", f.Control)
	return b.String()
}
