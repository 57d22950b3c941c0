package notify

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/planfile"
	"github.com/decamp/decamp/internal/suggest"
)

// Options are what the flags of a process permit.
type Options struct {
	Commands bool         // receivers may be commands
	Log      *slog.Logger // receives the log
}

// Receivers are the receivers of a notification file, with their secrets.
type Receivers struct {
	path string               // path of the file
	all  map[string]*receiver // receivers by name
}

// receiver is one receiver. It is safe for concurrent use.
type receiver struct {
	name      string               // name in the file
	events    []planfile.EventKind // kinds of events; nil: all
	plans     []string             // patterns of plan names; nil: all
	giveUp    time.Duration        // time after which an undelivered notification is dropped
	templates *templates           // templates of its messages
	sender    sender               // delivers its messages
}

// defaultGiveUp is the default of planfile.Receiver.GiveUpAfter.
const defaultGiveUp = 24 * time.Hour

// Load reads a notification file and the secrets that it names. It tests each template with an event of
// each kind.
func Load(path string, o Options) (*Receivers, error) {
	n, err := planfile.LoadNotify(path)
	if err != nil {
		return nil, err
	}
	r := &Receivers{path: path, all: map[string]*receiver{}}
	for _, name := range slices.Sorted(maps.Keys(n.Receivers)) {
		if r.all[name], err = newReceiver(n, name, o); err != nil {
			return nil, err
		}
	}
	return r, nil
}

// LoadDefault is Load for the default file of a state directory. It returns nil if the file does not
// exist.
func LoadDefault(state string, o Options) (*Receivers, error) {
	path := filepath.Join(state, planfile.NotifyFile)
	if _, err := os.Lstat(path); errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return Load(path, o)
}

// newReceiver returns a receiver of the file n.
func newReceiver(n *planfile.Notify, name string, o Options) (*receiver, error) {
	c := n.Receivers[name]
	v := &receiver{name: name, events: c.Events, giveUp: time.Duration(c.GiveUpAfter)}
	if v.giveUp == 0 {
		v.giveUp = defaultGiveUp
	}
	for _, pattern := range c.Plans {
		v.plans = append(v.plans, string(pattern))
	}
	var err error
	if v.templates, err = parseTemplates(n, "receivers."+name, c); err != nil {
		return nil, err
	}
	v.sender, err = newSender(name, c, o)
	return v, err
}

// wants reports whether the receiver is notified of an event.
func (v *receiver) wants(e Event) bool {
	matches := func(pattern string) bool {
		ok, err := path.Match(pattern, e.Plan)
		return ok && err == nil
	}
	return (v.events == nil || slices.Contains(v.events, e.Kind)) && (v.plans == nil || slices.ContainsFunc(v.plans, matches))
}

// deliver renders and sends an event once.
func (v *receiver) deliver(ctx context.Context, e Event) error {
	if err := v.templates.fill(&e); err != nil {
		return err
	}
	body, err := v.templates.renderBody(e)
	if err != nil {
		return err
	}
	return v.sender.send(ctx, e, body)
}

// Names returns the names of the receivers, sorted.
func (r *Receivers) Names() []string { return slices.Sorted(maps.Keys(r.all)) }

// Test sends an event to one receiver, once and without the queue, whether it is configured for such
// events or not. If the receiver does not accept it, Test returns fault.Unreachable.
func (r *Receivers) Test(ctx context.Context, name string, e Event) error {
	v, err := r.find(name)
	if err != nil {
		return err
	}
	if err := v.deliver(ctx, e); err != nil {
		return fault.New(fault.Unreachable, "receiver %s: %w", name, err).WithHint("correct the receiver in the notification file, then repeat the command")
	}
	return nil
}

// Preview returns the subject and the text that a receiver would get, and the body of a webhook.
func (r *Receivers) Preview(name string, e Event) (Event, []byte, error) {
	v, err := r.find(name)
	if err != nil {
		return Event{}, nil, err
	}
	if err := v.templates.fill(&e); err != nil {
		return Event{}, nil, err
	}
	body, err := v.templates.renderBody(e)
	return e, body, err
}

// find returns a receiver. It returns fault.NotFound if the file does not have it.
func (r *Receivers) find(name string) (*receiver, error) {
	if v := r.all[name]; v != nil {
		return v, nil
	}
	err := fault.New(fault.NotFound, "receiver %s does not exist in %s", name, r.path)
	if meant, ok := suggest.Word(name, r.Names()); ok {
		return nil, err.WithHint("did you mean %s?", meant)
	}
	return nil, err.WithHint("its receivers are %s", strings.Join(r.Names(), ", "))
}
