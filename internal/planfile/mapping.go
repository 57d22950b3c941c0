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

// Mapping maps names of the source to names of a target: the file form of namemap.Map. It is part of a
// plan, and the whole content of a file for decamp migrate --map.
type Mapping struct {
	Networks map[string]Network `yaml:"networks" doc:"network of the source: that of the target. For dir and libvirt a libvirt network or bridge:NAME, for proxmox BRIDGE or BRIDGE,TAG, for openstack a name or an ID, for kubevirt pod or multus:NAMESPACE/NAME. A * in a name stands for any letters"`
	Storages map[string]Text    `yaml:"storages" doc:"datastore of a disk: its storage at the target. For libvirt a pool, for proxmox a storage, for openstack a type of volumes, for kubevirt a storage class; dir has none. A * in a name stands for any letters"`
	Names    map[string]NewName `yaml:"names" doc:"name of a VM: its name at the target. A * in it stands for any letters, and in the new name for the same"`
}

// Network is what cards of one network of the source join. It may be written as its To alone.
type Network struct {
	To    Text      `yaml:"to" required:"true" doc:"the network of the target"`
	VLAN  int       `yaml:"vlan" min:"1" max:"4094" doc:"the VLAN tag of the cards, if the target sets tags: a bridge of proxmox or libvirt"`
	Model CardModel `yaml:"model" doc:"model of the cards; default: that of hardware, or the original one"`
}

func (n *Network) shortField() any { return &n.To }

type (
	NewName   string // name of a VM
	CardModel string
)

// maxNewNameBytes is what vSphere itself takes, in bytes.
const maxNewNameBytes = 240

func (NewName) textForm() form { return form{example: "prod-*"} }

func (n *NewName) parseText(s string) error {
	odd := func(r rune) bool { return !unicode.IsPrint(r) }
	if strings.TrimSpace(s) == "" || len(s) > maxNewNameBytes || strings.ContainsFunc(s, odd) {
		return fault.New(fault.Invalid, "want a name of 1 to %d bytes that can be printed", maxNewNameBytes)
	}
	*n = NewName(s)
	return nil
}

func (CardModel) textForm() form {
	return form{words: []string{"virtio", "vmxnet3", "e1000", "e1000e", "rtl8139", "pcnet"}}
}

func (m *CardModel) parseText(s string) error { return setWord(m, s, m.textForm()) }

// Value returns the mapping for targets.
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

// plainStrings returns the values of a map as plain strings; nil if there are none.
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

// MapFile is a file of --map.
type MapFile struct {
	Version int `yaml:"version" min:"1" max:"1" doc:"version of this format; default 1"`
	Mapping `yaml:",inline"`
}

// LoadMap reads a file of --map. The error names its first mistake, with the line.
func LoadMap(path string) (namemap.Map, error) {
	f, err := loadFile(path, ParseMap)
	if err != nil {
		return namemap.Map{}, err
	}
	return f.Value(), nil
}

// ParseMap reads the text of one as strictly as a plan's.
func ParseMap(text []byte) (*MapFile, Findings) {
	if len(bytes.TrimSpace(text)) == 0 {
		err := fault.New(fault.Invalid, "the map is empty").WithHint("add the names that differ at the target: networks: {VM Network: vmbr0}")
		return nil, Findings{Found("file", Pos{}, "", err)}
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

// checkMapping looks at keys with a *: of storages and names, which later decamps may read otherwise if they have
// more. A network may be called so.
func (r *ruleChecker) checkMapping(path string, m *Mapping) {
	r.checkWildcards(joinPath(path, "storages"), plainStrings(m.Storages))
	r.checkWildcards(joinPath(path, "names"), plainStrings(m.Names))
}

func (r *ruleChecker) checkWildcards(path string, m map[string]string) {
	for _, key := range slices.Sorted(maps.Keys(m)) {
		inKey, inValue := strings.Count(key, namemap.Wildcard), strings.Count(m[key], namemap.Wildcard)
		switch {
		case inKey > 1:
			r.addError(joinPath(path, key), "keep one of them", "a * stands for any letters, and there may be one")
		case inValue > inKey:
			r.addError(joinPath(path, key), "put one into the name on the left, or take it out of the one on the right", "the * of the new name stands for the text of the * before the colon, which is missing")
		}
	}
}
