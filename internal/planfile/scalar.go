package planfile

import (
	"encoding/hex"
	"errors"
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"
	_ "time/tzdata" // a window means the same on machines without zone files

	"github.com/decamp/decamp/internal/esx"
	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/selector"
	"github.com/decamp/decamp/internal/suggest"
	"github.com/decamp/decamp/internal/units"
)

// A scalar is a type of value that is written as one word.
type scalar interface {
	// set reads the text of the file.
	set(text string) error

	// form describes the valid texts, for the schema and for users.
	form() form
}

// A form is how a scalar is written.
type form struct {
	pattern string   // a regular expression in the dialect of JSON schema; "": any text but none
	words   []string // all valid words, instead of a pattern
	example string
	number  bool // it may also be written as a number
	maximum int64
}

type (
	Text        string // any text that is not empty
	Name        string // fit for a file name
	Path        string // path of a file on this machine
	URL         string // URL of a source; never with a password
	Fingerprint string // SHA-256, hex with or without colons
	UUID        string // lower case
	IP          struct{ netip.Addr }
	Size        int64 // bytes
	Rate        int64 // bytes a second
	Duration    time.Duration
	Clock       int // minutes since midnight
	Zone        string
	Day         string // mon … sun
	Format      string
	DomainType  string
	VMHardware  string
	Engine      string
	Transport   string
	Mode        string
	PowerOff    string
	Copy        string
	Selection   struct{ selector.Expr }
)

// The words of the closed lists.
const (
	Cold, Warmly                 Mode     = "cold", "warm"
	NeverOff, GuestOff, ForceOff PowerOff = "never", "guest", "force"
	manual, inWindow                      = "manual", "window"
	longestText                           = 4 << 10
	longestName                           = 63
	mostSize                              = int64(1) << 53 // largest integer that all JSON parsers read exactly
	mostWait                              = 366 * 24 * time.Hour
	minutesOfDay                          = 24 * 60
	minutesOfHour                         = 60
	keyMark                               = "-----BEGIN"
	namePattern                           = `^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$`
	uuidPattern                           = `^[0-9A-Fa-f]{8}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{12}$`
	sizePattern                           = `^[0-9]{1,16}(B|K|M|G|T|KiB|MiB|GiB|TiB)?$`
	ratePattern                           = `^[0-9]{1,12}(\.[0-9]{1,6})?[KMG]?$`
	durationPattern                       = `^([0-9]+(\.[0-9]+)?(h|m|s|ms))+$`
	clockPattern                          = `^([01][0-9]|2[0-3]):[0-5][0-9]$`
	cutoverPattern                        = `^(manual|window|[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}(:[0-9]{2})?(Z|[+-][0-9]{2}:[0-9]{2}))$`
)

// days of the week, in the order of time.Weekday.
var days = []string{"sun", "mon", "tue", "wed", "thu", "fri", "sat"}

