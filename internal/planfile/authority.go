package planfile

import (
	"fmt"
	"maps"
	"net/url"
	"reflect"
	"slices"
	"strings"

	"github.com/decamp/decamp/internal/fault"
)

// Role is the authority with which a plan is executed. The zero value permits nothing.
type Role string

// Roles of plans.
const (
	Operate Role = "operate" // a submitted plan that names no path but offered folders, and no secret
	Admin   Role = "admin"   // a submitted plan that may name paths and secrets
	Local   Role = "local"   // a plan of the user who runs the command, with the user's own files and terminal
)

// Class determines which roles may set a key, and how its value is checked.
type Class int

// Classes of keys. An unclassified key is treated as adminOnly.
const (
	unclassified Class = iota // no class was assigned; treated as adminOnly
	harmless                  // any value, from any role
	offered                   // a destination: a folder that a worker offers, or a named place
	named                     // the name of a credential, or a value that the credential is bound to
	adminOnly                 // a path, a secret, a command, or an address that data or logins go to
)

// classes contains the class of every key of a plan, by type and field. A new key requires an entry:
// TestEveryKeyIsClassified fails for a key without one.
var classes = map[string]Class{
	"File.Version": harmless, "File.Name": harmless, "File.Select": harmless,
	"File.Weight": harmless, // a plan of weight 100 leaves every other plan a transfer, where two or more fit

	"Source.URL": named, "Source.Fingerprint": named,
	"Source.Direct": harmless, // hosts that the vCenter names, with tickets of the vCenter

	"Credentials.Name": named,
	"Credentials.File": adminOnly,

	"SSH.Enable":   harmless,
	"SSH.User":     adminOnly, // an SSH credential has user, port, key and host keys
	"SSH.Port":     adminOnly,
	"SSH.Key":      adminOnly,
	"SSH.HostKeys": adminOnly,

	"VM.VM": harmless, "VM.UUID": harmless,

	"Options.To":     offered,
	"Options.Format": harmless, "Options.DomainType": harmless, "Options.Hardware": harmless, "Options.Engine": harmless,
	"Options.VirtioWin":  adminOnly,
	"Options.KeyFiles":   adminOnly,
	"Options.Kernel":     adminOnly,
	"Options.GuestAgent": harmless, "Options.Transport": harmless, "Options.Connections": harmless, "Options.Mode": harmless,
	"Options.PowerOff": harmless, "Options.ShutdownWait": harmless, "Options.Priority": harmless, "Options.SourceHash": harmless,
	"Options.Trial": harmless, "Options.Expect": harmless, "Options.Start": harmless,

	"NFC.Handles": harmless, "NFC.Buffer": harmless, "NFC.Buffers": harmless,
	"NFC.Network": harmless,  // chooses among the addresses that the host itself reports
	"NFC.Plain":   adminOnly, // disks would cross the network in clear

	"Landing.Memory": harmless, "Landing.Copy": harmless,
	"Landing.Advertise": adminOnly, // hosts would write the disks to that address
	"Landing.Listen":    adminOnly,
	"Landing.Portmap":   adminOnly,
	"Landing.Allow":     adminOnly, // the hosts could read and write the images

	"Warm.Interval": harmless, "Warm.Cutover": harmless, "Warm.DowntimeBudget": harmless, "Warm.Boot": harmless, "Warm.Paranoid": harmless,
	"Window.Days": harmless, "Window.From": harmless, "Window.To": harmless, "Window.Zone": harmless,

	"Maps.Datastores":  offered,
	"Mapping.Storages": harmless, "Mapping.Names": harmless,
	"Network.To": harmless, "Network.VLAN": harmless, "Network.Model": harmless,

	"HostLimits.VMs": harmless, "HostLimits.Disks": harmless, "Bandwidth.Rate": harmless,
	"Spot.First": harmless, "Spot.Ranges": harmless, "Spot.Off": harmless,

	"Hook.Command": adminOnly,
	"Hook.Timeout": harmless,
}

// addressClasses contains the class of the part of a destination between KIND: and the question mark.
var addressClasses = map[string]Class{
	Dir: offered, KubeVirt: offered, // a folder
	Place:   named,
	Libvirt: adminOnly, Proxmox: adminOnly, OpenStack: adminOnly, // an address that the worker logs in to
}

