package assemble

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/decamp/decamp/internal/cleanup"
	"github.com/decamp/decamp/internal/esx"
	"github.com/decamp/decamp/internal/esx/shell"
	"github.com/decamp/decamp/internal/esx/vimcmd"
	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/fleet"
	"github.com/decamp/decamp/internal/fleet/login"
	"github.com/decamp/decamp/internal/inventory"
	"github.com/decamp/decamp/internal/knownhosts"
)

// SSHOptions describe the login by SSH to hosts, for functions that the API does not have.
type SSHOptions struct {
	User         string            // user name; empty: the user of an esxi URL, otherwise root
	Port         uint16            // TCP port of SSH
	KeyFile      string            // file with a private key; empty: none
	HostKey      string            // SHA256:… of the accepted host key; empty: known keys decide
	PasswordFile string            // file with the password; empty: see HostShells.setPassword
	hostKeys     map[string]string // SHA256:… of the keys to accept, by the lower-case name of the host
	credential   string            // named credential that all of this is of, and bound to the hosts in hostKeys; empty: none
	submitted    bool              // the plan was submitted: no prompts, and no key replaces a known one
	noAgent      bool              // the agent at $SSH_AUTH_SOCK is not used
	Enable       bool              // permits decamp to start SSH on hosts, and to stop it again
}

// HostShells are the logins by SSH to the hosts of a session. Each login is opened at its first use,
// and most hosts have none. HostShells are safe for concurrent use.
type HostShells struct {
	assembler *Assembler     // state of this machine, and prompts
	session   *esx.Session   // session with the API
	login     sourceLogin    // login of the session
	opts      SSHOptions     // options of the SSH login
	store     *cleanup.Store // records of changes on hosts
	changer   *vmChanger     // changes VMs over these logins if necessary

	mu      sync.Mutex                       // held while one is opened
	shells  map[inventory.MoRef]*shell.Shell // open logins by host
	denied  map[inventory.MoRef]error        // permanent errors: a refused password is not sent again for each disk
	started []cleanup.Record                 // SSH that was off
}

// sourceLogin is the login of the session. SSH uses the same password if the user and the host are the
// same.
type sourceLogin struct {
	server       string                           // host:port, as records have it
	account      string                           // user@host:port, as refused logins have it
	host         string                           // host name of the URL
	user         string                           // user name of the URL
	passwordFile string                           // file with the password; empty if the user entered it
	vcenter      bool                             // the session is with a vCenter, whose accounts are unknown to hosts
	onHost       func(host string) *login.Limiter // login limits of a fleet by host; nil limits this command alone
}

// loginOf returns the login of a session that was opened at u with l.
func loginOf(u *url.URL, l Login) sourceLogin {
	return sourceLogin{ServerOf(u), u.User.Username() + "@" + fleet.Endpoint(u), u.Hostname(), u.User.Username(), l.PasswordFile, u.Scheme == "vcenter", l.OnHost}
}

// reportCopier logs and prints that a host copies disks over SSH, with the reason.
func (p *Prompts) reportCopier(host inventory.MoRef, why error) {
	p.Log.Info("disks are copied by SSH", "host", host, "err", why)
	p.Notify("Disks are copied by SSH (vmkfstools on host %s), because the API cannot copy them: %s.", host, why.Error())
}

// NewHostShells returns the logins by SSH to the hosts of a session that was opened at u with l. It
// opens none. Changes on hosts are recorded in store.
func (a *Assembler) NewHostShells(session *esx.Session, u *url.URL, l Login, o SSHOptions, store *cleanup.Store) *HostShells {
	h := &HostShells{assembler: a, session: session, login: loginOf(u, l), opts: o, store: store, shells: map[inventory.MoRef]*shell.Shell{}, denied: map[inventory.MoRef]error{}}
	h.changer = &vmChanger{api: session, ssh: &vimcmd.Host{Session: session, Open: h.Open}, onSSH: a.reportSSHChanger}
	return h
}

