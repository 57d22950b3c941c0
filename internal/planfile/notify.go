package planfile

import (
	"errors"
	"fmt"
	"maps"
	"net"
	"net/mail"
	"net/netip"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"reflect"
	"slices"

	"github.com/decamp/decamp/internal/fault"
)

// Notify is the parsed notification file, in which an administrator names the receivers of
// notifications.
type Notify struct {
	// always 1
	Version int `yaml:"version" required:"true" min:"1" max:"1" doc:"version of the file format: 1"`
	// at least one
	Receivers map[string]Receiver `yaml:"receivers" required:"true" doc:"receivers of notifications, by name"`

	path string // path of the file, for messages
	file *File  // positions of the keys
}

// Receiver is one receiver. Exactly one of Webhook, Email and Command is set.
type Receiver struct {
	Webhook Webhook       `yaml:"webhook" doc:"a program that accepts POST requests"`
	Email   Email         `yaml:"email" doc:"addresses of electronic mail"`
	Command NotifyCommand `yaml:"command" doc:"a program of this machine; requires --allow-notify-commands"`

	Events []EventKind `yaml:"events" doc:"kinds of events; default: all"`                       // nil: all
	Plans  []Text      `yaml:"plans" doc:"patterns of plan names, such as wave-*; default: all"` // nil: all
	// template; empty: the default subject
	Subject Text `yaml:"subject" doc:"template of the subject"`
	// template; empty: the default text
	Text        Text     `yaml:"text" doc:"template of the text"`
	GiveUpAfter Duration `yaml:"giveUpAfter" doc:"time after which an undelivered notification is dropped; default: 24h"` // 0: 24h
}

// Webhook is an HTTP server that receives notifications. Exactly one of URL and URLFile is set.
type Webhook struct {
	URL     Text `yaml:"url" doc:"URL, https://…; http only to a loopback address"`
	URLFile Path `yaml:"urlFile" doc:"instead of url: file with a URL that is a secret"` // absolute path
	// absolute path; empty: systemd credential
	SecretFile Path `yaml:"secretFile" doc:"file with the key that signs requests, whsec_…; default: the systemd credential of the receiver's name"`
	CAFile     Path `yaml:"caFile" doc:"file with the CA of the server's certificate, PEM; default: the system's"` // absolute path
	// template; empty: the event as JSON
	Body Text `yaml:"body" doc:"template of the body, which must be JSON; default: the event"`
}

// Email is a mail server, an account on it and addresses.
type Email struct {
	Server Text         `yaml:"server" doc:"mail server, HOST:PORT"`
	TLS    MailSecurity `yaml:"tls" doc:"starttls, tls (from the beginning) or none (loopback only); default: starttls"` // "": StartTLS
	User   Text         `yaml:"user" doc:"user name; default: no login"`
	// absolute path; empty: systemd credential
	PasswordFile Path   `yaml:"passwordFile" doc:"file with the password; default: the systemd credential of the receiver's name"`
	CAFile       Path   `yaml:"caFile" doc:"file with the CA of the server's certificate, PEM; default: the system's"` // absolute path
	From         Text   `yaml:"from" doc:"address of the sender"`
	To           []Text `yaml:"to" doc:"addresses of the recipients"`
}

// NotifyCommand is a program that gets the event as JSON on its standard input.
type NotifyCommand struct {
	Run     []Text   `yaml:"run" doc:"program and its arguments, as a list; the program is an absolute path"` // never run by a shell
	Timeout Duration `yaml:"timeout" doc:"time limit; a program that exceeds it is killed; default: 30s"`     // 0: 30s
}

// EventKind is the kind of an event that receivers are notified of.
type EventKind string

// Kinds of events.
const (
	VMFailed      EventKind = "vm-failed"      // a VM has failed, and is not tried again without a command
	PlanFailed    EventKind = "plan-failed"    // a plan cannot continue, or has ended and not all of its VMs are published
	PlanDone      EventKind = "plan-done"      // a plan has ended and all of its VMs are published or canceled
	CutoverDue    EventKind = "cutover-due"    // a warm VM is copied and waits for its cutover
	OutageOverrun EventKind = "outage-overrun" // the outage of a warm VM was longer than permitted or estimated
)