// parameterClasses contains the class of each parameter of a destination, by kind. A test of package
// assemble compares them with the parameters that the parser of each kind accepts.
var parameterClasses = map[string]map[string]Class{
	Dir:   {},
	Place: {stageKey: offered},
	KubeVirt: {
		"namespace": harmless, "storageClass": harmless, "accessMode": harmless, "volumeMode": harmless, "network": harmless,
		"kubeconfig": adminOnly, "context": adminOnly, "uploadProxy": adminOnly,
	},
	Libvirt: {stageKey: offered, "pool": harmless, "socket": adminOnly, "keyfile": adminOnly, "known_hosts": adminOnly, "pkipath": adminOnly},
	Proxmox: {
		stageKey: offered, "storage": harmless, "import": harmless, "bridge": harmless, "cpu": harmless,
		"fingerprint": adminOnly, "token": adminOnly, "ssh": adminOnly, "keyfile": adminOnly, "known_hosts": adminOnly,
	},
	OpenStack: {
		stageKey: offered, "flavor": harmless, "network": harmless, "volumeType": harmless, "availabilityZone": harmless,
		"boot": harmless, "format": harmless, "mac": harmless,
		"project": adminOnly, // another project of the same login
	},
}

// Unclassified returns the keys of the schema without a class. It is not empty only if a class was
// forgotten.
func Unclassified() []string {
	var missing []string
	eachLeaf(reflect.TypeFor[File](), func(field string) {
		if classes[field] == unclassified && !slices.Contains(missing, field) {
			missing = append(missing, field)
		}
	})
	return missing
}

// UnclassifiedParameters returns those parameters of a destination kind that have no class.
func UnclassifiedParameters(kind string, parameters []string) []string {
	return slices.DeleteFunc(slices.Clone(parameters), func(p string) bool { return parameterClasses[kind][p] != unclassified })
}

// eachLeaf calls visit for each field of t that has a value, as Type.Field. It descends into structs,
// and into the elements of lists and maps.
func eachLeaf(t reflect.Type, visit func(field string)) {
	for _, k := range keysOf(t) {
		switch inner := leafOrStruct(k.typ); {
		case inner == nil:
			visit(fieldName(t, k.index))
		default:
			eachLeaf(inner, visit)
		}
	}
}

// leafOrStruct returns the struct type that values of t consist of; nil if t itself is a value, or a
// list or map of values.
func leafOrStruct(t reflect.Type) reflect.Type {
	for {
		switch _, isScalar := reflect.New(t).Interface().(scalar); {
		case isScalar:
			return nil
		case t.Kind() == reflect.Struct:
			return t
		case t.Kind() != reflect.Slice && t.Kind() != reflect.Map:
			return nil
		}
		t = t.Elem()
	}
}

// fieldName returns Type.Field for the field of t at an index. Type is the struct that declares the
// field, also for an inlined one.
func fieldName(t reflect.Type, index []int) string {
	owner := t
	if last := len(index) - 1; last > 0 {
		owner = t.FieldByIndex(index[:last]).Type
	}
	return owner.Name() + "." + t.FieldByIndex(index).Name
}

// walker visits the values that the text of a file sets.
type walker struct {
	file  *File                                           // the visited file; it has the positions of its keys
	keys  map[reflect.Type][]key                          // keys of each struct type, computed once
	visit func(path string, class Class, v reflect.Value) // called with the path, the class and the value of each key
}

// eachSet calls visit for each value that the text of the file sets. Values from defaults are not
// visited.
func (f *File) eachSet(visit func(path string, class Class, v reflect.Value)) {
	w := &walker{f, map[reflect.Type][]key{}, visit}
	w.visitStruct(reflect.ValueOf(f).Elem(), "")
}

// visitStruct visits the keys of a struct that are in the text.
func (w *walker) visitStruct(v reflect.Value, path string) {
	t := v.Type()
	if w.keys[t] == nil {
		w.keys[t] = keysOf(t)
	}
	for _, k := range w.keys[t] {
		each := joinPath(path, k.name)
		if _, set := w.file.positions[each]; set {
			w.visitValue(v.FieldByIndex(k.index), each, classes[fieldName(t, k.index)])
		}
	}
}