// Open returns the login to a host, and opens it if necessary. A refusal is permanent, unless a fleet
// limits logins: its limiter decides about further attempts. It has the type of landing.Shells.
func (h *HostShells) Open(ctx context.Context, host inventory.MoRef) (*shell.Shell, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if s := h.shells[host]; s != nil {
		return s, nil
	}
	if err := h.denied[host]; err != nil {
		return nil, err
	}
	s, err := h.openShell(ctx, host)
	if fault.Is(err, fault.Denied) && h.login.onHost == nil {
		h.denied[host] = err
	}
	if err != nil {
		return nil, err
	}
	h.shells[host] = s
	return s, nil
}

// openShell starts SSH if necessary, and logs in. mu must be held.
func (h *HostShells) openShell(ctx context.Context, host inventory.MoRef) (*shell.Shell, error) {
	name, err := h.hostName(ctx, host)
	if err != nil {
		return nil, err
	}
	if err := h.startSSH(ctx, host, name); err != nil {
		return nil, err
	}
	return h.dialShell(ctx, name)
}

// hostName returns the address of a host: the host of the URL, or the name that the vCenter has for it.
func (h *HostShells) hostName(ctx context.Context, host inventory.MoRef) (string, error) {
	if !h.login.vcenter {
		return h.login.host, nil
	}
	hosts, err := h.session.Hosts(ctx)
	if err != nil {
		return "", err
	}
	for _, each := range hosts {
		if each.Ref == host {
			return each.Name, nil
		}
	}
	return "", fault.New(fault.NotFound, "host %s was removed", host).WithHint("list the inventory again: decamp ls")
}

// startSSH starts SSH on a host if it is off and the user permits that. The change is recorded first,
// so that a later process can revert it. If the state of SSH cannot be read, it may be on, and the
// login is tried.
func (h *HostShells) startSSH(ctx context.Context, host inventory.MoRef, name string) error {
	runs, err := h.session.SSHRuns(ctx, host)
	if err != nil {
		h.assembler.Log.Warn("state of SSH is unknown", "host", host, "err", err)
		return nil
	}
	if runs {
		return nil
	}
	if !h.opts.Enable && h.hasReadOnlyAPI(ctx) {
		return fault.New(fault.Denied, "SSH is required on host %s, and it is off", name).WithHint("%s", esx.StartSSHRemedy)
	}
	if !h.opts.Enable {
		return fault.New(fault.Denied, "SSH is required on host %s, and it is off", name).
			WithHint("let decamp start it and stop it at the end with --enable-ssh, or start the service TSM-SSH manually; the firewall ruleset is sshServer")
	}
	r := cleanup.Record{
		Kind: cleanup.SSHService, Server: h.login.server, Host: host, Since: time.Now(),
		Text: "SSH on, which was off", ManualCommand: "vim-cmd hostsvc/stop_ssh",
	}
	if _, err := h.store.Add(r); err != nil {
		return err
	}
	h.started = append(h.started, r)
	return h.session.StartSSH(ctx, host)
}

// hasReadOnlyAPI reports whether the licence is known to make the API read-only, so that it cannot start
// SSH. A refused change shows that if the licence is unknown.
func (h *HostShells) hasReadOnlyAPI(ctx context.Context) bool {
	return h.changer.refused.Load() || h.session.FreeLicence(ctx)
}

// dialShell logs in to a host by its address.
func (h *HostShells) dialShell(ctx context.Context, name string) (*shell.Shell, error) {
	addr := net.JoinHostPort(name, strconv.Itoa(int(h.opts.Port)))
	pin, err := h.expectedKeys(ctx, name, addr)
	if err != nil {
		return nil, err
	}
	cfg := shell.Config{Addr: addr, User: h.userName(), HostKey: pin, KeyFile: h.opts.KeyFile, Log: h.assembler.Log}
	if !h.opts.noAgent {
		cfg.Agent = h.assembler.Env("SSH_AUTH_SOCK")
	}
	if err := h.setPassword(&cfg, name); err != nil {
		return nil, err
	}
	return shell.Dial(ctx, cfg)
}

