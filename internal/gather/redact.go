package gather

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"net/netip"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// removed replaces secrets.
const removed = "[removed]"

// minSubstring is the length from which a name is also replaced inside of words. A shorter one would
// occur in many.
const minSubstring = 4

// pseudonyms replaces names in texts. The same name gets the same pseudonym in all texts. It is not safe
// for concurrent use.
type pseudonyms struct {
	keepNames bool
	byName    map[string]string // pseudonym by name in lower case
	spellings map[string]bool   // names as they were written
	used      map[string]int    // number of pseudonyms by kind
	secrets   []string          // texts that are always removed

	longer  *strings.Replacer         // replaces names of minSubstring and more; nil after a change
	shorter map[string]string         // other names by their forms
	words   *regexp.Regexp            // matches the keys of shorter as whole words; nil without any
	values  map[string]map[string]int // pseudonyms of matches of patterns, by kind
}

// newPseudonyms returns pseudonyms without names.
func newPseudonyms(keepNames bool) *pseudonyms {
	return &pseudonyms{keepNames: keepNames, byName: map[string]string{}, spellings: map[string]bool{}, used: map[string]int{}, values: map[string]map[string]int{}}
}

// addName adds a name of a kind, such as vm. A name keeps its first kind.
func (p *pseudonyms) addName(kind, name string) {
	key := strings.ToLower(name)
	if strings.TrimSpace(name) == "" || p.spellings[name] {
		return
	}
	p.spellings[name], p.longer = true, nil
	if p.byName[key] != "" {
		return
	}
	p.used[kind]++
	p.byName[key], p.longer = fmt.Sprintf("<%s%d>", kind, p.used[kind]), nil
}

// addAlias gives another form of a name the pseudonym of the name.
func (p *pseudonyms) addAlias(name, alias string) {
	if known, key := p.byName[strings.ToLower(name)], strings.ToLower(alias); known != "" && p.byName[key] == "" && len(alias) > 1 {
		p.byName[key], p.longer = known, nil
	}
}

// addSecret adds a text that is always removed.
func (p *pseudonyms) addSecret(s string) {
	if s = strings.TrimSpace(s); len(s) >= minSubstring {
		p.secrets, p.longer = append(p.secrets, s), nil
	}
}

// formsOf returns the forms in which a name occurs in texts: as it is, in other cases, and escaped for JSON,
// URLs, shells and datastore paths.
func formsOf(name string) []string {
	forms := []string{name, strings.ToLower(name), strings.ToUpper(name), strings.ToLower(toSlug(name))}
	vmware := strings.NewReplacer("%", "%25", "/", "%2f", `\`, "%5c").Replace(name)
	visible := strings.Map(func(r rune) rune {
		if !strconv.IsPrint(r) {
			return '?'
		}
		return r
	}, name)
	quoted, ascii := strconv.Quote(name), strconv.QuoteToASCII(name)
	forms = append(forms, url.PathEscape(name), url.QueryEscape(name), url.PathEscape(vmware), vmware, visible, quoted[1:len(quoted)-1], ascii[1:len(ascii)-1], strings.ReplaceAll(name, "'", `'\''`))
	if text, err := json.Marshal(name); err == nil {
		forms = append(forms, strings.Trim(string(text), `"`))
	}
	slices.Sort(forms)
	return slices.Compact(forms)
}

// toSlug replaces the characters that names of files and of runs do not have.
func toSlug(name string) string {
	return strings.Trim(strings.Map(func(r rune) rune {
		if r < utf8.RuneSelf && (unicode.IsLetter(r) || unicode.IsDigit(r) || r == '.' || r == '_') {
			return r
		}
		return '-'
	}, name), "-")
}

// prepare compiles the replacements, the longest first.
func (p *pseudonyms) prepare() {
	forms := map[string]string{}
	if !p.keepNames {
		names := slices.Concat(slices.Sorted(maps.Keys(p.byName)), slices.Sorted(maps.Keys(p.spellings)))
		for _, name := range names {
			for _, form := range formsOf(name) {
				if exact := p.byName[strings.ToLower(form)]; exact != "" {
					forms[form] = exact // the form is another name
				} else {
					forms[form] = p.byName[strings.ToLower(name)]
				}
			}
		}
	}
	for _, s := range p.secrets {
		for _, form := range formsOf(s) {
			forms[form] = removed
		}
	}
	names := make([]string, 0, len(forms))
	for form := range forms {
		names = append(names, form)
	}
	slices.SortFunc(names, func(x, y string) int { return cmp.Or(cmp.Compare(len(y), len(x)), cmp.Compare(x, y)) })
	var pairs, short []string
	p.shorter = map[string]string{}
	for _, form := range names {
		switch {
		case len(form) >= minSubstring:
			pairs = append(pairs, form, forms[form])
		case len(form) > 1:
			p.shorter[form], short = forms[form], append(short, regexp.QuoteMeta(form))
		}
	}
	p.longer, p.words = strings.NewReplacer(pairs...), nil
	if len(short) > 0 {
		p.words = regexp.MustCompile(`\b(?:` + strings.Join(short, "|") + `)\b`)
	}
}

