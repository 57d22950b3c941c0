package assemble

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/decamp/decamp/internal/atomicfile"
	"github.com/decamp/decamp/internal/config"
	"github.com/decamp/decamp/internal/credentials"
	"github.com/decamp/decamp/internal/esx"
	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/fleet"
)

// PasswordEnv is the environment variable with the path of a password file. A password itself is never
// read from the environment, because /proc shows that to other processes.
const PasswordEnv = "DECAMP_PASSWORD_FILE"

// maxPasswordBytes is the maximum size of a password file.
const maxPasswordBytes = 4096

// Password returns a function that returns the password of who, such as "root@esx1". A file, from the
// flag or the environment, is read at each call. Without a file the user is prompted once: a later call
// is an error, because a run must not stop at a prompt.
func (a *Assembler) Password(who, file string) func(context.Context) (string, error) {
	if file == "" {
		file = a.Env(PasswordEnv)
	}
	if file != "" {
		return func(context.Context) (string, error) { return a.PasswordFrom(file) }
	}
	var asked atomic.Bool
	return func(ctx context.Context) (string, error) {
		if asked.Swap(true) {
			return "", fault.New(fault.Denied, "the password of %s is not accepted any more", who).OfLogin().
				WithHint("run the same command again: it requests the password and continues")
		}
		return a.askSecret(ctx, "password", who)
	}
}

// Credentials returns the user's stored credentials.
func (a *Assembler) Credentials() credentials.Store {
	return credentials.Store{Folder: config.Folder(a.Env), Env: a.Env}
}

// AccountOf returns the account of a source or a server in stored credentials: user@host:port, or
// https://host:port.
func AccountOf(rawURL string) (string, error) {
	if config.CheckServerURL(rawURL) == nil {
		u, err := url.Parse(rawURL)
		if err != nil {
			return "", err
		}
		return u.Scheme + "://" + strings.ToLower(u.Host), nil
	}
	u, err := esx.ParseURL(rawURL)
	if err != nil {
		return "", err
	}
	return sourceAccount(u), nil
}

// sourceAccount returns the account of a source: user@host:port.
func sourceAccount(u *url.URL) string { return u.User.Username() + "@" + fleet.Endpoint(u) }

// sourcePassword returns the function of Password for the source at u. Without a file it returns the
// user's stored password, if there is one.
func (a *Assembler) sourcePassword(u *url.URL, file string) func(context.Context) (string, error) {
	account, store := sourceAccount(u), a.Credentials()
	if known := a.enteredPassword(account); a.KeepPasswords && known != "" {
		return func(context.Context) (string, error) { return known, nil }
	}
	if file == "" && a.Env(PasswordEnv) == "" {
		if known, err := store.Has(account); known || err != nil {
			return func(ctx context.Context) (string, error) {
				text, known, err := store.Get(ctx, account)
				if err == nil && !known {
					err = fault.New(fault.Denied, "the stored password of %s was removed", account).OfLogin().WithHint("store it again with decamp login")
				}
				return text, err
			}
		}
	}
	return a.Password(u.User.Username()+"@"+u.Host, file)
}

// ReadSecret returns the secret in a file, without one at the prompt. what is its kind, such as token.
func (a *Assembler) ReadSecret(ctx context.Context, what, account, file string) (string, error) {
	if file != "" {
		return a.PasswordFrom(file)
	}
	return a.askSecret(ctx, what, account)
}

// storePassword stores a password for the rest of this process. account is user@host:port.
func (a *Assembler) storePassword(account, password string) { a.secrets.Store(account, password) }

// enteredPassword returns the stored password of an account; otherwise an empty text.
func (a *Assembler) enteredPassword(account string) string {
	text, _ := a.secrets.Load(account)
	password, _ := text.(string)
	return password
}

