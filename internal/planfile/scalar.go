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

// A scalar is a type whose values are written as one word. It is implemented by pointers.
type scalar interface {
	// parseText sets the value from the text of the file, without quotes. It leaves the value unchanged,
	// or undefined, if it fails. Errors do not repeat values that may be secrets.
	parseText(text string) error

	// textForm describes the valid texts, for the schema and for messages.
	textForm() form
}

// A form describes how a scalar is written.
type form struct {
	pattern string   // a regular expression in the dialect of JSON schema; "": any text but none
	words   []string // all valid words, instead of a pattern
	example string   // example for messages and for the schema
	number  bool     // the value may also be a YAML number
	maximum int64    // largest number; only if number is set
}

type (
	Text        string // any text that is not empty
	Name        string // fit for a file name
	Path        string // path of a file on this machine
	URL         string // URL of a source; never with a password
	Fingerprint string // SHA-256, hex with or without colons
	UUID        string // lower case
	// IPv4 or IPv6 address; the zero value is unset
	IP   struct{ netip.Addr }
	Size int64 // bytes
	Rate int64 // bytes a second
	// duration such as 1h30m
	Duration time.Duration
	Clock    int // minutes since midnight
	// name of a time zone, such as Europe/Berlin
	Zone string
	Day  string // mon … sun
	// format of images: raw or qcow2
	Format string
	// type of a libvirt domain: kvm or qemu
	DomainType string
	// virtual hardware at the target: compat, virtio or auto
	VMHardware string
	// tool that changes guests: auto, linux-append or virt-v2v
	Engine string
	// transport of disks: https, nfc or landing
	Transport string
	// cold or warm
	Mode string
	// whether a running VM may be powered off: never, guest or force
	PowerOff string
	// method of a landing's copy: auto, api or ssh
	Copy string
	// expression of package selector
	Selection struct{ selector.Expr }
)

// Words of closed lists.
const (
	Cold     Mode = "cold" // the VM is off while it is copied
	WarmMode Mode = "warm" // the VM is copied in rounds while it runs

	NeverOff PowerOff = "never" // a running VM is an obstacle
	GuestOff PowerOff = "guest" // the guest is shut down
	ForceOff PowerOff = "force" // the VM is powered off if the guest does not shut down

	manual   = "manual" // cutover on a command of the user
	inWindow = "window" // cutover within a window
)

// Limits of values.
const (
	maxTextBytes  = 4 << 10              // bytes of a Text
	maxNameBytes  = 63                   // bytes of a Name: the length of a DNS label
	maxSize       = int64(1) << 53       // largest integer that all JSON parsers read exactly
	maxDuration   = 366 * 24 * time.Hour // a year; longer times are mistakes
	minutesOfHour = 60                   // factor between hours and the unit of Clock
	keyMark       = "-----BEGIN"         // start of a PEM file, which is a pasted key
)

// Patterns of values, in the dialect that Go and JSON schema share.
const (
	namePattern     = `^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$`                                                                   // fit for file names and URLs
	uuidPattern     = `^[0-9A-Fa-f]{8}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{12}$`                       // text form of RFC 9562
	sizePattern     = `^[0-9]{1,16}(B|K|M|G|T|KiB|MiB|GiB|TiB)?$`                                                           // bytes, with a binary unit
	ratePattern     = `^[0-9]{1,12}(\.[0-9]{1,6})?[KMG]?$`                                                                  // bytes per second, with a decimal unit
	durationPattern = `^([0-9]+(\.[0-9]+)?(h|m|s|ms))+$`                                                                    // subset of time.ParseDuration without a sign
	clockPattern    = `^([01][0-9]|2[0-3]):[0-5][0-9]$`                                                                     // time of day with 24 hours
	cutoverPattern  = `^(manual|window|[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}(:[0-9]{2})?(Z|[+-][0-9]{2}:[0-9]{2}))$` // a word, or a time of RFC 3339 whose seconds are optional
)

// days of the week, in the order of time.Weekday.
var days = []string{"sun", "mon", "tue", "wed", "thu", "fri", "sat"}

// textForm permits any text.
func (Text) textForm() form { return form{example: "text"} }

// textForm permits letters, digits and some punctuation, without a leading dot.
func (Name) textForm() form { return form{pattern: namePattern, example: "wave-1"} }

// textForm permits one line.
func (Path) textForm() form { return form{pattern: `^[^\n]+$`, example: "/etc/decamp/vc1.password"} }

// textForm excludes a password: no colon before the @.
func (URL) textForm() form {
	return form{pattern: `^(esxi|vcenter)://[^/:]+@[^/]+/?$`, example: "esxi://root@esx1"}
}

// textForm permits colons between the 32 bytes.
func (Fingerprint) textForm() form {
	return form{pattern: `^([0-9A-Fa-f]{2}:?){32}$`, example: "AB:CD:…"}
}

// textForm permits upper and lower case.
func (UUID) textForm() form {
	return form{pattern: uuidPattern, example: "42200b7e-5d1c-4c1f-9a55-0d4f6d1c9a01"}
}

