package gather

import (
	"encoding/json"
	"net/url"
	"path"
	"regexp"
	"slices"
	"strings"
)

// freeKeys are keys of texts for users, which contain names among other words.
var freeKeys = words(`message text hint reason waitReason found want remedy title error err stop manualCommand detail details on`)

// safeKeys are keys whose values are words of decamp.
var safeKeys = words(`time created since began ended at kind step state command mode format transport version hardware engine power firmware code status severity what next
	days from zone notBefore expires alive role ref runs go platform os kernel arch level msg requested controller controllertype guestid guest worst class decamp schema`)

// safeWords are values of other keys that are words of decamp.
var safeWords = words(`cold warm raw qcow2 https nfc landing never guest force manual compat virtio kvm qemu auto linux-append virt-v2v true false none admin operate view local
	esxi vcenter dir libvirt proxmox openstack kubevirt place sha256 vmfs nfs on off mon tue wed thu fri sat sun root
	preflight prepare copy detect convert verify commit wait compat`)

// kinds are the kinds of names by key.
var kinds = map[string]string{
	"vm": "vm", "name": "name", "source": "host", "names": "vm", "plan": "plan", "host": "host", "server": "host", "worker": "host", "addr": "host", "endpoint": "host",
	"datastore": "datastore", "datastores": "datastore", "storage": "storage", "network": "network", "networks": "network", "folder": "folder", "dir": "folder",
	"by": "user", "user": "user", "owner": "user", "account": "user", "file": "file", "path": "file",
	"uuid": "uuid", "instanceuuid": "uuid", "fingerprint": "fingerprint", "sha256": "fingerprint",
}

// words returns the words of a text as a set, in lower case.
func words(text string) map[string]bool {
	set := map[string]bool{}
	for _, w := range strings.Fields(text) {
		set[strings.ToLower(w)] = true
	}
	return set
}

// runID matches the ID of a run: words of the VM's name, and a random part.
var runID = regexp.MustCompile(`^(.+)-[0-9a-f]{6}$`)

// harvest adds the names in a JSON value. Unknown keys count as names.
func (p *pseudonyms) harvest(v any) { p.harvestKey("", "", v) }

// harvestKey adds the names in the value of a key, in the value of the key above.
func (p *pseudonyms) harvestKey(above, key string, v any) {
	lower := strings.ToLower(key)
	switch x := v.(type) {
	case map[string]any:
		if id, name, ok := runOf(x); ok {
			p.addName("vm", name)
			p.addAlias(name, id)
		}
		for _, k := range sortedKeys(x) {
			if slices.Contains([]string{"networks", "datastores", "names", "hosts"}, lower) { // maps from names
				p.addText(kinds[lower], k)
			}
			p.harvestKey(lower, k, x[k])
		}
	case []any:
		for _, each := range x {
			p.harvestKey(above, key, each)
		}
	case string:
		p.harvestText(above, lower, x)
	}
}

// runOf returns the words of a run's ID and the name of its VM, if x describes a run.
func runOf(x map[string]any) (slug, name string, ok bool) {
	id, _ := x["id"].(string)
	vm, _ := x["vm"].(map[string]any)
	name, _ = vm["name"].(string)
	m := runID.FindStringSubmatch(id)
	if m == nil || name == "" {
		return "", "", false
	}
	return m[1], name, true
}

// harvestText adds the names in the text of a key, both in lower case.
func (p *pseudonyms) harvestText(above, key, text string) {
	switch {
	case freeKeys[key] || safeKeys[key] || isTime(text):
	case kinds[key] == "" && safeWords[strings.ToLower(text)]:
	case key == "id" || key == "run":
		if m := runID.FindStringSubmatch(text); m != nil {
			p.addName("vm", m[1])
		}
	case key == "name" && above == "stages": // a step
	case key == "name" && (above == "vm" || above == "vms"):
		p.addName("vm", text)
	default:
		p.addText(kinds[key], text)
	}
}

// addText adds a name, or the names in a URL or a path.
func (p *pseudonyms) addText(kind, text string) {
	if kind == "" {
		kind = "name"
	}
	if scheme, rest, ok := strings.Cut(text, ":"); ok && strings.HasPrefix(rest, "/") {
		p.addURL(scheme, text, rest)
		return
	}
	if store, file, ok := strings.Cut(strings.TrimPrefix(text, "["), "] "); ok && strings.HasPrefix(text, "[") {
		p.addName("datastore", store)
		p.addComponents(file)
		return
	}
	switch {
	case kind == "user":
		p.addAccount(text)
	case strings.HasPrefix(text, "/"):
		p.addName("folder", path.Clean(text))
	case kind == "file" || strings.Contains(text, "/"):
		p.addComponents(text)
		p.addName(kind, text)
	default:
		if host, port, ok := strings.Cut(text, ":"); ok && isNumber(port) {
			text = host
		}
		if user, host, ok := strings.Cut(text, "@"); ok {
			p.addAccount(user)
			text = host
		}
		p.addName(kind, text)
	}
}