// visitValue visits v if it is a scalar, or else each of its parts. class is the class of the key that
// contains v.
func (w *walker) visitValue(v reflect.Value, path string, class Class) {
	if _, isScalar := reflect.New(v.Type()).Interface().(scalar); isScalar {
		w.visit(path, class, v)
		return
	}
	switch v.Kind() {
	case reflect.Struct:
		w.visitStruct(v, path)
	case reflect.Slice:
		for i := range v.Len() {
			w.visitValue(v.Index(i), fmt.Sprintf("%s[%d]", path, i), class)
		}
	case reflect.Map:
		for name, each := range v.Seq2() {
			w.visitValue(each, path+"."+name.String(), class)
		}
	default:
		w.visit(path, class, v)
	}
}

// Privileged is a key of a plan that only the role admin may set.
type Privileged struct {
	Path   string // such as hooks.pre.command
	Pos    Pos    // position of the key in the text
	Reason string // part of a destination; empty for other keys
}

// String returns the path, the reason if there is one, and the line.
func (p Privileged) String() string {
	text := p.Path
	if p.Reason != "" {
		text += " (" + p.Reason + ")"
	}
	return fmt.Sprintf("%s in line %d", text, p.Pos.Line)
}

// AdminOnly returns the keys of the plan that only the role admin may set, in the order of the text. A
// list of commands or files is one key.
func (f *File) AdminOnly() []Privileged {
	seen := map[string]bool{}
	var all []Privileged
	add := func(path, why string) {
		if !seen[path] {
			seen[path] = true
			all = append(all, Privileged{path, f.At(path), why})
		}
	}
	f.eachSet(func(path string, class Class, v reflect.Value) {
		switch class {
		case harmless, named:
		case offered:
			if why := Destination(v.String()).adminOnlyPart(); why != "" {
				add(path, why)
			}
		default:
			key, _, _ := strings.Cut(path[strings.LastIndexByte(path, '.')+1:], "[")
			add(path[:strings.LastIndexByte(path, '.')+1]+key, "")
		}
	})
	slices.SortStableFunc(all, func(a, b Privileged) int {
		if a.Pos.Line != b.Pos.Line {
			return a.Pos.Line - b.Pos.Line
		}
		return a.Pos.Column - b.Pos.Column
	})
	return all
}

// adminOnlyPart returns the part of a destination that only the role admin may set; empty if there is
// none.
func (d Destination) adminOnlyPart() string {
	kind := d.Kind()
	switch addressClasses[kind] {
	case offered, named:
	default:
		return "an address of " + kind
	}
	_, query, found := strings.Cut(string(d), "?")
	if kind == Dir || !found {
		return ""
	}
	parameters, err := url.ParseQuery(query)
	if err != nil {
		return "parameters that cannot be read"
	}
	for _, name := range slices.Sorted(maps.Keys(parameters)) {
		switch parameterClasses[kind][name] {
		case harmless, offered:
		default:
			return "parameter " + name
		}
	}
	return ""
}

// Destinations returns all destinations that the plan sets, each once, in the order of the schema.
func (f *File) Destinations() []Destination {
	var all []Destination
	f.eachSet(func(_ string, _ Class, v reflect.Value) {
		if d, is := v.Interface().(Destination); is && !slices.Contains(all, d) {
			all = append(all, d)
		}
	})
	return all
}

// maxKeysListed is the number of keys that a message lists.
const maxKeysListed = 5

// Enumerate lists keys for a message: at most maxKeysListed, then the number of the others.
func Enumerate(keys []Privileged) string {
	var words []string
	for _, k := range keys[:min(len(keys), maxKeysListed)] {
		words = append(words, k.String())
	}
	if more := len(keys) - maxKeysListed; more > 0 {
		words = append(words, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(words, ", ")
}

// checkRole returns fault.Denied if a plan with that role must not set one of its keys, or if the role
// must not submit plans.
func (f *File) checkRole(role Role) error {
	if role == Admin || role == Local {
		return nil
	}
	keys := f.AdminOnly()
	if len(keys) == 0 && role == Operate {
		return nil
	}
	if len(keys) == 0 {
		return fault.New(fault.Denied, "the role %q may not submit a plan", string(role)).WithHint("use a token with the role operate or admin")
	}
	return fault.New(fault.Denied, "plan %s sets keys that require the role admin: %s", f.Name, Enumerate(keys)).
		WithHint("remove them: an administrator names credentials and places in access.yaml, and the plan uses credentials: {name: NAME} and to: [place:NAME?staging=/FOLDER]; or have an administrator submit the plan")
}
