package planfile

import (
	"bytes"
	"maps"
	"reflect"
	"slices"
	"strings"
	"unicode"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/namemap"
)

// Mapping maps names of the source to names of a target: it is the file form of namemap.Map. It is part
// of a plan, and the whole content of a file for decamp migrate --map.
type Mapping struct {
	Networks map[string]Network `yaml:"networks" doc:"network of the target by network of the source. For dir and libvirt: a libvirt network or bridge:NAME; for proxmox: BRIDGE or BRIDGE,TAG; for openstack: a name or an ID; for kubevirt: pod or multus:NAMESPACE/NAME. A * in a name matches any text"`
	Storages map[string]Text    `yaml:"storages" doc:"storage at the target by datastore of the disk. For libvirt: a pool; for proxmox: a storage; for openstack: a volume type; for kubevirt: a storage class; dir has no storages. A * in a name matches any text"`
	Names    map[string]NewName `yaml:"names" doc:"name of the VM at the target by its name at the source. A * in the name matches any text, and a * in the new name stands for that text"`
}

// Network is the network of the target that NICs of one source network are connected to. A file may
// write only its To.
type Network struct {
	To    Text      `yaml:"to" required:"true" doc:"network of the target"`
	VLAN  int       `yaml:"vlan" min:"1" max:"4094" doc:"VLAN tag of the NICs, for targets that set tags: a bridge of proxmox or libvirt"`
	Model CardModel `yaml:"model" doc:"model of the NICs; default: the model that hardware requires, or the original one"`
}

// shortField implements shorthand.
func (n *Network) shortField() any { return &n.To }

type (
	NewName string // name of a VM
	// model of a virtual NIC
	CardModel string
)

// maxNewNameBytes is the limit of vSphere for the name of a VM.
const maxNewNameBytes = 240

// textForm has no pattern: a name may have any printable characters.
func (NewName) textForm() form { return form{example: "prod-*"} }

func (n *NewName) parseText(s string) error {
	odd := func(r rune) bool { return !unicode.IsPrint(r) }
	if strings.TrimSpace(s) == "" || len(s) > maxNewNameBytes || strings.ContainsFunc(s, odd) {
		return fault.New(fault.Invalid, "want a printable name of 1 to %d bytes", maxNewNameBytes)
	}
	*n = NewName(s)
	return nil
}

// textForm lists the models that QEMU has.
func (CardModel) textForm() form {
	return form{words: []string{"virtio", "vmxnet3", "e1000", "e1000e", "rtl8139", "pcnet"}}
}

// parseText accepts the words of textForm.
func (m *CardModel) parseText(s string) error { return setWord(m, s, m.textForm()) }

// Value returns the mapping in the form that targets use. Empty maps become nil.
func (m Mapping) Value() namemap.Map {
	var v namemap.Map
	for from, to := range m.Networks {
		if v.Networks == nil {
			v.Networks = map[string]namemap.Network{}
		}
		v.Networks[from] = namemap.Network{To: string(to.To), VLAN: to.VLAN, Model: string(to.Model)}
	}
	v.Storages = plainStrings(m.Storages)
	v.Names = plainStrings(m.Names)
	return v
}

// plainStrings returns a copy of a map with plain strings as values; nil if it is empty.
func plainStrings[T ~string](m map[string]T) map[string]string {
	if len(m) == 0 {
		return nil
	}
	plain := map[string]string{}
	for k, v := range m {
		plain[k] = string(v)
	}
	return plain
}

// MapFile is the content of a file for --map.
type MapFile struct {
	Version int `yaml:"version" min:"1" max:"1" doc:"version of this format; default 1"`
	Mapping `yaml:",inline"`
}

// LoadMap reads a file for --map. The error has the first mistake with its line.
func LoadMap(path string) (namemap.Map, error) {
	f, err := loadFile(path, ParseMap)
	if err != nil {
		return namemap.Map{}, err
	}
	return f.Value(), nil
}

// ParseMap parses the text of a file for --map as strictly as the text of a plan. An empty text is an
// error.
func ParseMap(text []byte) (*MapFile, Findings) {
	if len(bytes.TrimSpace(text)) == 0 {
		err := fault.New(fault.Invalid, "the map is empty").WithHint("add the names that differ at the target: networks: {VM Network: vmbr0}")
		return nil, Findings{ErrorFinding("file", Pos{}, "", err)}
	}
	d, root := decodeRoot(text)
	if root == nil {
		return nil, d.found
	}
	f := &MapFile{Version: Version}
	d.decodeValue(root, reflect.ValueOf(f).Elem(), "")
	if len(d.found) == 0 {
		r := &ruleChecker{file: &File{positions: d.positions}}
		r.checkMapping("", &f.Mapping)
		d.found = r.found
	}
	d.found.Sort()
	return f, d.found
}

// checkMapping checks wildcards of storages and names: keys with more than one are reserved for later
// versions. Networks are not checked, because a network of vSphere may have a * in its name.
func (r *ruleChecker) checkMapping(path string, m *Mapping) {
	r.checkWildcards(joinPath(path, "storages"), plainStrings(m.Storages))
	r.checkWildcards(joinPath(path, "names"), plainStrings(m.Names))
}

// checkWildcards reports keys with several wildcards, and values with more wildcards than their key.
func (r *ruleChecker) checkWildcards(path string, m map[string]string) {
	for _, key := range slices.Sorted(maps.Keys(m)) {
		inKey, inValue := strings.Count(key, namemap.Wildcard), strings.Count(m[key], namemap.Wildcard)
		switch {
		case inKey > 1:
			r.addError(joinPath(path, key), "keep one of them", "a name may have only one *")
		case inValue > inKey:
			r.addError(joinPath(path, key), "add a * to the name before the colon, or remove it from the new name", "the new name has a *, and the name before the colon has none")
		}
	}
}
