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

// serveLab runs the lab until ctx ends. It writes the password to a file, which decamp can read.
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
		encoder.SetEscapeHTML(false)
		err = encoder.Encode(facts)
	} else {
		_, err = io.WriteString(stdout, facts.text())
	}
	if err == nil {
		<-ctx.Done()
	}
	return err
}

// startFault returns err as a fault: Unreachable if the lab cannot listen, or else Invalid.
func startFault(err error) error {
	var listen *net.OpError
	if errors.As(err, &listen) {
		return fault.New(fault.Unreachable, "%w", err).WithHint("choose another address: --listen 127.0.0.1:0 takes a free port")
	}
	return fault.Wrap(fault.Invalid, err)
}

// facts are the addresses and secrets that a client of the lab needs.
type facts struct {
	URL          string   `json:"url"` // as decamp accepts it
	API          string   `json:"api"` // as other clients accept it
	User         string   `json:"user"`
	PasswordFile string   `json:"passwordFile"`
	Fingerprint  string   `json:"fingerprint"`
	Control      string   `json:"control"`
	VMs          []string `json:"vms"`

	SSH []lab.SSHServer `json:"ssh"` // one for each host
}

func newFacts(l *lab.Lab, cfg lab.Config, passwordFile string) facts {
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

// text returns the facts and the first commands to try.
func (f facts) text() string {
	var b strings.Builder
	fmt.Fprintf(&b, `The lab is ready. Interrupt it to end it.

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
	fmt.Fprintf(&b, "  curl -X POST %s/faults -d '{\"kind\":\"reset\",\"at\":1000000,\"count\":3}'   # break three answers\n", f.Control)
	return b.String()
}