// EventKinds are all kinds of events.
var EventKinds = []EventKind{VMFailed, PlanFailed, PlanDone, CutoverDue, OutageOverrun}

// textForm lists the kinds.
func (EventKind) textForm() form {
	var words []string
	for _, k := range EventKinds {
		words = append(words, string(k))
	}
	return form{words: words}
}

// parseText accepts the kinds.
func (k *EventKind) parseText(s string) error { return setWord(k, s, k.textForm()) }

// MailSecurity is the protection of a connection to a mail server.
type MailSecurity string

// Kinds of protection.
const (
	StartTLS MailSecurity = "starttls" // TLS after a greeting in clear; without TLS nothing is sent
	FullTLS  MailSecurity = "tls"      // TLS from the first byte
	NoTLS    MailSecurity = "none"     // no TLS
)

// textForm lists the kinds.
func (MailSecurity) textForm() form {
	return form{words: []string{string(StartTLS), string(FullTLS), string(NoTLS)}}
}

// parseText accepts the kinds.
func (m *MailSecurity) parseText(s string) error { return setWord(m, s, m.textForm()) }

// NotifyFile is the name of the notification file in the state directory.
const NotifyFile = "notify.yaml"

// notifySecret is the remedy for a secret in a notification file.
const notifySecret = "remove it: the file contains no secrets; write the secret to a file of mode 0600, and name the file with secretFile, urlFile or passwordFile"

// LoadNotify reads the notification file at path. It returns fault.NotFound if the file does not exist,
// fault.Denied if it cannot be read or other users may write it, and fault.Invalid for the first mistake
// in its text.
func LoadNotify(path string) (*Notify, error) {
	text, err := readTrusted(path, "notification file", "--notify")
	if errors.Is(err, os.ErrNotExist) {
		return nil, fault.New(fault.NotFound, "the notification file %s does not exist", path).WithHint("create it as in docs/notifications.md, or name another one with --notify")
	}
	if err != nil {
		return nil, err
	}
	n, found := ParseNotify(text)
	if len(found) > 0 {
		first := found[0]
		return nil, fault.New(fault.Invalid, "%s:%d: %s%s", path, first.Line, first.Text, moreMistakes(len(found)-1)).WithHint("%s", first.Remedy)
	}
	n.path = path
	return n, nil
}

// ParseNotify parses the text of a notification file as strictly as the text of a plan. The Notify must
// not be used if there are Findings.
func ParseNotify(text []byte) (*Notify, Findings) {
	d, root := decodeRoot(text)
	if root == nil {
		return nil, d.found
	}
	d.secret = notifySecret
	n := &Notify{path: NotifyFile, file: &File{positions: d.positions}}
	d.decodeValue(root, reflect.ValueOf(n).Elem(), "")
	if len(d.found) == 0 {
		r := &ruleChecker{file: n.file}
		for _, name := range slices.Sorted(maps.Keys(n.Receivers)) {
			r.checkReceiver(name, n.Receivers[name])
		}
		d.found = r.found
	}
	d.found.Sort()
	return n, d.found
}

// Error returns fault.Invalid for a key of the file, with the file and the line. key is such as
// receivers.ops.text.
func (n *Notify) Error(key string, err error) error {
	return fault.New(fault.Invalid, "%s:%d: %s: %w", n.path, n.file.At(key).Line, key, err).WithHint("%s", fault.HintOf(err))
}

// checkReceiver reports a receiver whose keys contradict each other.
func (r *ruleChecker) checkReceiver(name string, v Receiver) {
	at := "receivers." + name
	kinds := 0
	for _, kind := range []string{".webhook", ".email", ".command"} {
		if r.hasKey(at + kind) {
			kinds++
		}
	}
	if !IsName(name) {
		r.addError(at, "use letters, digits, dots, dashes and underscores", "not a name")
	}
	if kinds != 1 {
		r.addError(at, "set one of them; use two receivers for two", "exactly one of webhook, email and command is required")
		return
	}
	for i, pattern := range v.Plans {
		if _, err := path.Match(string(pattern), ""); err != nil {
			r.addError(fmt.Sprintf("%s.plans[%d]", at, i), "write a name in which * stands for any text and ? for one character", "%q is not a pattern", shorten(string(pattern)))
		}
	}
	switch {
	case r.hasKey(at + ".webhook"):
		r.checkWebhook(at+".webhook", v.Webhook)
	case r.hasKey(at + ".email"):
		r.checkEmail(at+".email", v.Email)
	default:
		r.checkCommand(at+".command", v.Command)
	}
}