// addURL adds the user, the host and the folders of a URL or a destination.
func (p *pseudonyms) addURL(scheme, text, rest string) {
	u, err := url.Parse(text)
	if err != nil {
		p.addName("address", rest)
		return
	}
	if u.User != nil {
		p.addAccount(u.User.Username())
		if secret, ok := u.User.Password(); ok {
			p.addSecret(secret)
		}
	}
	if u.Hostname() != "" {
		p.addName("host", u.Hostname())
	}
	if u.Host == "" && strings.HasPrefix(u.Path, "/") {
		p.addName("folder", path.Clean(u.Path))
	} else if strings.Trim(u.Path, "/") != "" && scheme != "qemu" {
		p.addComponents(u.Path)
	}
	for key, values := range u.Query() {
		for _, v := range values {
			if key != "" && !safeWords[strings.ToLower(v)] {
				p.addText("name", v)
			}
		}
	}
}

// addAccount adds the name of a user, and its domain.
func (p *pseudonyms) addAccount(user string) {
	name, domain, _ := strings.Cut(user, "@")
	if !safeWords[strings.ToLower(name)] {
		p.addName("user", name)
	}
	if domain != "" {
		p.addName("domain", domain)
	}
}

// addComponents adds the parts of a path, without the extensions of files.
func (p *pseudonyms) addComponents(file string) {
	for part := range strings.SplitSeq(file, "/") {
		part = strings.TrimSuffix(strings.TrimSuffix(part, path.Ext(part)), "-flat")
		if len(part) >= minSubstring && !isNumber(part) && !safeWords[strings.ToLower(part)] {
			p.addName("folder", part)
		}
	}
}

// isNumber reports whether s has digits only.
func isNumber(s string) bool { return s != "" && strings.Trim(s, "0123456789") == "" }

// logKeys are the keys of fields of a log that contain names.
var logKeys = words(`vm host datastore server user addr folder path url network storage plan run file name to source target worker endpoint receiver`)

// logField matches a field of a log as text.
var logField = regexp.MustCompile(`\b([a-z]+)=("(?:[^"\\]|\\.)*"|\S+)`)

// harvestLog adds the names in the fields of a log, as text or as one JSON object in each line.
func (p *pseudonyms) harvestLog(text string) {
	for line := range strings.Lines(text) { // regexp is slow on long texts
		var fields map[string]any
		if at := strings.IndexByte(line, '{'); at >= 0 && json.Unmarshal([]byte(line[at:]), &fields) == nil {
			for _, key := range sortedKeys(fields) {
				if value, isText := fields[key].(string); isText && logKeys[key] {
					p.harvestText("", key, value)
				}
			}
			continue
		}
		if !strings.Contains(line, "=") {
			continue
		}
		for _, m := range logField.FindAllStringSubmatch(line, -1) {
			if !logKeys[m[1]] {
				continue
			}
			value := m[2]
			if strings.HasPrefix(value, `"`) && json.Unmarshal([]byte(value), &value) != nil {
				value = strings.Trim(m[2], `"`)
			}
			p.harvestText("", m[1], value)
		}
	}
}

// replaceJSON returns v with all texts replaced.
func (p *pseudonyms) replaceJSON(key string, v any) any {
	switch x := v.(type) {
	case map[string]any:
		out := map[string]any{}
		for _, k := range sortedKeys(x) {
			name := k
			if p.byName[strings.ToLower(k)] != "" && kinds[strings.ToLower(k)] == "" && !safeKeys[strings.ToLower(k)] && !freeKeys[strings.ToLower(k)] {
				name = p.replace(k)
			}
			out[name] = p.replaceJSON(strings.ToLower(k), x[k])
		}
		return out
	case []any:
		out := make([]any, len(x))
		for i, each := range x {
			out[i] = p.replaceJSON(key, each)
		}
		return out
	case string:
		if pseudonym := p.byName[strings.ToLower(x)]; pseudonym != "" && !p.keepNames { // also names of one letter
			return pseudonym
		}
		if isTime(x) {
			return x
		}
		return p.replace(x)
	}
	return v
}

// timeForm matches a time in the format of RFC 3339.
var timeForm = regexp.MustCompile(`^\d{4}-\d\d-\d\dT[\d:.]+(Z|[+-]\d\d:\d\d)$`)

// isTime reports whether s is a time.
func isTime(s string) bool { return timeForm.MatchString(s) }

// sortedKeys returns the keys of m in alphabetical order, so that pseudonyms do not depend on chance.
func sortedKeys(m map[string]any) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}