// textForm accepts more than IP addresses; parseText checks the rest.
func (IP) textForm() form { return form{pattern: `^[0-9A-Fa-f:.]+$`, example: "192.0.2.10"} }

// textForm also permits a YAML number of bytes.
func (Size) textForm() form {
	return form{pattern: sizePattern, example: "16G", number: true, maximum: maxSize}
}

// textForm also permits a YAML number of bytes per second.
func (Rate) textForm() form {
	return form{pattern: ratePattern, example: "400M", number: true, maximum: 1e15 - 1}
}
func (Duration) textForm() form   { return form{pattern: durationPattern, example: "1h30m"} }
func (Clock) textForm() form      { return form{pattern: clockPattern, example: `"22:00"`} }
func (Zone) textForm() form       { return form{pattern: `^[A-Za-z0-9_+/-]+$`, example: "Europe/Berlin"} }
func (Day) textForm() form        { return form{words: days} }
func (Format) textForm() form     { return form{words: []string{"raw", "qcow2"}} }
func (DomainType) textForm() form { return form{words: []string{"kvm", "qemu"}} }
func (VMHardware) textForm() form { return form{words: []string{"compat", "virtio", "auto"}} }
func (Engine) textForm() form     { return form{words: []string{"auto", "linux-append", "virt-v2v"}} }
func (Transport) textForm() form  { return form{words: []string{"https", "nfc", "landing"}} }
func (Mode) textForm() form       { return form{words: []string{"cold", "warm"}} }
func (PowerOff) textForm() form   { return form{words: []string{"never", "guest", "force"}} }
func (Copy) textForm() form       { return form{words: []string{"auto", "api", "ssh"}} }
func (Boot) textForm() form       { return Duration(0).textForm() }
func (Cutover) textForm() form    { return form{pattern: cutoverPattern, example: "2026-12-01T02:00Z"} }
func (Selection) textForm() form {
	return form{example: "folder=prod && !poweredOn"}
}

// patterns caches compiled regular expressions by their text.
var patterns sync.Map

// matchesPattern reports whether text matches a regular expression, which is compiled once for the
// process.
func matchesPattern(pattern, text string) bool {
	re, ok := patterns.Load(pattern)
	if !ok {
		re, _ = patterns.LoadOrStore(pattern, regexp.MustCompile(pattern))
	}
	return re.(*regexp.Regexp).MatchString(text)
}

// setMatching sets *to if text matches the pattern of f.
func setMatching[T ~string](to *T, text string, f form) error {
	if !matchesPattern(f.pattern, text) {
		return fmt.Errorf("want text such as %s", f.example)
	}
	*to = T(text)
	return nil
}

// setWord sets *to if text is one of the words of f. The error suggests the nearest word.
func setWord[T ~string](to *T, text string, f form) error {
	if slices.Contains(f.words, text) {
		*to = T(text)
		return nil
	}
	err := fault.New(fault.Invalid, "%q is not one of %s", shorten(text), strings.Join(f.words, ", "))
	if meant, ok := suggest.Word(shorten(text), f.words); ok {
		return err.WithHint("did you mean %s?", meant)
	}
	return err
}

// parseText accepts 1 to maxTextBytes bytes.
func (t *Text) parseText(s string) error {
	if s == "" || len(s) > maxTextBytes {
		return fmt.Errorf("want text of 1 to %d bytes", maxTextBytes)
	}
	*t = Text(s)
	return nil
}

// IsName reports whether s is a valid name of a plan, place or credential.
func IsName(s string) bool { return matchesPattern(namePattern, s) }

// parseText accepts what IsName accepts.
func (n *Name) parseText(s string) error {
	if !IsName(s) {
		return fmt.Errorf("want a name of letters, digits, dots, dashes and underscores, %d at the most", maxNameBytes)
	}
	*n = Name(s)
	return nil
}

// parseText accepts one line that is not a PEM key. Its error does not repeat the value, which may be a
// pasted key.
func (p *Path) parseText(s string) error {
	if s == "" || strings.ContainsAny(s, "\n\x00") || strings.Contains(s, keyMark) {
		return fault.New(fault.Invalid, "the value must be the name of a file, not its content").WithHint("a plan contains no secrets: write it to a file that only you can read")
	}
	*p = Path(s)
	return nil
}

// parseText accepts URLs that esx.ParseURL accepts, which have no password. It also refuses blanks in
// the host and an empty port.
func (u *URL) parseText(s string) error {
	parsed, err := esx.ParseURL(s)
	if err != nil {
		return err
	}
	if host, port := parsed.Hostname(), parsed.Port(); strings.ContainsAny(host, " \t") || port == "" && strings.HasSuffix(parsed.Host, ":") {
		return errors.New("want HOST or HOST:PORT")
	}
	*u = URL(s)
	return nil
}

// VCenter reports whether the source is a vCenter.
func (u URL) VCenter() bool { return strings.HasPrefix(string(u), "vcenter:") }