func (Text) form() form { return form{example: "text"} }
func (Name) form() form { return form{pattern: namePattern, example: "wave-1"} }
func (Path) form() form { return form{pattern: `^[^\n]+$`, example: "/etc/decamp/vc1.password"} }
func (URL) form() form {
	return form{pattern: `^(esxi|vcenter)://[^/:]+@[^/]+/?$`, example: "esxi://root@esx1"}
}
func (Fingerprint) form() form {
	return form{pattern: `^([0-9A-Fa-f]{2}:?){32}$`, example: "AB:CD:…"}
}
func (UUID) form() form {
	return form{pattern: uuidPattern, example: "42200b7e-5d1c-4c1f-9a55-0d4f6d1c9a01"}
}
func (IP) form() form { return form{pattern: `^[0-9A-Fa-f:.]+$`, example: "192.0.2.10"} }
func (Size) form() form {
	return form{pattern: sizePattern, example: "16G", number: true, maximum: mostSize}
}
func (Rate) form() form {
	return form{pattern: ratePattern, example: "400M", number: true, maximum: 1e15 - 1}
}
func (Duration) form() form   { return form{pattern: durationPattern, example: "1h30m"} }
func (Clock) form() form      { return form{pattern: clockPattern, example: `"22:00"`} }
func (Zone) form() form       { return form{pattern: `^[A-Za-z0-9_+/-]+$`, example: "Europe/Berlin"} }
func (Day) form() form        { return form{words: days} }
func (Format) form() form     { return form{words: []string{"raw", "qcow2"}} }
func (DomainType) form() form { return form{words: []string{"kvm", "qemu"}} }
func (VMHardware) form() form { return form{words: []string{"compat", "virtio", "auto"}} }
func (Engine) form() form     { return form{words: []string{"auto", "linux-append", "virt-v2v"}} }
func (Transport) form() form  { return form{words: []string{"https", "nfc", "landing"}} }
func (Mode) form() form       { return form{words: []string{"cold", "warm"}} }
func (PowerOff) form() form   { return form{words: []string{"never", "guest", "force"}} }
func (Copy) form() form       { return form{words: []string{"auto", "api", "ssh"}} }
func (Boot) form() form       { return Duration(0).form() }
func (Cutover) form() form    { return form{pattern: cutoverPattern, example: "2026-12-01T02:00Z"} }
func (Selection) form() form {
	return form{example: "folder=prod && !poweredOn"}
}

// patterns are those of the forms, compiled once.
var patterns sync.Map

func matches(pattern, text string) bool {
	re, ok := patterns.Load(pattern)
	if !ok {
		re, _ = patterns.LoadOrStore(pattern, regexp.MustCompile(pattern))
	}
	return re.(*regexp.Regexp).MatchString(text)
}

// matching sets a text that its form's pattern takes.
func matching[T ~string](to *T, text string, f form) error {
	if !matches(f.pattern, text) {
		return fmt.Errorf("want text such as %s", f.example)
	}
	*to = T(text)
	return nil
}

// among sets a word of a closed list.
func among[T ~string](to *T, text string, f form) error {
	if slices.Contains(f.words, text) {
		*to = T(text)
		return nil
	}
	err := fault.New(fault.Invalid, "%q is not one of %s", short(text), strings.Join(f.words, ", "))
	if meant, ok := suggest.Word(short(text), f.words); ok {
		return err.WithHint("did you mean %s?", meant)
	}
	return err
}

func (t *Text) set(s string) error {
	if s == "" || len(s) > longestText {
		return fmt.Errorf("want text of 1 to %d bytes", longestText)
	}
	*t = Text(s)
	return nil
}

// IsName reports whether a plan may be called so.
func IsName(s string) bool { return matches(namePattern, s) }

func (n *Name) set(s string) error {
	if !IsName(s) {
		return fmt.Errorf("want a name of letters, digits, dots, dashes and underscores, %d at the most", longestName)
	}
	*n = Name(s)
	return nil
}

// set does not repeat the value, which may be a pasted key.
func (p *Path) set(s string) error {
	if s == "" || strings.ContainsAny(s, "\n\x00") || strings.Contains(s, keyMark) {
		return fault.New(fault.Invalid, "the value must be the name of a file, not its content").WithHint("a plan holds no secrets: put it into a file that only you can read")
	}
	*p = Path(s)
	return nil
}

func (u *URL) set(s string) error {
	parsed, err := esx.ParseURL(s)
	if err != nil {
		return err
	}
	if host, port := parsed.Hostname(), parsed.Port(); strings.ContainsAny(host, " \t") || port == "" && strings.HasSuffix(parsed.Host, ":") {
		return errors.New("want a host, and a port or none")
	}
	*u = URL(s)
	return nil
}

// VCenter reports whether the source is a vCenter.
func (u URL) VCenter() bool { return strings.HasPrefix(string(u), "vcenter:") }

