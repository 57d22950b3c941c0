package planfile

import (
	"net/url"
	"path/filepath"
	"slices"
	"strings"

	"github.com/decamp/decamp/internal/fault"
)

// A Destination is where VMs are to live, KIND:ADDRESS:
//
//	dir:/srv/vm                                                       a folder
//	kubevirt:/srv/vm?namespace=vms                                    a folder with manifests beside
//	libvirt:qemu:///system?pool=default&stage=/srv/stage              libvirt
//	proxmox:https://pve1:8006/pve1?storage=local-lvm&stage=/srv/stage a node of Proxmox VE
//	openstack:mycloud?network=lan&stage=/srv/stage                    a project of OpenStack
//	place:rack1?stage=/srv/stage                                      one that an administrator named, see Access
//
// Those that take whole VMs get them from a folder of this machine, the stage. The rest of the
// address is theirs to read.
type Destination string

// Kinds of destinations.
const (
	Dir       = "dir"
	Libvirt   = "libvirt"
	Proxmox   = "proxmox"
	KubeVirt  = "kubevirt"
	OpenStack = "openstack"
	Place     = "place"
)

// stageKey is the parameter that names the stage.
const stageKey = "stage"

var (
	folders = []string{Dir, KubeVirt}                      // their address is a folder
	places  = []string{Libvirt, Proxmox, OpenStack, Place} // theirs is a URL or a name, and they have a stage
)

// destinationHint is what a destination may look like.
const destinationHint = "write dir:/FOLDER, libvirt:qemu:///system?stage=/FOLDER, proxmox:https://HOST:8006/NODE?stage=/FOLDER, openstack:CLOUD?stage=/FOLDER, kubevirt:/FOLDER or place:NAME?stage=/FOLDER"

func (Destination) textForm() form {
	return form{pattern: `^(dir:/|kubevirt:/|libvirt:|openstack:|proxmox:https://|place:[A-Za-z0-9]).*$`, example: "dir:/srv/vm"}
}

func (d *Destination) parseText(s string) error {
	parsed, err := ParseDestination(s, Here{})
	if err == nil {
		*d = parsed
	}
	return err
}

// Here is what a destination may leave out where it is typed.
type Here struct {
	Folder string // base of relative folders; none are permitted if empty
	Stage  string // default staging folder; destinations must name one if empty
}

// absPath returns the folder that is meant by one that may be relative.
func (h Here) absPath(folder string) string {
	if folder == "" || filepath.IsAbs(folder) {
		return folder
	}
	return filepath.Join(h.Folder, folder)
}

// ParseDestination reads a destination.
func ParseDestination(s string, here Here) (Destination, error) {
	kind, address, _ := strings.Cut(s, ":")
	d := Destination(s)
	switch {
	case strings.ContainsAny(s, "\n\x00"):
		return "", fault.New(fault.Invalid, "%q is not where a VM can live", s).WithHint(destinationHint)
	case slices.Contains(folders, kind):
		folder, rest, found := strings.Cut(address, "?")
		if kind == Dir { // any folder, also one with a question mark
			folder, rest, found = address, "", false
		}
		d = Destination(kind + ":" + filepath.Clean(here.absPath(folder)))
		if found {
			d += Destination("?" + rest)
		}
	case slices.Contains(places, kind) && (address != "" || d == OpenStack+":"): // the environment may have its name
		if here.Stage != "" && d.Folder() == "" {
			d = d.withStage(here.absPath(here.Stage))
		}
		if d.Folder() == "" {
			return "", fault.New(fault.Invalid, "%s: the staging folder of this machine is missing", s).
				WithHint("add stage=/FOLDER behind a ? or &: it needs room for the VMs that are under way")
		}
		if kind == Place && (!IsName(d.Address()) || len(d.parameters()[stageKey]) != 1 || strings.ContainsAny(d.Folder(), "?\n\x00")) {
			return "", fault.New(fault.Invalid, "%s: a named place has a name and stage=/FOLDER, and nothing else", s).
				WithHint("write place:NAME?stage=/FOLDER; an administrator sets everything else of the place")
		}
	default:
		return "", fault.New(fault.Invalid, "%q is not where a VM can live", s).WithHint(destinationHint)
	}
	if !filepath.IsAbs(d.Folder()) {
		return "", fault.New(fault.Invalid, "%q does not begin at the root: a plan may be run from anywhere", d.Folder()).WithHint(destinationHint)
	}
	return d, nil
}

func (d Destination) withStage(folder string) Destination {
	sign := "?"
	if strings.Contains(string(d), "?") {
		sign = "&"
	}
	return d + Destination(sign+stageKey+"="+url.QueryEscape(folder))
}

// Kind is what takes the VMs.
func (d Destination) Kind() string {
	kind, _, _ := strings.Cut(string(d), ":")
	return kind
}

// Folder is the folder of this machine that images are written to. It is empty where d has none.
func (d Destination) Folder() string {
	kind, address, _ := strings.Cut(string(d), ":")
	if kind == Dir {
		return address
	}
	path, query, _ := strings.Cut(address, "?")
	if slices.Contains(folders, kind) {
		return path
	}
	v, err := url.ParseQuery(query)
	if err != nil || v.Get(stageKey) == "" {
		return ""
	}
	return filepath.Clean(v.Get(stageKey))
}

// parameters returns the parameters after the question mark; nil if they cannot be parsed.
func (d Destination) parameters() url.Values {
	_, query, _ := strings.Cut(string(d), "?")
	v, err := url.ParseQuery(query)
	if err != nil {
		return nil
	}
	return v
}

// Address is what the destination's kind is to read: all of it but the kind and the stage.
func (d Destination) Address() string {
	kind, address, _ := strings.Cut(string(d), ":")
	path, query, found := strings.Cut(address, "?")
	if kind == Dir || !found {
		return address
	}
	kept := slices.DeleteFunc(strings.Split(query, "&"), func(p string) bool { return strings.HasPrefix(p, stageKey+"=") })
	if len(kept) == 0 {
		return path
	}
	return path + "?" + strings.Join(kept, "&")
}