// askSecret prompts for a password or a token without echo. An empty one is an error, because a host
// would count it as a refusal.
func (p *Prompts) askSecret(ctx context.Context, what, who string) (string, error) {
	t, err := p.Terminal()
	if err != nil {
		return "", fault.New(fault.Invalid, "no %s for %s: decamp has no terminal for a prompt", what, who).
			WithHint("write it to a file that only you can read, and set the file with --password-file or %s", PasswordEnv)
	}
	defer t.Close()
	text, err := t.AskSecret(ctx, fmt.Sprintf("%s for %s: ", strings.ToUpper(what[:1])+what[1:], who))
	if err == nil && text == "" { // a host would count it as a wrong one
		err = fault.New(fault.Invalid, "no %s was entered", what)
	}
	return text, err
}

// PasswordFrom returns the content of a password file without one newline at its end. Spaces are part
// of the password. It warns if other users may read the file.
func (a *Assembler) PasswordFrom(path string) (string, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return "", fault.New(fault.Invalid, "read password file: %w", err)
	}
	if len(text) > maxPasswordBytes {
		return "", fault.New(fault.Invalid, "password file %s is too large: %d bytes", path, len(text))
	}
	a.warnIfShared(path)
	password := strings.TrimSuffix(strings.TrimSuffix(string(text), "\n"), "\r")
	if password == "" {
		return "", fault.New(fault.Invalid, "password file %s is empty", path)
	}
	return password, nil
}

// warnIfShared warns if other users may read a regular file.
func (p *Prompts) warnIfShared(path string) {
	if st, err := os.Stat(path); err == nil && st.Mode().IsRegular() && st.Mode().Perm()&0o077 != 0 {
		p.Warn("other users of this machine may read %s; run: chmod 600 %s", path, fault.Quote(path))
	}
}

const (
	refusalsWindow = 15 * time.Minute // time in which a host adds up wrong passwords
	maxRefusals    = 3                // an account is locked after five: two are left for other programs
)

// refusals is a file in the state directory with the times at which a host refused the password of a
// user. It protects accounts from being locked by a job that is started again and again. Two processes
// that are refused at the same time may lose one entry.
type refusals struct {
	path    string           // path of the file
	account string           // "root@esx1:443"
	now     func() time.Time // returns the current time
}

// loadAll returns the refusals of all accounts within refusalsWindow. A missing file has none.
func (r *refusals) loadAll() (map[string][]time.Time, error) {
	all := map[string][]time.Time{}
	text, err := os.ReadFile(r.path)
	if errors.Is(err, fs.ErrNotExist) {
		return all, nil
	}
	if err == nil {
		err = json.Unmarshal(text, &all)
	}
	if err != nil {
		return nil, fault.New(fault.Corrupt, "read refused logins: %w", err).WithHint("run: rm %s", fault.Quote(r.path))
	}
	// times outside of the window no longer count at the host
	for who, times := range all {
		all[who] = slices.DeleteFunc(times, func(t time.Time) bool { return r.now().Sub(t) >= refusalsWindow })
	}
	return all, nil
}

// checkLimit returns fault.Denied if another refusal could lock the account.
func (r *refusals) checkLimit() error {
	all, err := r.loadAll()
	if err != nil {
		return err
	}
	times := all[r.account]
	if len(times) < maxRefusals {
		return nil
	}
	left := refusalsWindow - r.now().Sub(times[len(times)-maxRefusals])
	return fault.New(fault.Denied, "login not attempted: the password of %s was refused %d times in 15 minutes, and the account locks at 5 refusals", r.account, len(times)).OfLogin().
		WithHint("wait %v; or, if the password is correct now and the account is not locked, run: rm %s", left.Round(time.Second), fault.Quote(r.path))
}

// addResult records a refusal. A nil refused is an accepted password: the host resets its count, so the
// refusals of the account are removed.
func (r *refusals) addResult(refused error) error {
	all, err := r.loadAll()
	if err != nil {
		return err
	}
	if refused == nil && len(all[r.account]) == 0 {
		return nil
	}
	if refused != nil {
		all[r.account] = append(all[r.account], r.now().UTC().Truncate(time.Second))
	} else {
		delete(all, r.account)
	}
	text, err := json.Marshal(all)
	if err != nil {
		return err
	}
	if err := atomicfile.Replace(r.path, append(text, '\n'), 0o600); err != nil {
		return fmt.Errorf("write refused logins: %w", err)
	}
	return nil
}