// userName returns the user for SSH.
func (h *HostShells) userName() string {
	switch {
	case h.opts.User != "":
		return h.opts.User
	case h.login.vcenter:
		return "root"
	}
	return h.login.user
}

// setPassword sets the functions of cfg that provide the password and count refusals. The password of
// the session is used if account and host are the same; otherwise the password file of SSH, or a
// prompt. Refusals are counted together with those of the API, because the host locks the account for
// both.
func (h *HostShells) setPassword(cfg *shell.Config, host string) error {
	state, err := h.assembler.StateDir()
	if err != nil {
		return err
	}
	who, account, file := cfg.User+"@"+cfg.Addr, cfg.User+"@"+cfg.Addr, h.opts.PasswordFile
	// an ESXi host has the same accounts for SSH and for its API
	same := !h.login.vcenter && cfg.User == h.login.user
	if same {
		account = h.login.account
		if file == "" && h.opts.credential == "" {
			file = h.login.passwordFile
		}
	}
	var ask func(context.Context) (string, error)
	switch known := h.assembler.enteredPassword(account); {
	case file == "" && h.opts.submitted: // no prompt and no default
		ask = func(context.Context) (string, error) { return "", noSSHPassword(who) }
	case file != "": // read for each login, so a changed password requires no restart
		ask = func(context.Context) (string, error) { return h.assembler.PasswordFrom(file) }
	case same && known != "" && h.assembler.Env(PasswordEnv) == "": // the file in the environment is read again each time
		ask = func(context.Context) (string, error) { return known, nil }
	case same:
		ask = h.assembler.Password(who, "")
	default: // the password file in the environment is for another account
		ask = func(ctx context.Context) (string, error) { return h.assembler.askSecret(ctx, "password", who) }
	}
	refused := &refusals{filepath.Join(state, "refused_logins.json"), account, time.Now}
	if h.login.onHost != nil {
		cfg.Admit = newAdmission(h.assembler.Log, h.login.onHost(host), refused)
	}
	cfg.Judged = func(refusal error) {
		if err := refused.addResult(refusal); err != nil {
			h.assembler.Log.Warn("login not noted", "err", err)
		}
	}
	cfg.Password = func(ctx context.Context) (esx.Secret, error) {
		if err := refused.checkLimit(); err != nil {
			return "", err
		}
		text, err := ask(ctx)
		return esx.Secret(text), err
	}
	return nil
}

// expectedKeys returns the keys that a host may present, separated by spaces. These are the first that
// exist of: the stated key; the key that the host reports over the API, together with the key that was
// accepted before; a key that the user confirms. A credential of the access file has the keys of its
// hosts, and no other host is accepted.
func (h *HostShells) expectedKeys(ctx context.Context, name, addr string) (string, error) {
	stated := cmp.Or(h.opts.HostKey, h.opts.hostKeys[strings.ToLower(name)])
	if h.opts.credential != "" {
		if stated == "" {
			return "", fault.New(fault.Denied, "the credential %s is not bound to the host %s", h.opts.credential, name).
				WithHint("an administrator adds the host to ssh: {hostKeys: …} of the credential in the access file")
		}
		return stated, nil
	}
	known, err := h.assembler.loadKnownHosts()
	if err != nil {
		return "", err
	}
	entry := "ssh://" + strings.ToLower(addr)
	before, seen := known.Find(entry)
	switch {
	case stated != "" && h.opts.submitted && seen && before.SHA256 != stated:
		return "", fault.New(fault.Conflict, "the plan has the SSH host key %s for %s, and this machine has %s", stated, addr, before.SHA256).
			WithHint("correct or remove the key in source.ssh.hostKeys of the plan; if the key changed, an administrator accepts it on this machine with --ssh-host-key")
	case stated != "":
		return stated, known.Add(entry, stated, "SSH")
	}
	var pins []string
	if key, err := h.readHostKey(ctx); err == nil {
		pins = append(pins, key.Fingerprint)
	} else {
		h.assembler.Log.Debug("SSH host key not available over the API", "host", addr, "err", err)
	}
	if seen {
		pins = append(pins, before.SHA256)
	}
	if len(pins) > 0 {
		return strings.Join(pins, " "), nil
	}
	if h.opts.submitted {
		return "", fault.New(fault.Denied, "the SSH host key of %s is not known on this machine", addr).
			WithHint("use a named credential for SSH in source: {ssh: {credentials: {name: NAME}}}, which has the keys of its hosts")
	}
	shown, err := shell.HostKeys(ctx, addr)
	if err != nil {
		return "", err
	}
	return h.assembler.confirmSSH(ctx, known, addr, shown)
}