func (f *Fingerprint) set(s string) error {
	if raw, err := hex.DecodeString(strings.ReplaceAll(s, ":", "")); err != nil || len(raw) != 32 {
		return errors.New("want a SHA-256: 64 digits, with or without colons")
	}
	return matching(f, s, f.form())
}

func (u *UUID) set(s string) error { return matching(u, strings.ToLower(s), u.form()) }

func (i *IP) set(s string) (err error) {
	if i.Addr, err = netip.ParseAddr(s); err != nil {
		return errors.New("want an IP address such as 192.0.2.10")
	}
	return nil
}

func (n *Size) set(s string) error {
	v, err := units.ParseSize(s)
	if err == nil && v > mostSize {
		err = fmt.Errorf("size %q is more than there is", s)
	}
	*n = Size(v)
	return err
}

func (r *Rate) set(s string) error {
	if !matches(ratePattern, s) {
		return fault.New(fault.Invalid, "rate %q: want bytes a second with K, M or G", s).WithHint("write 400M for 400 MB/s; a link of 10 Gbit/s has 1250M")
	}
	v, err := units.ParseRate(s)
	*r = Rate(v)
	return err
}

func (d *Duration) set(s string) error {
	v, err := time.ParseDuration(s)
	if err != nil || !matches(durationPattern, s) || v > mostWait {
		return errors.New("want a time such as 30s, 5m or 1h30m")
	}
	*d = Duration(v)
	return nil
}

func (c *Clock) set(s string) error {
	var h, m int
	if !matches(clockPattern, s) {
		return errors.New(`want a time of day such as "22:00"`)
	}
	_, err := fmt.Sscanf(s, "%d:%d", &h, &m)
	*c = Clock(h*minutesOfHour + m)
	return err
}

func (z *Zone) set(s string) error {
	if err := matching(z, s, z.form()); err != nil {
		return err
	}
	if _, err := time.LoadLocation(s); err != nil || s == "Local" {
		return fault.New(fault.Invalid, "there is no time zone %q", s).WithHint("write a name such as Europe/Berlin, or UTC")
	}
	return nil
}

func (d *Day) set(s string) error        { return among(d, s, d.form()) }
func (f *Format) set(s string) error     { return among(f, s, f.form()) }
func (d *DomainType) set(s string) error { return among(d, s, d.form()) }
func (h *VMHardware) set(s string) error { return among(h, s, h.form()) }
func (e *Engine) set(s string) error     { return among(e, s, e.form()) }
func (t *Transport) set(s string) error  { return among(t, s, t.form()) }
func (m *Mode) set(s string) error       { return among(m, s, m.form()) }
func (p *PowerOff) set(s string) error   { return among(p, s, p.form()) }
func (c *Copy) set(s string) error       { return among(c, s, c.form()) }

// Boot is the boot time of a guest, if known.
type Boot struct {
	Known bool
	Time  time.Duration
}

func (b *Boot) set(s string) error {
	b.Known = true
	return (*Duration)(&b.Time).set(s)
}

// Cutover determines when a warm migration ends: on a command (the zero value), in a window, or at a
// time.
type Cutover struct {
	Window bool
	At     time.Time // zero without a time
}

// cutoverForms are how times are written: RFC 3339, with or without seconds.
var cutoverForms = []string{time.RFC3339, "2006-01-02T15:04Z07:00"}

func (c *Cutover) set(s string) error {
	*c = Cutover{Window: s == inWindow}
	if s == manual || s == inWindow {
		return nil
	}
	for _, form := range cutoverForms {
		if at, err := time.Parse(form, s); err == nil && matches(cutoverPattern, s) {
			c.At = at
			return nil
		}
	}
	return errors.New("want manual, window, or a time with its zone, as 2026-12-01T02:00Z")
}

func (s *Selection) set(text string) (err error) {
	if s.Expr, err = selector.Parse(text); err != nil {
		return fault.New(fault.Invalid, "%w", err).WithHint("%s", selector.RemedyOf(err))
	}
	return nil
}