// checkCommand requires a program whose place does not depend on PATH.
func (r *ruleChecker) checkCommand(at string, c NotifyCommand) {
	if len(c.Run) == 0 {
		r.addError(at, "add run: [/PROGRAM, ARGUMENT]", "run is missing")
	} else if !filepath.IsAbs(string(c.Run[0])) {
		r.addError(at+".run", "write an absolute path", "%q is not an absolute path", shorten(string(c.Run[0])))
	}
}

// checkAbsolute reports relative paths: processes with different working directories read the files.
func (r *ruleChecker) checkAbsolute(at string, files map[string]Path) {
	for _, key := range slices.Sorted(maps.Keys(files)) {
		if file := files[key]; file != "" && !filepath.IsAbs(string(file)) {
			r.addError(at+"."+key, "write an absolute path", "%q is not an absolute path", shorten(string(file)))
		}
	}
}

// checkWebhook reports a webhook without a usable address.
func (r *ruleChecker) checkWebhook(at string, w Webhook) {
	r.checkAbsolute(at, map[string]Path{"urlFile": w.URLFile, "secretFile": w.SecretFile, "caFile": w.CAFile})
	if (w.URL == "") == (w.URLFile == "") {
		r.addError(at, "set url, or urlFile if the URL itself is a secret", "exactly one of url and urlFile is required")
	} else if w.URL != "" {
		if err := CheckWebhookURL(string(w.URL)); err != nil {
			r.addError(at+".url", "write https://HOST/PATH", "%w", err)
		}
	}
}

// CheckWebhookURL returns an error unless notifications may be sent to a URL. The error does not repeat
// the URL, which may be a secret.
func CheckWebhookURL(text string) error {
	u, err := url.Parse(text)
	switch {
	case err != nil || u.Host == "" || u.Opaque != "":
		return errors.New("not a URL")
	case u.User != nil:
		return errors.New("the URL must not contain a user name or a password")
	case u.Fragment != "":
		return errors.New("the URL must not contain a #")
	case u.Scheme == "http" && IsLoopback(u.Hostname()), u.Scheme == "https":
		return nil
	case u.Scheme == "http":
		return errors.New("http is permitted only to a loopback address")
	}
	return errors.New("the URL does not begin with https")
}

// IsLoopback reports whether a host is this machine, without a look-up of its name.
func IsLoopback(host string) bool {
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && ip.IsLoopback()
}

// checkEmail reports missing and invalid addresses, and a password that would be sent in clear.
func (r *ruleChecker) checkEmail(at string, e Email) {
	r.checkAbsolute(at, map[string]Path{"passwordFile": e.PasswordFile, "caFile": e.CAFile})
	host, port, err := net.SplitHostPort(string(e.Server))
	switch {
	case err != nil || host == "" || port == "":
		r.addError(at+".server", "write HOST:587, or HOST:465 with tls: tls", "want a mail server with its port")
	case e.TLS == NoTLS && !IsLoopback(host):
		r.addError(at+".tls", "use starttls or tls", "mail without TLS is permitted only to a loopback address")
	case e.PasswordFile != "" && e.User == "":
		r.addError(at+".passwordFile", "add user: NAME", "a password requires a user")
	}
	if len(e.To) == 0 {
		r.addError(at, "add to: [NAME@HOST]", "to is missing")
	}
	r.checkAddress(at+".from", string(e.From))
	for i, to := range e.To {
		r.checkAddress(fmt.Sprintf("%s.to[%d]", at, i), string(to))
	}
}

// checkAddress accepts NAME@HOST, with or without a display name.
func (r *ruleChecker) checkAddress(at, address string) {
	if _, err := mail.ParseAddress(address); err != nil {
		r.addError(at, "write NAME@HOST", "%q is not a mail address", shorten(address))
	}
}
