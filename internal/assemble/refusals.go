package assemble

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"time"

	"github.com/decamp/decamp/internal/durable"
	"github.com/decamp/decamp/internal/fault"
)

const (
	refusalsWindow = 15 * time.Minute // in which a host adds up wrong passwords
	mostRefusals   = 3                // of the five that lock an account: two are left for others
)

// refusals is the file in the state directory that remembers when a host refused a
// user's password. A session stops by itself, but a job that cron starts again and again
// would lock the account all the same. Of two commands that are refused at the same
// moment one may be forgotten.
type refusals struct {
	path string
	who  string // "root@esx1:443"
	now  func() time.Time
}

// load returns the refusals of everybody, without those that no longer count.
func (r *refusals) load() (map[string][]time.Time, error) {
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
	for who, times := range all {
		all[who] = slices.DeleteFunc(times, func(t time.Time) bool { return r.now().Sub(t) >= refusalsWindow })
	}
	return all, nil
}

// check refuses a login that comes too close to the lock.
func (r *refusals) check() error {
	all, err := r.load()
	if err != nil {
		return err
	}
	times := all[r.who]
	if len(times) < mostRefusals {
		return nil
	}
	left := refusalsWindow - r.now().Sub(times[len(times)-mostRefusals])
	return fault.New(fault.Denied, "not tried: the password of %s was refused %d times in 15 minutes, and the account locks at 5", r.who, len(times)).OfLogin().
		WithHint("wait %v; or, if the password is right now and the account is not locked, run: rm %s", left.Round(time.Second), fault.Quote(r.path))
}

// note remembers a refusal; an accepted password makes the host forget them, and us.
func (r *refusals) note(refused error) error {
	all, err := r.load()
	if err != nil {
		return err
	}
	if refused == nil && len(all[r.who]) == 0 {
		return nil
	}
	if refused != nil {
		all[r.who] = append(all[r.who], r.now().UTC().Truncate(time.Second))
	} else {
		delete(all, r.who)
	}
	text, err := json.Marshal(all)
	if err != nil {
		return err
	}
	if err := durable.Replace(r.path, append(text, '\n'), 0o600); err != nil {
		return fmt.Errorf("write refused logins: %w", err)
	}
	return nil
}