// noSSHPassword is the error for a submitted plan without a password for SSH. Nobody is there to enter
// one.
func noSSHPassword(who string) error {
	return fault.New(fault.Denied, "the plan has no credentials for SSH as %s", who).
		WithHint("add source: {ssh: {credentials: {name: NAME}}} to the plan; an administrator adds NAME to the access file")
}

// readHostKey returns the SSH host key that the host reports over the API, whose certificate is pinned.
func (h *HostShells) readHostKey(ctx context.Context) (shell.HostKey, error) {
	public, err := h.session.SSHHostKey(ctx)
	if err != nil {
		return shell.HostKey{}, err
	}
	return shell.FingerprintOf(public)
}

// confirmSSH shows unknown keys to the user, and records the first one if the user accepts it.
func (p *Prompts) confirmSSH(ctx context.Context, known *knownhosts.File, addr string, shown []shell.HostKey) (string, error) {
	refused := fault.New(fault.Denied, "the SSH host key of %s is not known: it shows %s", addr, shell.Describe(shown)).
		WithHint("compare it with the fingerprint on the host (%s), then run: %s", shell.WhereToLook, p.Command("--ssh-host-key", shown[0].Fingerprint))
	t, err := p.Terminal()
	if err != nil {
		return "", refused
	}
	defer t.Close()
	answer, err := t.Ask(ctx, fmt.Sprintf("%s presents an unknown SSH host key:\n  %s\nCompare it with the fingerprint on the host: %s\nIs it correct? Type yes to continue: ",
		addr, shell.Describe(shown), shell.WhereToLook))
	if err != nil {
		return "", err
	}
	if answer != "yes" {
		return "", refused
	}
	return shown[0].Fingerprint, known.Add("ssh://"+strings.ToLower(addr), shown[0].Fingerprint, "SSH")
}

// stopSSH stops the SSH service that an earlier run started on a host, and closes the login.
func (h *HostShells) stopSSH(ctx context.Context, host inventory.MoRef) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	err := h.session.StopSSH(ctx, host)
	if s := h.shells[host]; s != nil && err == nil {
		delete(h.shells, host) // the next use must request SSH first
		return s.Close()
	}
	return err
}

// Close closes the logins, and stops the SSH services that were started for them. A service that cannot
// be stopped stays recorded, and the user is warned.
func (h *HostShells) Close() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	var errs []error
	for _, s := range h.shells {
		errs = append(errs, s.Close())
	}
	clear(h.shells)
	ctx, cancel := context.WithTimeout(context.Background(), cleanupTimeout)
	defer cancel()
	for _, r := range h.started {
		if err := h.session.StopSSH(ctx, r.Host); err != nil {
			h.assembler.WarnStays(cleanup.LeftoverError(r, err))
			continue
		}
		errs = append(errs, h.store.Remove(r.ID()))
	}
	h.started = nil
	return errors.Join(errs...)
}