// parseText accepts 64 hexadecimal digits, with or without colons.
func (f *Fingerprint) parseText(s string) error {
	if raw, err := hex.DecodeString(strings.ReplaceAll(s, ":", "")); err != nil || len(raw) != 32 {
		return errors.New("want a SHA-256: 64 digits, with or without colons")
	}
	return setMatching(f, s, f.textForm())
}

// parseText converts to lower case.
func (u *UUID) parseText(s string) error { return setMatching(u, strings.ToLower(s), u.textForm()) }

// parseText accepts IPv4 and IPv6 addresses.
func (i *IP) parseText(s string) (err error) {
	if i.Addr, err = netip.ParseAddr(s); err != nil {
		return errors.New("want an IP address such as 192.0.2.10")
	}
	return nil
}

// parseText accepts sizes with binary units, up to maxSize.
func (n *Size) parseText(s string) error {
	v, err := units.ParseSize(s)
	if err == nil && v > maxSize {
		err = fmt.Errorf("size %q is too large", s)
	}
	*n = Size(v)
	return err
}

// parseText accepts rates with decimal units.
func (r *Rate) parseText(s string) error {
	if !matchesPattern(ratePattern, s) {
		return fault.New(fault.Invalid, "rate %q: want bytes a second with K, M or G", s).WithHint("write 400M for 400 MB/s; a link of 10 Gbit/s has 1250M")
	}
	v, err := units.ParseRate(s)
	*r = Rate(v)
	return err
}

// parseText accepts durations of time.ParseDuration without a sign, up to maxDuration.
func (d *Duration) parseText(s string) error {
	v, err := time.ParseDuration(s)
	if err != nil || !matchesPattern(durationPattern, s) || v > maxDuration {
		return errors.New("want a time such as 30s, 5m or 1h30m")
	}
	*d = Duration(v)
	return nil
}

// parseText accepts 00:00 to 23:59.
func (c *Clock) parseText(s string) error {
	var h, m int
	if !matchesPattern(clockPattern, s) {
		return errors.New(`want a time of day such as "22:00"`)
	}
	_, err := fmt.Sscanf(s, "%d:%d", &h, &m)
	*c = Clock(h*minutesOfHour + m)
	return err
}

// parseText accepts zones of the IANA database, which is compiled in. Local is refused: it means
// another zone on each machine.
func (z *Zone) parseText(s string) error {
	if err := setMatching(z, s, z.textForm()); err != nil {
		return err
	}
	if _, err := time.LoadLocation(s); err != nil || s == "Local" {
		return fault.New(fault.Invalid, "time zone %q does not exist", s).WithHint("write a name such as Europe/Berlin, or UTC")
	}
	return nil
}

func (d *Day) parseText(s string) error        { return setWord(d, s, d.textForm()) }
func (f *Format) parseText(s string) error     { return setWord(f, s, f.textForm()) }
func (d *DomainType) parseText(s string) error { return setWord(d, s, d.textForm()) }
func (h *VMHardware) parseText(s string) error { return setWord(h, s, h.textForm()) }
func (e *Engine) parseText(s string) error     { return setWord(e, s, e.textForm()) }
func (t *Transport) parseText(s string) error  { return setWord(t, s, t.textForm()) }
func (m *Mode) parseText(s string) error       { return setWord(m, s, m.textForm()) }
func (p *PowerOff) parseText(s string) error   { return setWord(p, s, p.textForm()) }
func (c *Copy) parseText(s string) error       { return setWord(c, s, c.textForm()) }

// Boot is the boot time of a guest, if known.
type Boot struct {
	Known bool          // false if the plan does not set the boot time
	Time  time.Duration // boot time of the guest; 0 is possible
}

// parseText accepts what Duration accepts.
func (b *Boot) parseText(s string) error {
	b.Known = true
	return (*Duration)(&b.Time).parseText(s)
}

// Cutover determines when a warm migration ends: on a command (the zero value), in a window, or at a
// time.
type Cutover struct {
	Window bool      // the cutover waits for the window of the plan
	At     time.Time // zero without a time
}

// cutoverForms are the layouts of a time: RFC 3339, with or without seconds.
var cutoverForms = []string{time.RFC3339, "2006-01-02T15:04Z07:00"}

// parseText accepts manual, window, or a time with its zone.
func (c *Cutover) parseText(s string) error {
	*c = Cutover{Window: s == inWindow}
	if s == manual || s == inWindow {
		return nil
	}
	for _, form := range cutoverForms {
		if at, err := time.Parse(form, s); err == nil && matchesPattern(cutoverPattern, s) {
			c.At = at
			return nil
		}
	}
	return errors.New("want manual, window, or a time with its zone, as 2026-12-01T02:00Z")
}

// parseText parses the expression; the error has the column and a remedy.
func (s *Selection) parseText(text string) (err error) {
	if s.Expr, err = selector.Parse(text); err != nil {
		return fault.New(fault.Invalid, "%w", err).WithHint("%s", selector.RemedyOf(err))
	}
	return nil
}