// replace returns text without secrets, names and addresses.
func (p *pseudonyms) replace(text string) string {
	if p.longer == nil {
		p.prepare()
	}
	if strings.Contains(text, "-----BEGIN") {
		text = privateBlock.ReplaceAllString(text, removed)
	}
	var b strings.Builder
	for line := range strings.Lines(text) { // regexp is slow on long texts
		b.WriteString(p.replaceLine(line))
	}
	return b.String()
}

// replaceLine is replace for a line.
func (p *pseudonyms) replaceLine(text string) string {
	for _, s := range secretPatterns {
		if strings.ContainsAny(text, s.needs) {
			text = s.pattern.ReplaceAllString(text, "${1}"+removed+"${2}")
		}
	}
	text = p.longer.Replace(text)
	if p.words != nil {
		text = p.replaceWords(text)
	}
	if p.keepNames {
		return text
	}
	for _, c := range namePatterns {
		if !strings.Contains(text, c.needs) {
			continue
		}
		text = c.pattern.ReplaceAllStringFunc(text, func(match string) string {
			if c.accepts != nil && !c.accepts(match) {
				return match
			}
			return p.valueOf(c.kind, match)
		})
	}
	return text
}

// replaceWords replaces short names, unless they are the key of a field of a log.
func (p *pseudonyms) replaceWords(text string) string {
	var b strings.Builder
	end := 0
	for _, at := range p.words.FindAllStringIndex(text, -1) {
		if strings.HasPrefix(text[at[1]:], "=") {
			continue
		}
		b.WriteString(text[end:at[0]] + p.shorter[text[at[0]:at[1]]])
		end = at[1]
	}
	return b.String() + text[end:]
}

// valueOf returns the pseudonym of a match of a pattern.
func (p *pseudonyms) valueOf(kind, match string) string {
	if p.values[kind] == nil {
		p.values[kind] = map[string]int{}
	}
	n, known := p.values[kind][match]
	if !known {
		n = len(p.values[kind]) + 1
		p.values[kind][match] = n
	}
	return fmt.Sprintf("<%s%d>", kind, n)
}

// privateBlock matches keys and certificates as text.
var privateBlock = regexp.MustCompile(`(?s)-----BEGIN [A-Z ]+-----.*?-----END [A-Z ]+-----`)

// secretPatterns match secrets in texts that should not contain any, between two groups that stay.
var secretPatterns = []struct {
	needs   string // a text without any of these characters does not match
	pattern *regexp.Regexp
}{
	{"@", regexp.MustCompile(`(://[^/\s:@"]*:)[^/\s"]+(@)`)},
	{"=:", regexp.MustCompile(`(?i)((?:password|passwd|passphrase|secret|token|cookie|session|api[-_]?key)["']?\s*[:=]\s*["']?)[^\s"',;}\]]+()`)},
	{"Bb", regexp.MustCompile(`(?i)(\b(?:bearer|basic)\s+)[A-Za-z0-9._~+/=-]{8,}()`)},
}

// namePatterns match names and addresses that no structured text contained. None matches a pseudonym,
// because of its brackets.
var namePatterns = []struct {
	kind    string
	needs   string // a text without this text does not match
	pattern *regexp.Regexp
	accepts func(string) bool // further condition; nil: none
}{
	{"uuid", "-", regexp.MustCompile(`(?i)\b[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}\b`), nil},
	{"fingerprint", ":", regexp.MustCompile(`(?i)\b[0-9a-f]{2}(?::[0-9a-f]{2}){15,}\b|\bSHA256:[A-Za-z0-9+/=]{20,}`), nil},
	{"mac", ":", regexp.MustCompile(`(?i)\b[0-9a-f]{2}(?::[0-9a-f]{2}){5}\b`), nil},
	{"mac", "-", regexp.MustCompile(`(?i)\b[0-9a-f]{2}(?:-[0-9a-f]{2}){5}\b`), nil},
	{"addr", ".", regexp.MustCompile(`\b\d{1,3}(?:\.\d{1,3}){3}\b`), isAddress},
	{"addr", "::", regexp.MustCompile(`[0-9a-fA-F:]*::[0-9a-fA-F:]*`), isAddress},
	{"addr", ":", regexp.MustCompile(`\b[0-9a-fA-F]{1,4}(?::[0-9a-fA-F]{1,4}){7}\b`), isAddress},
	{"account", "@", regexp.MustCompile(`[A-Za-z0-9._+-]+@[A-Za-z0-9._-]+`), nil},
	{"host", ".", regexp.MustCompile(`\b[A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)+\.[A-Za-z]{2,}\b`), nil},
	{"disk", "] ", regexp.MustCompile(`\[[^\[\]\n"]+\] [^\s"',;]+\.(?:vmdk|vmx|nvram|vswp)`), nil},
	{"path", "/", regexp.MustCompile(`(?:/[A-Za-z0-9._+~%@-]+){2,}`), isPrivatePath},
}

// isAddress reports whether s is an IP address.
func isAddress(s string) bool {
	_, err := netip.ParseAddr(s)
	return err == nil && len(s) > 2
}

// isPrivatePath reports whether a path may contain names of the user.
func isPrivatePath(path string) bool {
	for _, prefix := range []string{"/proc/", "/sys/", "/dev/", "/usr/", "/etc/", "/lib/", "/bin/", "/sbin/", "/boot/", "/v1/", "/vmfs/", "/var/lib/decamp"} {
		if strings.HasPrefix(path, prefix) {
			return false
		}
	}
	return true
}
